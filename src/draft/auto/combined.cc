#include "draft/auto/combined.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <unordered_map>

#include "base/errors.h"
#include "draft/tree/tree_growth.h"
#include "model/model.h"

namespace aerie {
namespace {

class Combined final : public Drafter {
 public:
  Combined(std::vector<std::unique_ptr<Drafter>> drafters, Combination combination,
           DrafterNeeds needs)
      : drafters_(std::move(drafters)),
        merges_(combination == Combination::kMerge),
        needs_(std::move(needs)),
        own_taps_(needs_.tap_layers),
        name_(merges_ ? "merge" : "") {
    for (const auto& drafter : drafters_) {
      if (!name_.empty()) name_ += ',';
      name_ += drafter->method();
    }
  }

  std::string_view method() const override { return name_; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override {
    for (const auto& drafter : drafters_) drafter->close(id);
    mode_of_.erase(id);
  }
  int reusable(std::span<const int32_t> tokens, int drafter,
               std::string_view tenant) const override {
    int reusable = static_cast<int>(tokens.size()) - 1;
    for (const auto& one : drafters_) {
      reusable = std::min(reusable, one->reusable(tokens, drafter, tenant));
    }
    return reusable;
  }
  bool will_share(SequenceId reader, int length, int drafter,
                  std::string_view tenant) const override {
    return std::ranges::all_of(drafters_, [&](const auto& one) {
      return one->will_share(reader, length, drafter, tenant);
    });
  }
  void keep(SequenceId id, std::span<const int32_t> tokens) override {
    for (const auto& drafter : drafters_) drafter->keep(id, tokens);
  }
  void forget() override {
    for (const auto& drafter : drafters_) drafter->forget();
  }

  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  // What becomes of the drafters' trees for a sequence.
  enum class Mode { kFirst, kBestOfAll, kShares };
  // The nodes that drafter `index` is asked for; 0: it is not asked.
  int share(const DraftRequest& request, size_t index) const;
  void merge(DraftRequest& request, const TokenTree& tree);

  std::vector<std::unique_ptr<Drafter>> drafters_;
  bool merges_;
  DrafterNeeds needs_;
  OwnTaps own_taps_;
  std::string name_;
  std::unordered_map<SequenceId, Mode> mode_of_;  // the open sequences
  // Scratch.
  TreeEditor editor_;
  std::vector<DraftRequest> asked_;
  std::vector<size_t> asked_of_;  // which request each of them is for
  std::vector<TokenTree> trees_;
};

Status Combined::open(const DraftSequence& sequence) {
  DraftSequence own = sequence;
  for (size_t i = 0; i < drafters_.size(); ++i) {
    // Drafts that were drawn with the same numbers would bias the rules that compare with them.
    if (sequence.noise == DraftNoise::kOwn) {
      own.sampling.choice = sequence.sampling.choice ^ (static_cast<uint32_t>(i) << 24);
    }
    if (Status status = drafters_[i]->open(own); !status.ok()) {
      while (i-- > 0) drafters_[i]->close(sequence.id);
      return status;
    }
  }
  Mode mode = Mode::kFirst;
  if (merges_ && sequence.noise == DraftNoise::kTarget) {
    mode = Mode::kBestOfAll;
  } else if (merges_ && sequence.trees) {
    mode = Mode::kShares;
  }
  mode_of_[sequence.id] = mode;
  return {};
}

int Combined::share(const DraftRequest& request, size_t index) const {
  switch (mode_of_.at(request.id)) {
    case Mode::kFirst:
      return request.tree->empty() ? request.max_nodes : 0;
    case Mode::kBestOfAll:
      return request.max_nodes;
    case Mode::kShares:
      break;
  }
  const int count = static_cast<int>(drafters_.size());
  const int extra = static_cast<int>(index) < request.max_nodes % count ? 1 : 0;
  return request.max_nodes / count + extra;
}

Status Combined::propose(std::span<DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    if (!mode_of_.contains(request.id)) {
      return invalid_argument("drafters {}: sequence {} is not open", name_, request.id);
    }
  }
  if (trees_.size() < requests.size()) trees_.resize(requests.size());
  for (size_t d = 0; d < drafters_.size(); ++d) {
    asked_.clear();
    asked_of_.clear();
    for (size_t i = 0; i < requests.size(); ++i) {
      const int nodes = share(requests[i], d);
      if (nodes == 0) continue;
      trees_[i].clear();
      asked_.push_back(requests[i]);
      asked_.back().max_nodes = nodes;
      asked_.back().tree = &trees_[i];
      asked_.back().ahead = nullptr;  // others' nodes are verified beside its
      asked_of_.push_back(i);
    }
    if (asked_.empty()) continue;
    AERIE_RETURN_IF_ERROR(drafters_[d]->propose(asked_));
    for (size_t j = 0; j < asked_.size(); ++j) {
      DraftRequest& request = requests[asked_of_[j]];
      request.unread = std::max(request.unread, asked_[j].unread);
      merge(request, trees_[asked_of_[j]]);
    }
  }
  return {};
}

void Combined::merge(DraftRequest& request, const TokenTree& tree) {
  const bool shares = mode_of_.at(request.id) == Mode::kShares;
  // A drafter may be wrong, and merging proposals relies on the shape.
  if (tree.empty() || (shares && !tree.is_well_formed())) return;
  if (request.tree->empty()) {
    request.tree->nodes.assign(tree.nodes.begin(), tree.nodes.end());
    request.tree->proposals.assign(tree.proposals.begin(), tree.proposals.end());
    return;
  }
  if (shares) {
    editor_.merge_proposals(*request.tree, tree);
    return;
  }
  editor_.merge(*request.tree, tree);
  if (request.tree->size() > request.max_nodes) {
    editor_.keep_best(*request.tree, {request.max_nodes, TreeLimits::kNone, TreeLimits::kNone});
  }
}

Status Combined::observe(std::span<const DraftCommit> commits) {
  for (const auto& drafter : drafters_) {
    AERIE_RETURN_IF_ERROR(drafter->observe(own_taps_.of(*drafter, commits)));
  }
  return {};
}

}  // namespace

Expected<DrafterNeeds> common_needs(std::span<const std::unique_ptr<Drafter>> drafters) {
  DrafterNeeds needs;
  for (const auto& drafter : drafters) {
    if (drafter == nullptr) continue;
    const DrafterNeeds& own = drafter->needs();
    needs.top_tokens = std::max(needs.top_tokens, own.top_tokens);
    needs.top_refusals = std::max(needs.top_refusals, own.top_refusals);
    needs.knows_noise = needs.knows_noise || own.knows_noise;
    for (const int32_t layer : own.tap_layers) {
      if (std::ranges::count(needs.tap_layers, layer) == 0) needs.tap_layers.push_back(layer);
    }
    const auto most = static_cast<size_t>(ModelOptions().max_taps);
    if (needs.tap_layers.size() <= most) continue;
    return not_supported(
        "with drafter {} hidden states of {} layers are wanted, and there are {}: leave one "
        "drafter out",
        drafter->method(), needs.tap_layers.size(), most);
  }
  return needs;
}

std::span<const DraftCommit> OwnTaps::of(const Drafter& drafter,
                                         std::span<const DraftCommit> commits) {
  const std::vector<int32_t>& own = drafter.needs().tap_layers;
  if (own == all_) return commits;
  places_.clear();
  for (const int32_t layer : own) {
    places_.push_back(static_cast<size_t>(std::ranges::find(all_, layer) - all_.begin()));
  }
  size_t floats = 0;
  for (const DraftCommit& commit : commits) floats += commit.taps.size() / all_.size() * own.size();
  taps_.clear();
  taps_.reserve(floats);  // so that spans hold
  commits_.assign(commits.begin(), commits.end());
  for (DraftCommit& commit : commits_) {
    const size_t first = taps_.size();
    const size_t cells = static_cast<size_t>(commit.rows) * all_.size();
    const size_t width = cells == 0 ? 0 : commit.taps.size() / cells;
    for (size_t row = 0; width > 0 && row < static_cast<size_t>(commit.rows); ++row) {
      for (const size_t place : places_) {
        const auto tap = commit.taps.subspan((row * all_.size() + place) * width, width);
        taps_.insert(taps_.end(), tap.begin(), tap.end());
      }
    }
    commit.taps = std::span<const float>(taps_).subspan(first);
  }
  return commits_;
}

Expected<std::unique_ptr<Drafter>> combine_drafters(std::vector<std::unique_ptr<Drafter>> drafters,
                                                    Combination combination) {
  assert(!drafters.empty());
  AERIE_ASSIGN_OR_RETURN(DrafterNeeds needs, common_needs(drafters));
  return std::unique_ptr<Drafter>(
      std::make_unique<Combined>(std::move(drafters), combination, std::move(needs)));
}

}  // namespace aerie
