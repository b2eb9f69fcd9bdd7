// What speculation can gain, by formula: tokens of a round and the speed-up over plain decoding.
// Pure functions.
#pragma once

#include <span>

namespace aerie::measure {

// Expected tokens of a round that drafts `drafted` >= 0 of them as a chain, each accepted with
// probability `alpha` in [0, 1] if those before it were; the correction or bonus counts:
//   (1 - alpha^(drafted + 1)) / (1 - alpha), and drafted + 1 for alpha = 1.
// Leviathan et al. 2211.17192, section 3.1, equation 1.
double expected_tokens(double alpha, int drafted);

// The same with a probability for each depth, from the root's children down, each given that the
// one before was accepted (n-alpha of EAGLE, 2401.15077, section 4): 1 + a_1 + a_1 a_2 + ...
double expected_tokens(std::span<const double> alpha_by_depth);

// The same for rounds that do not all draft equally deep, as those of lookups do:
// `drafted_share[d]` is the part of the rounds that draft d + 1 tokens or more. With all shares 1
// it is the first one.
double expected_tokens(double alpha, std::span<const double> drafted_share);

// How many times the speed of plain decoding: expected_tokens / (drafted * cost + 1), `cost` >= 0
// being a drafted token's time by a pass's. A pass is taken to cost the same whatever it verifies.
// Leviathan et al. 2211.17192, section 3.3, theorem 3.8.
double speedup(double alpha, int drafted, double cost);

// The number of drafted tokens from 0 to `most` with the greatest speedup(); of equals the
// smallest, so 0 where nothing can be gained (alpha <= cost, corollary 3.9). Section 3.5 there.
int best_drafted(double alpha, double cost, int most);

// Theorem 3.8 without the assumption about passes: a round emits `tokens` and takes `pass_ratio`
// times the pass of one row for its verify pass, and `cost` times it for each drafted token.
double speedup_of_round(double tokens, int drafted, double cost, double pass_ratio);

}  // namespace aerie::measure
