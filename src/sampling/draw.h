// The draw: Gumbel-max with the request's own noise.
#pragma once

#include <cstdint>
#include <span>

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

}  // namespace aerie
