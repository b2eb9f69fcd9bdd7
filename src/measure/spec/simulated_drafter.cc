#include "measure/spec/simulated_drafter.h"

#include <algorithm>
#include <array>
#include <memory>

#include "base/clock.h"
#include "base/philox.h"
#include "draft/drafter.h"
#include "draft/option_keys.h"
#include "draft/sequence_states.h"

namespace aerie::measure {
namespace {

class SimulatedDrafter final : public Drafter {
 public:
  explicit SimulatedDrafter(int tokens) : tokens_(tokens) {}

  std::string_view method() const override { return kSimulatedMethod.name; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override {
    return states_.open(sequence, [] { return State(); });
  }
  void close(SequenceId id) override { states_.close(id); }

  Status propose(std::span<DraftRequest> requests) override {
    AERIE_RETURN_IF_ERROR(states_.check(requests));
    const SteadyTime start = steady_now();
    size_t depth = 0;
    for (const DraftRequest& request : requests) depth = std::max(depth, draft(request));
    // A network drafts for all sequences in one pass for each depth.
    const double seconds = simulated_drafts().token_seconds * static_cast<double>(depth);
    while (seconds_since(start) < seconds) {
    }
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override { return states_.check(commits); }

 private:
  struct State {};

  // How deep.
  size_t draft(const DraftRequest& request) const {
    const SimulatedDrafts& made = simulated_drafts();
    const size_t known = request.tokens.size();
    const auto most =
        static_cast<size_t>(std::max(0, std::min({tokens_, request.max_nodes, request.max_depth})));
    float probability = 1.0f;
    size_t depth = 0;
    for (; depth < std::min(most, made.acceptance.size()); ++depth) {
      const size_t position = known + depth;
      if (position >= made.reply.size()) break;
      const double rate = made.acceptance[depth];
      const auto bits = philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(depth)},
                                   {static_cast<uint32_t>(made.seed), 0});
      const int32_t right = made.reply[position];
      const bool is_right = uniform53(bits[0], bits[1]) < rate;
      probability *= static_cast<float>(std::max(rate, 1e-6));
      request.tree->add(is_right ? right : (right == 0 ? 1 : right - 1),
                        static_cast<int32_t>(depth) - 1, nullptr, probability);
    }
    return depth;
  }

  int tokens_;
  DrafterNeeds needs_;
  SequenceStates<State> states_{kSimulatedMethod.name};
};

constexpr std::array<MethodKey, 1> kKeys = {MethodKey{
    kTokensKey, MethodKey::Kind::kWhole, 1, kMostOfMethods, 4, false, "tokens of a draft"}};

Expected<std::unique_ptr<Drafter>> make(const MethodConfig& config, DraftHost& /*host*/) {
  return std::unique_ptr<Drafter>(std::make_unique<SimulatedDrafter>(config.tokens()));
}

}  // namespace

SimulatedDrafts& simulated_drafts() {
  static SimulatedDrafts drafts;
  return drafts;
}

const Method kSimulatedMethod = {
    .name = "simulated",
    .what = "the reply itself, with so many mistakes",
    .keys = kKeys,
    .make = make,
};

}  // namespace aerie::measure
