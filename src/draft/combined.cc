#include "draft/combined.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <string>
#include <unordered_map>
#include <utility>

namespace aerie {
namespace {

class FirstWithAnIdea final : public Drafter {
 public:
  FirstWithAnIdea(std::vector<std::unique_ptr<Drafter>> drafters, DrafterNeeds needs)
      : drafters_(std::move(drafters)), needs_(std::move(needs)) {
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
    proposer_.insert_or_assign(sequence.id, kNobody);
    return {};
  }
  void close(SequenceId id) override {
    for (const auto& drafter : drafters_) drafter->close(id);
    proposer_.erase(id);
  }

  Status propose(std::span<DraftRequest> requests) override {
    for (const DraftRequest& request : requests) proposer_[request.id] = kNobody;
    for (size_t i = 0; i < drafters_.size(); ++i) {
      open_.clear();
      for (const DraftRequest& request : requests) {
        if (proposer_[request.id] == kNobody) open_.push_back(request);
      }
      if (open_.empty()) break;
      AERIE_RETURN_IF_ERROR(drafters_[i]->propose(open_));
      for (const DraftRequest& request : open_) {
        if (!request.tree->empty()) proposer_[request.id] = i;
      }
    }
    return {};
  }

  Status observe(std::span<const DraftCommit> commits) override {
    for (size_t i = 0; i < drafters_.size(); ++i) {
      seen_.assign(commits.begin(), commits.end());
      for (DraftCommit& commit : seen_) {
        if (proposer_[commit.id] != i) commit.accepted = {};
      }
      AERIE_RETURN_IF_ERROR(drafters_[i]->observe(seen_));
    }
    return {};
  }

 private:
  static constexpr size_t kNobody = SIZE_MAX;

  std::vector<std::unique_ptr<Drafter>> drafters_;
  DrafterNeeds needs_;
  std::string name_;
  std::unordered_map<SequenceId, size_t> proposer_;  // whose draft the last one was
  std::vector<DraftRequest> open_;
  std::vector<DraftCommit> seen_;
};

}  // namespace

Expected<std::unique_ptr<Drafter>> combine_drafters(std::vector<std::unique_ptr<Drafter>> drafters,
                                                    Combination /*combination*/) {
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
      std::make_unique<FirstWithAnIdea>(std::move(drafters), std::move(needs)));
}

}  // namespace aerie
