#include "measure/spec/spec_summary.h"

#include <algorithm>
#include <map>

#include "base/errors.h"
#include "base/philox.h"
#include "measure/spec/speculation_model.h"
#include "measure/statistics.h"

namespace aerie::measure {
namespace {

constexpr uint32_t kResamples = 2000;

void add_to(std::vector<int64_t>& sums, const std::vector<int64_t>& values) {
  sums.resize(std::max(sums.size(), values.size()), 0);
  for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
}

double ratio_of(double above, double below) {
  return below > 0.0 ? above / below : 0.0;
}

// Where a round refused a token: after so many accepted ones comes a correction. A round that a
// limit or an end token cut short, or that was accepted whole, refused nothing.
std::vector<int64_t> refusals(const Generation& generation) {
  std::vector<int64_t> at(generation.stats.proposed_at.size(), 0);
  size_t accepted = 0;
  for (const EmittedToken& token : generation.emitted) {
    if (token.origin == TokenOrigin::kAccepted) {
      ++accepted;
      continue;
    }
    if (token.origin == TokenOrigin::kCorrection && accepted < at.size()) ++at[accepted];
    accepted = 0;
  }
  return at;
}

// What a speed-up over another method, the base, is made of.
struct Pace {
  double tokens = 0, seconds = 0, prompt = 0;
  double base_tokens = 0, base_seconds = 0, base_prompt = 0;

  void add(const Pace& other) {
    tokens += other.tokens;
    seconds += other.seconds;
    prompt += other.prompt;
    base_tokens += other.base_tokens;
    base_seconds += other.base_seconds;
    base_prompt += other.base_prompt;
  }
  double speedup() const {
    return ratio_of(ratio_of(tokens, seconds), ratio_of(base_tokens, base_seconds));
  }
  double speedup_with_prompt() const {
    return ratio_of(ratio_of(tokens, seconds + prompt),
                    ratio_of(base_tokens, base_seconds + base_prompt));
  }
};

std::vector<Pace> pace_by_prompt(std::span<const Reply> replies, size_t method, size_t base) {
  std::map<int, Pace> prompts;
  for (const Reply& reply : replies) {
    const Tally& own = reply.methods[method];
    const Tally& other = reply.methods[base];
    prompts[reply.prompt].add({static_cast<double>(own.tokens), own.seconds, own.prompt_seconds,
                               static_cast<double>(other.tokens), other.seconds,
                               other.prompt_seconds});
  }
  std::vector<Pace> list;
  list.reserve(prompts.size());
  for (const auto& [prompt, pace] : prompts) list.push_back(pace);
  return list;
}

struct Ratios {
  Ratio speedup, with_prompt;
};

// With Efron's percentile interval: prompts are drawn with replacement, as many as there are.
Ratios compare(std::span<const Reply> replies, size_t method, size_t base, uint64_t seed) {
  const std::vector<Pace> prompts = pace_by_prompt(replies, method, base);
  Pace all;
  for (const Pace& pace : prompts) all.add(pace);
  Ratios out;
  out.speedup.value = all.speedup();
  out.with_prompt.value = all.speedup_with_prompt();
  if (prompts.size() < 2) return out;
  std::vector<double> speedups, with_prompt;
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (uint32_t resample = 0; resample < kResamples; ++resample) {
    Pace sum;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const PhiloxBlock random = philox4x32({resample, static_cast<uint32_t>(i), 0, 0}, key);
      sum.add(prompts[static_cast<size_t>(uint64_t{random[0]} * prompts.size() >> 32)]);
    }
    speedups.push_back(sum.speedup());
    with_prompt.push_back(sum.speedup_with_prompt());
  }
  for (const auto& [ratio, values] :
       {std::pair(&out.speedup, &speedups), std::pair(&out.with_prompt, &with_prompt)}) {
    ratio->interval = std::pair(quantile(*values, 0.025), quantile(*values, 0.975));
  }
  return out;
}

void set_speedups(std::span<const Reply> replies, size_t method, uint64_t seed, Figures& out) {
  const Ratios to_plain = compare(replies, method, 0, seed);
  out.speedup = to_plain.speedup;
  out.speedup_with_prompt = to_plain.with_prompt;
  if (method == 0 || replies.empty()) return;
  double most = 0.0;
  for (size_t other = 0; other < replies[0].methods.size(); ++other) {
    if (other == method) continue;
    double tokens = 0.0, seconds = 0.0;
    for (const Reply& reply : replies) {
      tokens += static_cast<double>(reply.methods[other].tokens);
      seconds += reply.methods[other].seconds;
    }
    const double speed = ratio_of(tokens, seconds);
    if (speed <= most) continue;
    most = speed;
    out.best_other = other;
  }
  out.to_best_other = compare(replies, method, out.best_other, seed).speedup;
}

void set_acceptance(const Tally& sum, Figures& out) {
  const auto rounds = static_cast<double>(sum.rounds);
  out.mean_accepted_length = ratio_of(static_cast<double>(sum.round_tokens), rounds);
  out.drafted = sum.drafted;
  out.accepted = sum.accepted;
  out.wasted = sum.drafted - sum.accepted;
  out.acceptance_rate =
      ratio_of(static_cast<double>(sum.accepted), static_cast<double>(sum.drafted));
  double judged = 0;
  std::vector<double> drafted_share;
  for (size_t d = 0; d < sum.proposed_at.size() && sum.proposed_at[d] > 0; ++d) {
    const auto accepted = static_cast<double>(sum.accepted_at[d]);
    const double here = accepted + static_cast<double>(sum.refused_at[d]);
    judged += here;
    out.per_position_acceptance.push_back(ratio_of(accepted, rounds));
    out.n_alpha.push_back(ratio_of(accepted, here));
    drafted_share.push_back(ratio_of(static_cast<double>(sum.proposed_at[d]), rounds));
  }
  out.alpha = ratio_of(static_cast<double>(sum.accepted), judged);
  if (sum.rounds > 0) out.expected_length = expected_tokens(out.alpha, drafted_share);
}

void set_latency(const std::vector<RoundTime>& rounds, Figures& out) {
  std::vector<double> ms;
  for (const RoundTime& round : rounds) {
    const auto tokens = static_cast<size_t>(std::max(round.tokens, 0));
    ms.insert(ms.end(), tokens, 1e3 * round.seconds / std::max(round.tokens, 1));
  }
  out.ms_per_token_p50 = quantile(ms, 0.5);
  out.ms_per_token_p99 = quantile(std::move(ms), 0.99);
}

}  // namespace

