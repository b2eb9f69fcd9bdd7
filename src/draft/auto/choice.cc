#include "draft/auto/choice.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "draft/auto/combined.h"
#include "draft/auto/shadow.h"

namespace aerie {
namespace {

class Choice final : public DrafterChoice {
 public:
  std::string_view method() const override { return "choice"; }
  const DrafterNeeds& needs() const override { return needs_; }

  Expected<int> add(std::unique_ptr<Drafter> drafter) override;
  bool remove(int drafter) override;

  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override;
  int reusable(std::span<const int32_t> tokens, int drafter,
               std::string_view tenant) const override {
    if (drafter < 0) return Drafter::reusable(tokens, drafter, tenant);
    return is_there(drafter)
               ? drafters_[static_cast<size_t>(drafter)]->reusable(tokens, drafter, tenant)
               : 0;
  }
  bool will_share(SequenceId reader, int length, int drafter,
                  std::string_view tenant) const override {
    return !is_there(drafter) ||
           drafters_[static_cast<size_t>(drafter)]->will_share(reader, length, drafter, tenant);
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
  // Of an open sequence.
  struct Has {
    int drafter = -1;
    int shadow = -1;
    std::optional<ShadowDraft> on_paper;
  };
  bool is_there(int drafter) const {
    return drafter >= 0 && static_cast<size_t>(drafter) < drafters_.size() &&
           drafters_[static_cast<size_t>(drafter)] != nullptr;
  }
  Drafter* of(SequenceId id) const {
    const auto found = open_.find(id);
    if (found == open_.end() || found->second.drafter < 0) return nullptr;
    return drafters_[static_cast<size_t>(found->second.drafter)].get();
  }
  void open_shadow(const DraftSequence& sequence, Has& has);
  void drop_shadow(SequenceId id, Has& has);
  void propose_on_paper(std::span<const DraftRequest> requests);
  void observe_on_paper(std::span<const DraftCommit> commits);

  std::vector<std::unique_ptr<Drafter>> drafters_;  // null: it has gone
  DrafterNeeds needs_;
  OwnTaps own_taps_{{}};
  std::unordered_map<SequenceId, Has> open_;
  // Scratch, by drafter.
  std::vector<std::vector<DraftRequest>> requests_;
  std::vector<std::vector<DraftCommit>> commits_;
  std::vector<TokenTree> trees_;  // on paper
  int shadows_ = 0;               // open ones
};

Status Choice::open(const DraftSequence& sequence) {
  const bool is_plain = sequence.drafter < 0 && sequence.shadow >= 0;
  if (!is_plain && !is_there(sequence.drafter)) {
    return invalid_argument("sequence {}: there is no drafter {}, but {} of them", sequence.id,
                            sequence.drafter, drafters_.size());
  }
  Has has;
  has.drafter = is_plain ? -1 : sequence.drafter;
  if (!is_plain) {
    AERIE_RETURN_IF_ERROR(drafters_[static_cast<size_t>(sequence.drafter)]->open(sequence));
  }
  open_shadow(sequence, has);
  open_.erase(sequence.id);
  open_.emplace(sequence.id, std::move(has));
  return {};
}

// What cannot be tried is not.
void Choice::open_shadow(const DraftSequence& sequence, Has& has) {
  if (sequence.shadow == sequence.drafter || !is_there(sequence.shadow)) return;
  if (!drafters_[static_cast<size_t>(sequence.shadow)]->open(sequence).ok()) return;
  has.shadow = sequence.shadow;
  has.on_paper.emplace(*sequence.shadow_stats);
  ++shadows_;
}

void Choice::drop_shadow(SequenceId id, Has& has) {
  if (has.shadow < 0) return;
  drafters_[static_cast<size_t>(has.shadow)]->close(id);
  has.shadow = -1;
  --shadows_;
}

void Choice::close(SequenceId id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  if (Drafter* drafter = of(id)) drafter->close(id);
  drop_shadow(id, found->second);
  open_.erase(found);
}

Expected<int> Choice::add(std::unique_ptr<Drafter> drafter) {
  assert(drafter != nullptr);
  const auto free = std::find(drafters_.begin(), drafters_.end(), nullptr);
  const auto index = static_cast<size_t>(free - drafters_.begin());
  if (free == drafters_.end()) drafters_.emplace_back();
  drafters_[index] = std::move(drafter);
  auto needs = common_needs(drafters_);
  if (!needs.ok()) {
    drafters_[index] = nullptr;
    drafters_.resize(requests_.size());  // a place that was made for it goes
    return needs.status();
  }
  needs_ = std::move(*needs);
  own_taps_ = OwnTaps(needs_.tap_layers);
  requests_.resize(drafters_.size());
  commits_.resize(drafters_.size());
  return static_cast<int>(index);
}

bool Choice::remove(int drafter) {
  for (const auto& [id, has] : open_) {
    if (has.drafter == drafter || has.shadow == drafter) return false;
  }
  drafters_[static_cast<size_t>(drafter)] = nullptr;
  auto needs = common_needs(drafters_);  // no more than before
  assert(needs.ok());
  needs_ = std::move(*needs);
  own_taps_ = OwnTaps(needs_.tap_layers);
  return true;
}

Status Choice::propose(std::span<DraftRequest> requests) {
  for (auto& own : requests_) own.clear();
  for (const DraftRequest& request : requests) {
    const auto found = open_.find(request.id);
    if (found == open_.end()) {
      return invalid_argument("a draft for sequence {}, which is not open", request.id);
    }
    const int drafter = found->second.drafter;
    if (drafter >= 0) requests_[static_cast<size_t>(drafter)].push_back(request);
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
  if (shadows_ > 0) propose_on_paper(requests);
  return {};
}

// Into trees that nobody verifies.
void Choice::propose_on_paper(std::span<const DraftRequest> requests) {
  for (auto& own : requests_) own.clear();
  trees_.resize(std::max(trees_.size(), requests.size()));
  for (size_t i = 0; i < requests.size(); ++i) {
    const int shadow = open_.find(requests[i].id)->second.shadow;
    if (shadow < 0) continue;
    DraftRequest request = requests[i];
    trees_[i].clear();
    request.tree = &trees_[i];
    request.ahead = nullptr;
    requests_[static_cast<size_t>(shadow)].push_back(request);
  }
  for (size_t i = 0; i < drafters_.size(); ++i) {
    std::vector<DraftRequest>& own = requests_[i];
    if (own.empty()) continue;
    const SteadyTime start = steady_now();
    const bool is_ok = drafters_[i]->propose(own).ok();
    const double seconds = seconds_since(start) / static_cast<double>(own.size());
    for (const DraftRequest& request : own) {
      Has& has = open_.find(request.id)->second;
      if (is_ok) {
        has.on_paper->add(*request.tree, request.tokens.size(), seconds);
      } else {
        drop_shadow(request.id, has);
      }
    }
  }
}

Status Choice::observe(std::span<const DraftCommit> commits) {
  for (auto& own : commits_) own.clear();
  for (const DraftCommit& commit : commits) {
    const auto found = open_.find(commit.id);
    if (found == open_.end() || found->second.drafter < 0) continue;
    commits_[static_cast<size_t>(found->second.drafter)].push_back(commit);
  }
  for (size_t i = 0; i < drafters_.size(); ++i) {
    if (commits_[i].empty()) continue;
    AERIE_RETURN_IF_ERROR(drafters_[i]->observe(own_taps_.of(*drafters_[i], commits_[i])));
  }
  if (shadows_ > 0) observe_on_paper(commits);
  return {};
}

void Choice::observe_on_paper(std::span<const DraftCommit> commits) {
  for (auto& own : commits_) own.clear();
  for (const DraftCommit& commit : commits) {
    const auto found = open_.find(commit.id);
    if (found == open_.end() || found->second.shadow < 0) continue;
    if (commit.tree != nullptr) found->second.on_paper->settle(commit.tokens);
    commits_[static_cast<size_t>(found->second.shadow)].push_back(commit);
  }
  for (size_t i = 0; i < drafters_.size(); ++i) {
    if (commits_[i].empty()) continue;
    if (drafters_[i]->observe(own_taps_.of(*drafters_[i], commits_[i])).ok()) continue;
    for (const DraftCommit& commit : commits_[i]) {
      drop_shadow(commit.id, open_.find(commit.id)->second);
    }
  }
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
