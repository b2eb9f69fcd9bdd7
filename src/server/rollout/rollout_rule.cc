#include "server/rollout/rollout_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace aerie::server {
namespace {

// Of the present setting, for a percentile.
constexpr int64_t kLeastForTail = 50;

// Whether more exceed the bound than the hundredth part and chance explain.
bool has_long_tail(const RolloutRule& rule, const ReplyTimes& present,
                   const ReplyTimes& candidate) {
  if (present.kept() < kLeastForTail) return false;
  const double expected = 0.01 * static_cast<double>(candidate.kept());
  const auto longer =
      static_cast<double>(candidate.longer_than(rule.most_tail * present.quantile(0.99)));
  return longer >= 3.0 && longer > expected + RolloutRule::kWidth * std::sqrt(expected);
}

std::string shown(const Speedup& speedup) {
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", speedup.ratio, speedup.low, speedup.high);
}

}  // namespace

void SettingFigures::add(const ReplyEnd& end) {
  if (!times.add(end)) return;
  tokens += end.generated_tokens;
  drafted += end.stats.drafted;
  accepted += end.stats.accepted;
}

Verdict judge(const RolloutRule& rule, size_t step, int64_t replies_in_step,
              const SettingFigures& present, const SettingFigures& candidate) {
  using Kind = Verdict::Kind;
  // A gate keeps what is hardly ever right from drafting, so that its times say little; this does.
  const auto tokens = static_cast<double>(std::max<int64_t>(1, candidate.tokens));
  const double accepted = static_cast<double>(candidate.accepted) / tokens;
  if (candidate.replies() >= rule.least_replies / 2 && accepted < rule.least_accepted) {
    return {Kind::kRollBack,
            fmt::format("{:.1f} % of the tokens of {} replies were drafts that stood",
                        100.0 * accepted, candidate.replies())};
  }
  const Speedup speedup = speedup_of(present.times, candidate.times, RolloutRule::kWidth,
                                     std::min(rule.least_replies, 5));
  const bool is_enough = candidate.times.count() >= rule.least_replies && speedup.known();
  if (is_enough && speedup.high < 1.0) {
    return {Kind::kRollBack, fmt::format("it is slower: {} times as fast", shown(speedup))};
  }
  if (is_enough && has_long_tail(rule, present.times, candidate.times)) {
    return {Kind::kRollBack,
            fmt::format("{} of {} replies are slower than {} times the 99th percentile",
                        candidate.times.longer_than(rule.most_tail * present.times.quantile(0.99)),
                        candidate.times.kept(), rule.most_tail)};
  }
  if (is_enough && replies_in_step >= rule.least_replies && speedup.low > rule.least_gain) {
    const bool is_last = step + 1 >= rule.steps.size();
    return {is_last ? Kind::kPromote : Kind::kNextStep,
            fmt::format("{} times as fast", shown(speedup))};
  }
  if (present.replies() + candidate.replies() >= rule.most_replies) {
    return {Kind::kRollBack,
            speedup.known()
                ? fmt::format("not shown to be better after {} replies: {}", rule.most_replies,
                              shown(speedup))
                : fmt::format("too little is known after {} replies", rule.most_replies)};
  }
  return {};
}

}  // namespace aerie::server