void Tally::add(const Tally& other) {
  tokens += other.tokens;
  seconds += other.seconds;
  prompt_seconds += other.prompt_seconds;
  rounds += other.rounds;
  round_tokens += other.round_tokens;
  drafted += other.drafted;
  accepted += other.accepted;
  add_to(proposed_at, other.proposed_at);
  add_to(accepted_at, other.accepted_at);
  add_to(refused_at, other.refused_at);
  for (size_t s = 0; s < times.seconds.size(); ++s) times.seconds[s] += other.times.seconds[s];
  round_times.insert(round_times.end(), other.round_times.begin(), other.round_times.end());
}

Tally tally_of(const Generation& generation) {
  const SequenceStats& stats = generation.stats;
  Tally tally;
  tally.tokens = std::max<int64_t>(0, static_cast<int64_t>(generation.tokens.size()) - 1);
  tally.seconds = generation.generation_seconds;
  tally.prompt_seconds = generation.prompt_seconds;
  tally.rounds = stats.rounds;
  tally.round_tokens = stats.round_tokens;
  tally.drafted = stats.drafted;
  tally.accepted = stats.accepted;
  tally.proposed_at = stats.proposed_at;
  tally.accepted_at = stats.accepted_at;
  tally.refused_at = refusals(generation);
  for (size_t s = 0; s < tally.times.seconds.size(); ++s) {
    tally.times.seconds[s] = generation.times.seconds[s] - generation.prompt_times.seconds[s];
  }
  tally.round_times = generation.rounds;
  return tally;
}

Tally median_of(std::vector<Tally> repetitions) {
  const auto total = [](const Tally& tally) { return tally.prompt_seconds + tally.seconds; };
  const auto middle = repetitions.begin() + static_cast<ptrdiff_t>((repetitions.size() - 1) / 2);
  std::nth_element(repetitions.begin(), middle, repetitions.end(),
                   [&](const Tally& a, const Tally& b) { return total(a) < total(b); });
  return std::move(*middle);
}

bool is_looped(std::span<const int32_t> tokens) {
  std::vector<std::span<const int32_t>> grams;
  for (size_t i = 0; i + kLoopTokens <= tokens.size(); ++i) {
    grams.push_back(tokens.subspan(i, kLoopTokens));
  }
  std::ranges::sort(grams,
                    [](auto a, auto b) { return std::ranges::lexicographical_compare(a, b); });
  constexpr size_t kFurther = kLoopTimes - 1;
  for (size_t i = 0; i + kFurther < grams.size(); ++i) {
    if (std::ranges::equal(grams[i], grams[i + kFurther])) return true;
  }
  return false;
}

Status check_same_ids(const std::string& where, std::span<const int32_t> plain,
                      std::span<const int32_t> own) {
  const auto [in_plain, in_own] = std::mismatch(plain.begin(), plain.end(), own.begin(), own.end());
  if (in_plain == plain.end() && in_own == own.end()) return {};
  const auto id = [](auto at, auto end) {
    return at == end ? std::string("the end") : std::to_string(*at);
  };
  return internal_error(
      "{}: the ids are not plain decoding's: token {} is {} and should be {}; please report it "
      "with the command",
      where, in_plain - plain.begin(), id(in_own, own.end()), id(in_plain, plain.end()));
}

double nodes_per_round(const Figures& figures) {
  if (figures.tokens == 0) return 0.0;
  return static_cast<double>(figures.drafted) * figures.mean_accepted_length /
         static_cast<double>(figures.tokens);
}

Figures summarize(std::span<const Reply> replies, size_t method, uint64_t seed) {
  Figures out;
  Tally sum;
  for (const Reply& reply : replies) {
    ++out.replies;
    if (reply.looped) ++out.looped;
    sum.add(reply.methods[method]);
  }
  out.tokens = sum.tokens;
  out.tokens_per_second = ratio_of(static_cast<double>(sum.tokens), sum.seconds);
  out.stages = sum.times;
  set_speedups(replies, method, seed, out);
  set_acceptance(sum, out);
  set_latency(sum.round_times, out);
  return out;
}

std::vector<Reply> of_task(std::span<const Reply> replies, const std::string& task) {
  std::vector<Reply> out;
  for (const Reply& reply : replies) {
    if (reply.task == task) out.push_back(reply);
  }
  return out;
}

std::vector<Reply> without_loops(std::span<const Reply> replies) {
  std::vector<Reply> out;
  for (const Reply& reply : replies) {
    if (!reply.looped) out.push_back(reply);
  }
  return out;
}

std::vector<std::string> tasks_of(std::span<const Reply> replies) {
  std::vector<std::string> tasks;
  for (const Reply& reply : replies) {
    if (std::ranges::find(tasks, reply.task) == tasks.end()) {
      tasks.push_back(reply.task);
    }
  }
  return tasks;
}

}  // namespace aerie::measure
