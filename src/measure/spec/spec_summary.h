// From the replies of a speculation benchmark to its figures. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace aerie::measure {

// What one method did for one reply, or for several added up.
struct Tally {
  // Speed, as Generation has it: tokens after the first one and the seconds they took.
  int64_t tokens = 0;
  double seconds = 0;
  double prompt_seconds = 0;
  int64_t rounds = 0;
  int64_t round_tokens = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  // By depth, from the root's children: rounds that proposed so deep, that accepted so deep, and
  // that accepted all before and refused there.
  std::vector<int64_t> proposed_at, accepted_at, refused_at;
  StageTimes times;                    // after the first token
  std::vector<RoundTime> round_times;  // of all rounds

  void add(const Tally& other);
};

Tally tally_of(const Generation& generation);

// Of repetitions of one reply the one that took the median time, prompt included; the faster of two
// in the middle. So a pause of the machine in one of three does not show. Requires one at least.
Tally median_of(std::vector<Tally> repetitions);

// A reply (of one turn), written by every method: methods[0] is plain decoding.
struct Reply {
  int prompt = 0;  // the same for all turns of a prompt
  std::string task;
  bool looped = false;
  std::vector<Tally> methods;
};

// Whether some kLoopTokens tokens in a row come kLoopTimes times; occurrences may overlap.
inline constexpr int kLoopTokens = 20;
inline constexpr int kLoopTimes = 3;
bool is_looped(std::span<const int32_t> tokens);

// kInternal, after `where` naming the first place at which the ids differ and both, unless they are
// the same; of a list that ends, the end differs.
Status check_same_ids(const std::string& where, std::span<const int32_t> plain,
                      std::span<const int32_t> own);

struct Ratio {
  double value = 0;  // 0 where it cannot be told
  // The middle 95 % of a bootstrap over prompts; none of fewer than two prompts.
  std::optional<std::pair<double, double>> interval;
};

struct Figures {
  int replies = 0;
  int looped = 0;
  int64_t tokens = 0;
  double tokens_per_second = 0;
  Ratio speedup;              // tokens/s, to plain decoding's of the same replies
  Ratio speedup_with_prompt;  // the same with the time of the prompts
  // Tokens/s, to those of the fastest of the other methods, plain decoding among them, on the same
  // replies; and which that is. Of plain decoding itself: 1 and 0.
  Ratio to_best_other = {1.0, std::nullopt};
  size_t best_other = 0;
  double mean_accepted_length = 0;
  // What Leviathan et al. (speculation_model.h) expect of `alpha` at the depths that were drafted.
  double expected_length = 0;
  double acceptance_rate = 0;  // accepted of drafted
  double alpha = 0;            // accepted of those that were judged: up to the first refusal
  std::vector<double> per_position_acceptance;  // accepted at a depth over rounds
  // Accepted at a depth over the rounds that accepted all before and had one there.
  std::vector<double> n_alpha;
  int64_t drafted = 0, accepted = 0, wasted = 0;
  StageTimes stages;
  // Over tokens, each having an equal share of its round's time.
  double ms_per_token_p50 = 0, ms_per_token_p99 = 0;
};

// Nodes drafted in a round, in the mean; 0 of no rounds.
double nodes_per_round(const Figures& figures);

// Of `method` over `replies`. The bootstrap draws whole prompts and gives the same for the same
// `seed`.
Figures summarize(std::span<const Reply> replies, size_t method, uint64_t seed);

// The replies of a task; the replies without those that loop. In their order.
std::vector<Reply> of_task(std::span<const Reply> replies, const std::string& task);
std::vector<Reply> without_loops(std::span<const Reply> replies);
// Each once, in the order in which they first appear.
std::vector<std::string> tasks_of(std::span<const Reply> replies);

}  // namespace aerie::measure
