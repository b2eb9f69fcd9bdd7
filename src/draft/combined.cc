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
    states_[sequence.id] = {merges_ && sequence.noise == DraftNoise::kTarget, kNobody};
    return {};
  }
  void close(SequenceId id) override {
    for (const auto& drafter : drafters_) drafter->close(id);
    states_.erase(id);
  }

  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  static constexpr size_t kNobody = SIZE_MAX;

  struct State {
    bool merges = false;
    size_t proposer = kNobody;  // whose tree, unchanged, the last draft is
  };

  State& state(SequenceId id) { return states_.find(id)->second; }
  void merge(size_t drafter, DraftRequest& request, const TokenTree& tree);

  std::vector<std::unique_ptr<Drafter>> drafters_;
  bool merges_;
  DrafterNeeds needs_;
  std::string name_;
  std::unordered_map<SequenceId, State> states_;
  // Scratch.
  TreeEditor editor_;
  std::vector<DraftRequest> asked_;
  std::vector<size_t> asked_of_;  // which request each of them is for
  std::vector<TokenTree> trees_;
  std::vector<DraftCommit> seen_;
};

Status Combined::propose(std::span<DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    if (!states_.contains(request.id)) {
      return {StatusCode::kInvalidArgument,
              fmt::format("drafters {}: sequence {} is not open", name_, request.id)};
    }
    state(request.id).proposer = kNobody;
  }
  if (trees_.size() < requests.size()) trees_.resize(requests.size());
  for (size_t d = 0; d < drafters_.size(); ++d) {
    asked_.clear();
    asked_of_.clear();
    for (size_t i = 0; i < requests.size(); ++i) {
      if (!requests[i].tree->empty() && !state(requests[i].id).merges) continue;
      trees_[i].clear();
      asked_.push_back(requests[i]);
      asked_.back().tree = &trees_[i];
      asked_of_.push_back(i);
    }
    if (asked_.empty()) break;
    AERIE_RETURN_IF_ERROR(drafters_[d]->propose(asked_));
    for (const size_t i : asked_of_) merge(d, requests[i], trees_[i]);
  }
  return {};
}

void Combined::merge(size_t drafter, DraftRequest& request, const TokenTree& tree) {
  if (tree.empty()) return;
  State& at = state(request.id);
  if (request.tree->empty()) {
    request.tree->nodes.assign(tree.nodes.begin(), tree.nodes.end());
    at.proposer = drafter;
    return;
  }
  at.proposer = kNobody;
  editor_.merge(*request.tree, tree);
  if (request.tree->size() > request.max_nodes) {
    editor_.keep_best(*request.tree, {request.max_nodes, TreeLimits::kNone, TreeLimits::kNone});
  }
}

Status Combined::observe(std::span<const DraftCommit> commits) {
  for (size_t d = 0; d < drafters_.size(); ++d) {
    seen_.assign(commits.begin(), commits.end());
    for (DraftCommit& commit : seen_) {
      const auto found = states_.find(commit.id);
      if (found == states_.end() || found->second.proposer != d) commit.accepted = {};
    }
    AERIE_RETURN_IF_ERROR(drafters_[d]->observe(seen_));
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<Drafter>> combine_drafters(std::vector<std::unique_ptr<Drafter>> drafters,
                                                    Combination combination) {
  assert(!drafters.empty());
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
    needs = own;
    first = drafter.get();
  }
  return std::unique_ptr<Drafter>(
      std::make_unique<Combined>(std::move(drafters), combination, std::move(needs)));
}

}  // namespace aerie
