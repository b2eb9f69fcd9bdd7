#include "draft/combined.h"

#include <fmt/format.h>

#include <cassert>
#include <string>
#include <unordered_map>
#include <utility>

#include "draft/tree_growth.h"

namespace aerie {
namespace {

class Combined final : public Drafter {
 public:
  Combined(std::vector<std::unique_ptr<Drafter>> drafters, Combination combination,
           DrafterNeeds needs)
      : drafters_(std::move(drafters)),
        merges_(combination == Combination::kMerge),
        needs_(std::move(needs)),
        name_(merges_ ? "merge" : "") {
    for (const auto& drafter : drafters_) {
      if (!name_.empty()) name_ += ',';
      name_ += drafter->method();
    }
  }

  std::string_view method() const override { return name_; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override {
    for (size_t i = 0; i < drafters_.size(); ++i) {
      if (Status status = drafters_[i]->open(sequence); !status.ok()) {
        while (i-- > 0) drafters_[i]->close(sequence.id);
        return status;
      }
    }
    merges_for_[sequence.id] = merges_ && sequence.noise == DraftNoise::kTarget;
    return {};
  }
  void close(SequenceId id) override {
    for (const auto& drafter : drafters_) drafter->close(id);
    merges_for_.erase(id);
  }
  void forget() override {
    for (const auto& drafter : drafters_) drafter->forget();
  }

  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  void merge(DraftRequest& request, const TokenTree& tree);

  std::vector<std::unique_ptr<Drafter>> drafters_;
  bool merges_;
  DrafterNeeds needs_;
  std::string name_;
  std::unordered_map<SequenceId, bool> merges_for_;  // the open sequences
  // Scratch.
  TreeEditor editor_;
  std::vector<DraftRequest> asked_;
  std::vector<size_t> asked_of_;  // which request each of them is for
  std::vector<TokenTree> trees_;
};

Status Combined::propose(std::span<DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    if (!merges_for_.contains(request.id)) {
      return {StatusCode::kInvalidArgument,
              fmt::format("drafters {}: sequence {} is not open", name_, request.id)};
    }
  }
  if (trees_.size() < requests.size()) trees_.resize(requests.size());
  for (const auto& drafter : drafters_) {
    asked_.clear();
    asked_of_.clear();
    for (size_t i = 0; i < requests.size(); ++i) {
      if (!requests[i].tree->empty() && !merges_for_.at(requests[i].id)) continue;
      trees_[i].clear();
      asked_.push_back(requests[i]);
      asked_.back().tree = &trees_[i];
      asked_of_.push_back(i);
    }
    if (asked_.empty()) break;
    AERIE_RETURN_IF_ERROR(drafter->propose(asked_));
    for (const size_t i : asked_of_) merge(requests[i], trees_[i]);
  }
  return {};
}

void Combined::merge(DraftRequest& request, const TokenTree& tree) {
  if (tree.empty()) return;
  if (request.tree->empty()) {
    request.tree->nodes.assign(tree.nodes.begin(), tree.nodes.end());
    request.tree->proposals.assign(tree.proposals.begin(), tree.proposals.end());
    return;
  }
  editor_.merge(*request.tree, tree);
  if (request.tree->size() > request.max_nodes) {
    editor_.keep_best(*request.tree, {request.max_nodes, TreeLimits::kNone, TreeLimits::kNone});
  }
}

Status Combined::observe(std::span<const DraftCommit> commits) {
  for (const auto& drafter : drafters_) AERIE_RETURN_IF_ERROR(drafter->observe(commits));
  return {};
}

}  // namespace

Expected<DrafterNeeds> common_needs(std::span<const std::unique_ptr<Drafter>> drafters) {
  DrafterNeeds needs;
  const Drafter* first = nullptr;
  for (const auto& drafter : drafters) {
    const DrafterNeeds& own = drafter->needs();
    if (own.tap_layers.empty()) continue;
    if (first != nullptr && own.tap_layers != needs.tap_layers) {
      return Status(StatusCode::kUnsupported,
                    fmt::format("drafters {} and {} want hidden states of different layers: leave "
                                "one of them out",
                                first->method(), drafter->method()));
    }
    needs.tap_layers = own.tap_layers;
    first = drafter.get();
  }
  return needs;
}

Expected<std::unique_ptr<Drafter>> combine_drafters(std::vector<std::unique_ptr<Drafter>> drafters,
                                                    Combination combination) {
  assert(!drafters.empty());
  AERIE_ASSIGN_OR_RETURN(DrafterNeeds needs, common_needs(drafters));
  return std::unique_ptr<Drafter>(
      std::make_unique<Combined>(std::move(drafters), combination, std::move(needs)));
}

}  // namespace aerie
