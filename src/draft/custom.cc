#include "draft/custom.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "draft/draft_host.h"
#include "draft/option_keys.h"
#include "draft/sequence_states.h"

namespace aerie {
namespace {

// What a path is taken to be worth where the drafter has no idea: the gate and the controller
// correct it by what comes true.
constexpr float kUsualStep = 0.8f;

class OwnDrafter final : public Drafter {
 public:
  OwnDrafter(std::shared_ptr<CustomDrafter> drafter, int num_tokens, int vocab)
      : drafter_(std::move(drafter)), num_tokens_(num_tokens), vocab_(vocab) {}

  std::string_view method() const override { return kCustomName; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override;
  void close(SequenceId id) override;
  Status propose(std::span<DraftRequest> requests) override;
  Status observe(std::span<const DraftCommit> commits) override;

 private:
  struct State {
    bool failed = false;  // it is asked no more
  };

  void fail(SequenceId id, const Status& status);
  Status fill(const DraftQuery& query, DraftRequest& request) const;

  std::shared_ptr<CustomDrafter> drafter_;
  int num_tokens_;
  int vocab_;
  DrafterNeeds needs_;
  SequenceStates<State> states_{kCustomName};
  bool told_ = false;  // of an error
  // Scratch.
  std::vector<DraftQuery> queries_;
  std::vector<DraftRequest*> asked_;
  std::vector<DraftOutcome> outcomes_;
  std::vector<std::vector<int32_t>> accepted_;
};

void OwnDrafter::fail(SequenceId id, const Status& status) {
  if (State* state = states_.find(id)) state->failed = true;
  if (std::exchange(told_, true)) return;
  log(LogLevel::kWarning, fmt::format("the program's own drafter failed, and what it was asked "
                                      "about is decoded plainly: {}",
                                      status.message()));
}

Status OwnDrafter::open(const DraftSequence& sequence) {
  AERIE_RETURN_IF_ERROR(states_.open(sequence, [] { return State(); }));
  const Status status = drafter_->open(static_cast<uint64_t>(sequence.id), sequence.tokens);
  if (!status.ok()) fail(sequence.id, status);
  return {};
}

void OwnDrafter::close(SequenceId id) {
  if (states_.find(id) == nullptr) return;
  states_.close(id);
  drafter_->close(static_cast<uint64_t>(id));
}

Status OwnDrafter::fill(const DraftQuery& query, DraftRequest& request) const {
  TokenTree& tree = *request.tree;
  const auto nodes = std::min(query.draft.size(), static_cast<size_t>(query.max_nodes));
  for (size_t i = 0; i < nodes; ++i) {
    const ProposedNode& node = query.draft[i];
    if (node.token < 0 || node.token >= vocab_) {
      return invalid_argument("node {} has token {}, the vocabulary 0 to {}", i, node.token,
                              vocab_ - 1);
    }
    if (node.parent < -1 || node.parent >= static_cast<int32_t>(i)) {
      return invalid_argument("node {} has parent {}, which is no earlier node and not -1", i,
                              node.parent);
    }
    if (!(node.probability >= 0.0f && node.probability <= 1.0f)) {
      return invalid_argument("node {} has probability {}, which is not within 0 and 1", i,
                              node.probability);
    }
    const float above =
        node.parent < 0 ? 1.0f : tree.nodes[static_cast<size_t>(node.parent)].probability;
    const float own = node.probability > 0.0f ? node.probability : above * kUsualStep;
    tree.add(node.token, node.parent, nullptr, std::max(1e-30f, std::min(own, above)));
  }
  return {};
}

Status OwnDrafter::propose(std::span<DraftRequest> requests) {
  AERIE_RETURN_IF_ERROR(states_.check(requests));
  queries_.clear();
  asked_.clear();
  for (DraftRequest& request : requests) {
    const int nodes = std::min(num_tokens_, request.max_nodes);
    if (states_.use(request).failed || nodes <= 0) continue;
    DraftQuery& query = queries_.emplace_back();
    query.sequence = static_cast<uint64_t>(request.id);
    query.tokens = request.tokens;
    query.max_nodes = nodes;
    asked_.push_back(&request);
  }
  if (queries_.empty()) return {};
  const Status status = drafter_->propose(queries_);
  for (size_t i = 0; i < queries_.size(); ++i) {
    const Status own = status.ok() ? fill(queries_[i], *asked_[i]) : status;
    if (own.ok()) continue;
    asked_[i]->tree->clear();
    fail(asked_[i]->id, own);
  }
  return {};
}

Status OwnDrafter::observe(std::span<const DraftCommit> commits) {
  AERIE_RETURN_IF_ERROR(states_.check(commits));
  outcomes_.clear();
  accepted_.resize(std::max(accepted_.size(), commits.size()));
  for (size_t i = 0; i < commits.size(); ++i) {
    const DraftCommit& commit = commits[i];
    if (states_.use(commit).failed) continue;
    accepted_[i].clear();
    for (const int32_t node : commit.accepted) {
      accepted_[i].push_back(commit.tree->nodes[static_cast<size_t>(node)].token);
    }
    const int drafted = commit.tree == nullptr ? 0 : commit.tree->size();
    outcomes_.push_back({static_cast<uint64_t>(commit.id), commit.tokens, accepted_[i], drafted});
  }
  if (outcomes_.empty()) return {};
  const Status status = drafter_->observe(outcomes_);
  if (status.ok()) return {};
  for (const DraftOutcome& outcome : outcomes_) {
    fail(static_cast<SequenceId>(outcome.sequence), status);
  }
  return {};
}

struct CustomOptions {
  int num_tokens = 5;
};

constexpr std::array kCustomOptions = {tokens_key(&CustomOptions::num_tokens)};
constexpr auto kCustomKeys = keys_of(kCustomOptions);

Expected<std::unique_ptr<Drafter>> make_custom(const MethodConfig& config, DraftHost& host) {
  if (host.target().custom == nullptr) {
    return invalid_argument("method {}: the engine was opened without a drafter of one's own",
                            kCustomName);
  }
  return make_custom_drafter(host.target().custom, config.tokens(), host.target().vocab);
}

constexpr Method kCustomMethod = {
    .name = kCustomName,
    .what = "the drafter of the program that opened the engine",
    .keys = kCustomKeys,
    .make = make_custom,
};

}  // namespace

const Status& add_custom_method() {
  static const Status kAdded = add_method(kCustomMethod);
  return kAdded;
}

std::unique_ptr<Drafter> make_custom_drafter(std::shared_ptr<CustomDrafter> drafter, int num_tokens,
                                             int vocab) {
  return std::make_unique<OwnDrafter>(std::move(drafter), num_tokens, vocab);
}

}  // namespace aerie
