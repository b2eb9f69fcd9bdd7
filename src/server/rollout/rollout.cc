#include "server/rollout/rollout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "core/counts.h"
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

void add(const ShadowStats& of, ShadowStats& to) {
  to.rounds += of.rounds;
  to.drafted += of.drafted;
  to.accepted += of.accepted;
  to.seconds += of.seconds;
  add_counts(of.accepted_at, to.accepted_at);
}

}  // namespace

Rollout::Ticket Rollout::draw() {
  const std::lock_guard lock(mutex_);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  Ticket ticket;
  ticket.speculation = present_;
  if (canary_) {
    ticket.canary = canary_->number;
    ticket.is_candidate = uniform(random_) < canary_->rule.steps[canary_->step];
    if (ticket.is_candidate) ticket.speculation = canary_->speculation;
  }
  if (shadow_ && uniform(random_) < shadow_->figures.share) {
    ticket.shadow = shadow_->speculation;
    ticket.on_paper = shadow_->number;
  }
  return ticket;
}

void Rollout::on_end(const Ticket& ticket, const ReplyEnd& end) {
  const std::lock_guard lock(mutex_);
  if (shadow_ && ticket.on_paper == shadow_->number) {
    ShadowFigures& figures = shadow_->figures;
    ++figures.replies;
    add(end.stats.shadow, figures.on_paper);
    figures.rounds += end.stats.rounds;
    figures.round_tokens += end.stats.round_tokens;
  }
  if (!canary_ || ticket.canary != canary_->number) return;
  Canary& canary = *canary_;
  (ticket.is_candidate ? canary.candidate : canary.present).add(end);
  if (ticket.is_candidate && end.outcome == ReplyOutcome::kDone) ++canary.replies_in_step;
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
  {
    const std::lock_guard lock(mutex_);
    if (canary_) return invalid_argument("a canary is under way: promote it or roll it back first");
  }
  AERIE_ASSIGN_OR_RETURN(const SpeculativeConfig config, parse_speculative_spec(speculate));
  AERIE_ASSIGN_OR_RETURN(const int added, open(config));
  const std::lock_guard lock(mutex_);
  opening_ = false;
  if (canary_) {  // begun by another order meanwhile
    (void)service_.remove_speculation(added);
    return invalid_argument("a canary is under way: promote it or roll it back first");
  }
  Canary& canary = canary_.emplace(Canary());
  canary.number = ++canaries_;
  canary.speculation = added;
  canary.name = name_of(added);
  canary.rule = std::move(rule);
  say(fmt::format("canary {}: for {:.3g} % of the requests that get {}", canary.name,
                  100.0 * canary.rule.steps.front(), name_of(present_)));
  return {};
}

// On success opening_ stays true until what is done with it is known.
Expected<int> Rollout::open(const SpeculativeConfig& config) {
  {
    const std::lock_guard lock(mutex_);
    if (opening_) return invalid_argument("another setting is being opened: try again later");
    opening_ = true;
  }
  // Without the lock, since it takes as long as its files do.
  auto added = service_.add_speculation(config);
  if (!added.ok()) {
    const std::lock_guard lock(mutex_);
    opening_ = false;
  }
  return added;
}

Status Rollout::begin_shadow(const std::string& speculate, double share) {
  if (!(share > 0.0 && share <= 1.0)) return invalid_argument("a share of {}: give 0 to 1", share);
  {
    const std::lock_guard lock(mutex_);
    if (shadow_) return invalid_argument("a setting drafts on paper already: end that first");
  }
  AERIE_ASSIGN_OR_RETURN(SpeculativeConfig config, parse_speculative_spec(speculate));
  // What decides by what was verified would learn from drafts that were never its own.
  if (config.combination == Combination::kAuto) {
    return invalid_argument("auto goes by what is verified: give a method by its name");
  }
  config.open_gate();
  AERIE_ASSIGN_OR_RETURN(const int added, open(config));
  const std::lock_guard lock(mutex_);
  opening_ = false;
  if (shadow_) {
    (void)service_.remove_speculation(added);
    return invalid_argument("a setting drafts on paper already: end that first");
  }
  Shadow& shadow = shadow_.emplace(Shadow());
  shadow.number = ++canaries_;
  shadow.speculation = added;
  shadow.figures.name = name_of(added);
  shadow.figures.share = share;
  say(fmt::format("{} drafts on paper for {:.3g} % of the requests", shadow.figures.name,
                  100.0 * share));
  return {};
}

Status Rollout::end_shadow() {
  const std::lock_guard lock(mutex_);
  if (!shadow_) return not_found("nothing drafts on paper");
  say(fmt::format("{} drafts on paper no more", shadow_->figures.name));
  (void)service_.remove_speculation(shadow_->speculation);
  shadow_.reset();
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
  return canary_ || shadow_ || opening_ || former_;
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
  if (shadow_) out.shadow = shadow_->figures;
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
