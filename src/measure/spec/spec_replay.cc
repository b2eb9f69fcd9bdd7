#include "measure/spec/spec_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/progress.h"
#include "core/random_tokens.h"
#include "draft/speculative_config.h"
#include "engine/engine.h"
#include "measure/spec/simulated_drafter.h"
#include "measure/spec/spec_summary.h"

namespace aerie::measure {
namespace {

constexpr int kMostReplayed = 1 << 20;
constexpr int kMostTurns = 1000;

Status check(const ReplayOptions& options) {
  // The first token counts for the prompt.
  if (options.tokens < 2 || options.tokens > kMostReplayed) {
    return invalid_argument("--replay {}: give 2 to {}", options.tokens, kMostReplayed);
  }
  if (options.repeats < 1 || options.repeats > kMostTurns) {
    return invalid_argument("--repeat {}: give 1 to {}", options.repeats, kMostTurns);
  }
  return {};
}

// Plain decoding, drafts of each depth, and `auto`.
Expected<std::vector<SpeculativeConfig>> configs_of(int depths) {
  if (find_method(kSimulatedMethod.name) == nullptr) {
    AERIE_RETURN_IF_ERROR(add_method(kSimulatedMethod));
  }
  std::vector<SpeculativeConfig> configs(1);
  for (int depth = 1; depth <= depths; ++depth) {
    AERIE_ASSIGN_OR_RETURN(configs.emplace_back(),
                           parse_speculative_spec(fmt::format(
                               "{}:{}={},gate=0", kSimulatedMethod.name, kTokensKey, depth)));
  }
  AERIE_ASSIGN_OR_RETURN(configs.emplace_back(),
                         parse_speculative_spec(fmt::format(
                             "{},{}:{}={}", kAutoWord, kSimulatedMethod.name, kTokensKey, depths)));
  return configs;
}

class Replay {
 public:
  Replay(const ReplayOptions& options, Engine& engine, size_t ways)
      : options_(options), engine_(engine), speedups_(ways), tallies_(ways) {
    RandomTokens random;
    for (int i = 0; i < options.context; ++i) {
      prompt_.push_back(random.next(engine.parts().config().vocab));
    }
  }

  Status warm_up();
  Status turn();
  ReplayReport report() const;

 private:
  Expected<Generation> generate(size_t way);

  const ReplayOptions& options_;
  Engine& engine_;
  std::vector<int32_t> prompt_, reply_;
  std::vector<std::vector<double>> speedups_;  // [way][turn]
  std::vector<double> plain_;                  // tokens/s, of each turn
  std::vector<Tally> tallies_;
};

Expected<Generation> Replay::generate(size_t way) {
  // A drafter that remembers replies must not have seen the very same one.
  engine_.forget();
  Request request;
  request.prompt = prompt_;
  request.max_tokens = options_.tokens;
  request.ignore_eos = true;
  request.speculate = way > 0;
  request.speculation = static_cast<int>(way);
  return engine_.generate(request, nullptr);
}

Status Replay::warm_up() {
  AERIE_ASSIGN_OR_RETURN(const Generation plain, generate(0));
  SimulatedDrafts& drafts = simulated_drafts();
  drafts.reply = prompt_;
  drafts.reply.insert(drafts.reply.end(), plain.tokens.begin(), plain.tokens.end());
  drafts.acceptance = options_.acceptance;
  reply_ = plain.tokens;
  // So that its choices come from what it has seen.
  return generate(speedups_.size() - 1).status();
}

Status Replay::turn() {
  AERIE_ASSIGN_OR_RETURN(const Generation plain, generate(0));
  plain_.push_back(plain.tokens_per_second());
  simulated_drafts().token_seconds = options_.draft_cost / plain_.back();
  simulated_drafts().seed = plain_.size();
  for (size_t way = 1; way < speedups_.size(); ++way) {
    AERIE_ASSIGN_OR_RETURN(const Generation drafted, generate(way));
    AERIE_RETURN_IF_ERROR(
        check_same_ids(fmt::format("draft {} of the replay", way), reply_, drafted.tokens));
    speedups_[way].push_back(drafted.tokens_per_second() / plain_.back());
    tallies_[way].add(tally_of(drafted));
  }
  return {};
}

ReplayReport Replay::report() const {
  ReplayReport report;
  report.tokens = options_.tokens;
  report.plain_tokens_per_second = median(plain_);
  for (size_t way = 1; way < speedups_.size(); ++way) {
    const Tally& tally = tallies_[way];
    const double rounds = std::max<double>(1.0, static_cast<double>(tally.rounds));
    ReplayPoint& point = report.points.emplace_back();
    point.depth = way + 1 < speedups_.size() ? static_cast<int>(way) : 0;
    point.drafted = static_cast<double>(tally.drafted) / rounds;
    point.accepted_length = static_cast<double>(tally.round_tokens) / rounds;
    point.speedup = median(speedups_[way]);
    point.spread = spread(speedups_[way]);
  }
  return report;
}

}  // namespace

Expected<ReplayReport> replay_acceptance(const ReplayOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  AERIE_ASSIGN_OR_RETURN(const std::vector<SpeculativeConfig> configs,
                         configs_of(static_cast<int>(options.acceptance.size())));
  EngineOptions engine_options = options.engine;
  engine_options.context = options.context + options.tokens;
  engine_options.speculation = configs[0];
  engine_options.more_speculations.assign(configs.begin() + 1, configs.end());
  AERIE_ASSIGN_OR_RETURN(const auto engine, Engine::open(engine_options));
  Replay replay(options, *engine, configs.size());
  Progress progress("replaying", options.repeats);
  AERIE_RETURN_IF_ERROR(replay.warm_up());
  for (int i = 0; i < options.repeats; ++i) {
    AERIE_RETURN_IF_ERROR(replay.turn());
    progress.add(1);
  }
  return replay.report();
}

std::string to_text(const ReplayReport& report) {
  std::string text = fmt::format(
      "replayed: {} tokens, drafts right so often; plain decoding {:.2f} tokens/s\n{:>8} {:>12} "
      "{:>9} {:>9} {:>17}\n",
      report.tokens, report.plain_tokens_per_second, "depth", "drafted", "τ", "speed-up",
      "lowest-highest");
  for (const ReplayPoint& p : report.points) {
    text += fmt::format("{:>8} {:>12.2f} {:>9.2f} {:>9.2f} {:>17}\n",
                        p.depth == 0 ? "auto" : fmt::format("{}", p.depth), p.drafted,
                        p.accepted_length, p.speedup,
                        fmt::format("{:.2f}-{:.2f}", p.spread.lowest, p.spread.highest));
  }
  return text;
}

}  // namespace aerie::measure
