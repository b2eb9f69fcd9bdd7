#include "server/rollout/rollout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "draft/speculative_config.h"

namespace aerie::server {
namespace {

Status check(const RolloutRule& rule) {
  const bool rises = std::ranges::is_sorted(rule.steps, std::ranges::less_equal{});
  if (rule.steps.empty() || rule.steps.size() > 16 || rule.steps.front() <= 0.0 ||
      rule.steps.back() >= 1.0 || !rises) {
    return invalid_argument("steps must be 1 to 16 shares between 0 and 1 that rise");
  }
  if (rule.least_replies < 5 || rule.most_replies < 2 * rule.least_replies) {
    return invalid_argument("{} replies at least and {} at most: give 5 or more, and twice as many",
                            rule.least_replies, rule.most_replies);
  }
  if (!(rule.least_gain > 0.0 && rule.least_gain <= 100.0) ||
      !(rule.most_tail >= 1.0 && rule.most_tail <= 100.0) ||
      !(rule.least_accepted >= 0.0 && rule.least_accepted < 1.0)) {
    return invalid_argument("a gain above 0, a tail of 1 or more, and an acceptance below 1");
  }
  return {};
}

}  // namespace

Rollout::Ticket Rollout::draw() {
  const std::lock_guard lock(mutex_);
  Ticket ticket;
  ticket.speculation = present_;
  if (!canary_) return ticket;
  ticket.canary = canary_->number;
  const double share = canary_->rule.steps[canary_->step];
  ticket.is_candidate = std::uniform_real_distribution<double>(0.0, 1.0)(random_) < share;
  if (ticket.is_candidate) ticket.speculation = canary_->speculation;
  return ticket;
}

void Rollout::on_end(const Ticket& ticket, const ReplyEnd& end) {
  const std::lock_guard lock(mutex_);
  if (!canary_ || ticket.canary != canary_->number) return;
  Canary& canary = *canary_;
  (ticket.is_candidate ? canary.candidate : canary.present).add(end);
  if (ticket.is_candidate) ++canary.replies_in_step;
  const Verdict verdict =
      judge(canary.rule, canary.step, canary.replies_in_step, canary.present, canary.candidate);
  switch (verdict.kind) {
    case Verdict::Kind::kWait:
      return;
    case Verdict::Kind::kNextStep:
      ++canary.step;
      canary.replies_in_step = 0;
      return say(fmt::format("canary {}: {}; now for {:.3g} % of the requests", canary.name,
                             verdict.why, 100.0 * canary.rule.steps[canary.step]));
    case Verdict::Kind::kPromote:
      return end_promoted(verdict.why);
    case Verdict::Kind::kRollBack:
      return end_rolled_back(verdict.why);
  }
}

Status Rollout::begin(const std::string& speculate, RolloutRule rule) {
  AERIE_RETURN_IF_ERROR(check(rule));
  AERIE_ASSIGN_OR_RETURN(const SpeculativeConfig config, parse_speculative_spec(speculate));
  {
    const std::lock_guard lock(mutex_);
    if (canary_ || opening_) {
      return invalid_argument("a canary is under way: promote it or roll it back first");
    }
    opening_ = true;
  }
  // Without the lock, since it takes as long as its files do.
  auto added = service_.add_speculation(config);
  const std::lock_guard lock(mutex_);
  opening_ = false;
  if (!added.ok()) return added.status();
  Canary& canary = canary_.emplace();
  canary.number = ++canaries_;
  canary.speculation = *added;
  canary.name = name_of(*added);
  canary.rule = std::move(rule);
  say(fmt::format("canary {}: for {:.3g} % of the requests that get {}", canary.name,
                  100.0 * canary.rule.steps.front(), name_of(present_)));
  return {};
}

Status Rollout::promote() {
  const std::lock_guard lock(mutex_);
  if (!canary_) return not_found("no canary is under way");
  end_promoted("by hand");
  return {};
}

Status Rollout::roll_back() {
  const std::lock_guard lock(mutex_);
  if (canary_) {
    end_rolled_back("by hand");
    return {};
  }
  if (!former_) return not_found("there is nothing to roll back to");
  const int taken_back = std::exchange(present_, *former_);
  former_.reset();
  ++roll_backs_;
  say(fmt::format("{} is rolled back by hand; requests get {}", name_of(taken_back),
                  name_of(present_)));
  (void)service_.remove_speculation(taken_back);
  return {};
}

void Rollout::end_promoted(const std::string& why) {
  // The one before the last cannot be returned to any more; what was there at the start stays.
  if (former_) (void)service_.remove_speculation(*former_);
  former_ = std::exchange(present_, canary_->speculation);
  ++promotions_;
  say(fmt::format("canary {} is promoted: {}; requests get it in the place of {}", canary_->name,
                  why, name_of(*former_)));
  canary_.reset();
}

void Rollout::end_rolled_back(const std::string& why) {
  ++roll_backs_;
  say(fmt::format("canary {} is rolled back: {}; requests get {}", canary_->name, why,
                  name_of(present_)));
  (void)service_.remove_speculation(canary_->speculation);
  canary_.reset();
}

bool Rollout::is_in_use() const {
  const std::lock_guard lock(mutex_);
  return canary_ || opening_ || former_;
}

Rollout::State Rollout::state() const {
  const std::lock_guard lock(mutex_);
  State out;
  out.present = name_of(present_);
  if (canary_) {
    out.candidate = canary_->name;
    out.step = canary_->step;
    out.share = canary_->rule.steps[canary_->step];
    out.rule = canary_->rule;
    out.present_figures = canary_->present;
    out.candidate_figures = canary_->candidate;
    out.speedup =
        speedup_of(canary_->present.times, canary_->candidate.times, RolloutRule::kWidth, 5);
  }
  out.last = last_;
  out.promotions = promotions_;
  out.roll_backs = roll_backs_;
  return out;
}

void Rollout::say(const std::string& line) {
  last_ = line;
  if (log_) log_(line);
}

std::string Rollout::name_of(int speculation) const {
  const std::vector<std::string> names = service_.speculations();
  const auto index = static_cast<size_t>(speculation);
  return index < names.size() ? names[index] : std::string();
}

}  // namespace aerie::server
