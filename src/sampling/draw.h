// The draw: Gumbel-max with the request's own noise.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/filters.h"
#include "sampling/noise.h"

namespace aerie {

// What scores are made of: score_i = (logit_i - best) / temperature + target_gumbel(key, position,
// i), computed in double.
struct GumbelDraw {
  NoiseKey key;
  uint64_t position = 0;
  float best = 0;  // the largest logit
  double temperature = 1.0;
};

// The token with the largest score among all; ties go to the smaller id. Most tokens are ruled out
// by a bound on their noise that takes no logarithm; the result is that of computing every score.
// Requires best == find_best(logits), temperature > 0.
int32_t gumbel_argmax(std::span<const float> logits, BestToken best, const GumbelDraw& draw);

// The same among the tokens of `keys`, whose order does not matter. Requires at least one.
int32_t gumbel_argmax(std::span<const TokenKey> keys, const GumbelDraw& draw);

struct ScoredToken {
  int32_t id = 0;
  double score = 0.0;
};

// The `count` tokens with the largest scores, best first, ties by the smaller id; fewer if fewer
// are above -infinity. The first is gumbel_argmax(). Overwrites `scratch` and `out`. Requires
// draw.best
// == find_best(logits).logit, count >= 1, temperatures of which float has the inverse.
void gumbel_top(std::span<const float> logits, int count, const GumbelDraw& draw,
                std::vector<TokenKey>& scratch, std::vector<ScoredToken>& out);

// The same among the tokens of `keys`, which it puts into another order.
void gumbel_top(std::span<TokenKey> keys, int count, const GumbelDraw& draw,
                std::vector<ScoredToken>& out);

}  // namespace aerie
