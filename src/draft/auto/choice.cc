#include "draft/auto/choice.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>
#include <utility>

#include "base/errors.h"
#include "draft/auto/combined.h"

namespace aerie {
namespace {

class Choice final : public DrafterChoice {
 public:
  std::string_view method() const override { return "choice"; }
  const DrafterNeeds& needs() const override { return needs_; }

  Expected<int> add(std::unique_ptr<Drafter> drafter) override;
  bool remove(int drafter) override;

  Status open(const DraftSequence& sequence) override {
    const auto index = static_cast<size_t>(sequence.drafter);
    if (sequence.drafter < 0 || index >= drafters_.size() || drafters_[index] == nullptr) {
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
    const bool is_there = index < drafters_.size() && drafters_[index] != nullptr;
    return is_there ? drafters_[index]->reusable(tokens, drafter, tenant) : 0;
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
    for (const auto& drafter : drafters_) {
      if (drafter != nullptr) drafter->forget();
    }
  }
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  Drafter* of(SequenceId id) const {
    const auto found = number_of_.find(id);
    return found == number_of_.end() ? nullptr : drafters_[found->second].get();
  }

  std::vector<std::unique_ptr<Drafter>> drafters_;  // null: it has gone
  DrafterNeeds needs_;
  OwnTaps own_taps_{{}};
  std::unordered_map<SequenceId, size_t> number_of_;  // the open sequences
  // Scratch, by drafter.
  std::vector<std::vector<DraftRequest>> requests_;
  std::vector<std::vector<DraftCommit>> commits_;
};

Expected<int> Choice::add(std::unique_ptr<Drafter> drafter) {
  assert(drafter != nullptr);
  const auto free = std::find(drafters_.begin(), drafters_.end(), nullptr);
  const auto index = static_cast<size_t>(free - drafters_.begin());
  if (free == drafters_.end()) drafters_.emplace_back();
  drafters_[index] = std::move(drafter);
  auto needs = common_needs(drafters_);
  if (!needs.ok()) {
    drafters_[index] = nullptr;
    return needs.status();
  }
  needs_ = std::move(*needs);
  own_taps_ = OwnTaps(needs_.tap_layers);
  requests_.resize(drafters_.size());
  commits_.resize(drafters_.size());
  return static_cast<int>(index);
}

bool Choice::remove(int drafter) {
  const auto index = static_cast<size_t>(drafter);
  for (const auto& [id, number] : number_of_) {
    if (number == index) return false;
  }
  drafters_[index] = nullptr;
  auto needs = common_needs(drafters_);  // no more than before
  assert(needs.ok());
  needs_ = std::move(*needs);
  own_taps_ = OwnTaps(needs_.tap_layers);
  return true;
}

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

Expected<std::unique_ptr<DrafterChoice>> choose_drafters(
    std::vector<std::unique_ptr<Drafter>> drafters) {
  auto choice = std::make_unique<Choice>();
  for (std::unique_ptr<Drafter>& drafter : drafters) {
    AERIE_RETURN_IF_ERROR(choice->add(std::move(drafter)).status());
  }
  return std::unique_ptr<DrafterChoice>(std::move(choice));
}

}  // namespace aerie
