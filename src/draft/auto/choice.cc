#include "draft/auto/choice.h"

#include <cassert>
#include <unordered_map>
#include <utility>

#include "base/errors.h"
#include "draft/auto/combined.h"

namespace aerie {
namespace {

class Choice final : public Drafter {
 public:
  Choice(std::vector<std::unique_ptr<Drafter>> drafters, DrafterNeeds needs)
      : drafters_(std::move(drafters)),
        needs_(std::move(needs)),
        own_taps_(needs_.tap_layers),
        requests_(drafters_.size()),
        commits_(drafters_.size()) {}

  std::string_view method() const override { return "choice"; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override {
    const auto index = static_cast<size_t>(sequence.drafter);
    if (sequence.drafter < 0 || index >= drafters_.size()) {
      return invalid_argument("sequence {}: there is no drafter {}, but {} of them", sequence.id,
                              sequence.drafter, drafters_.size());
    }
    AERIE_RETURN_IF_ERROR(drafters_[index]->open(sequence));
    number_of_[sequence.id] = index;
    return {};
  }
  void close(SequenceId id) override {
    if (Drafter* drafter = of(id)) drafter->close(id);
    number_of_.erase(id);
  }
  int reusable(std::span<const int32_t> tokens, int drafter,
               std::string_view tenant) const override {
    const auto index = static_cast<size_t>(drafter);
    return index < drafters_.size() ? drafters_[index]->reusable(tokens, drafter, tenant) : 0;
  }
  bool will_share(SequenceId reader, int length, int drafter,
                  std::string_view tenant) const override {
    const auto index = static_cast<size_t>(drafter);
    return index >= drafters_.size() ||
           drafters_[index]->will_share(reader, length, drafter, tenant);
  }
  void keep(SequenceId id, std::span<const int32_t> tokens) override {
    if (Drafter* drafter = of(id)) drafter->keep(id, tokens);
  }
  void forget() override {
    for (const auto& drafter : drafters_) drafter->forget();
  }
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  Drafter* of(SequenceId id) const {
    const auto found = number_of_.find(id);
    return found == number_of_.end() ? nullptr : drafters_[found->second].get();
  }

  std::vector<std::unique_ptr<Drafter>> drafters_;
  DrafterNeeds needs_;
  OwnTaps own_taps_;
  std::unordered_map<SequenceId, size_t> number_of_;  // the open sequences
  // Scratch, by drafter.
  std::vector<std::vector<DraftRequest>> requests_;
  std::vector<std::vector<DraftCommit>> commits_;
};

Status Choice::propose(std::span<DraftRequest> requests) {
  for (auto& own : requests_) own.clear();
  for (const DraftRequest& request : requests) {
    const auto found = number_of_.find(request.id);
    if (found == number_of_.end()) {
      return invalid_argument("a draft for sequence {}, which is not open", request.id);
    }
    requests_[found->second].push_back(request);
  }
  for (size_t i = 0; i < drafters_.size(); ++i) {
    std::vector<DraftRequest>& own = requests_[i];
    if (own.empty()) continue;
    const auto others = static_cast<int>(requests.size() - own.size());
    for (DraftRequest& request : own) {
      request.other_rows += others;
      request.other_tokens += others;
    }
    AERIE_RETURN_IF_ERROR(drafters_[i]->propose(own));
  }
  return {};
}

Status Choice::observe(std::span<const DraftCommit> commits) {
  for (auto& own : commits_) own.clear();
  for (const DraftCommit& commit : commits) {
    const auto found = number_of_.find(commit.id);
    if (found != number_of_.end()) commits_[found->second].push_back(commit);
  }
  for (size_t i = 0; i < drafters_.size(); ++i) {
    if (commits_[i].empty()) continue;
    AERIE_RETURN_IF_ERROR(drafters_[i]->observe(own_taps_.of(*drafters_[i], commits_[i])));
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<Drafter>> choose_drafters(std::vector<std::unique_ptr<Drafter>> drafters) {
  assert(!drafters.empty());
  if (drafters.size() == 1) return std::move(drafters.front());
  AERIE_ASSIGN_OR_RETURN(DrafterNeeds needs, common_needs(drafters));
  return std::unique_ptr<Drafter>(std::make_unique<Choice>(std::move(drafters), std::move(needs)));
}

}  // namespace aerie
