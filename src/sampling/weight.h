// The exponential that turns logits into probabilities: plain multiplications and additions, so the
// same bits on every machine and in every loop, vectorised or not.
#pragma once

#include <span>

namespace aerie {

// exp(x) within 1.5 ulp for x <= 0; 0 below -708 (where doubles lose precision), for -infinity and
// for NaN.
double exp_nonpositive(double x);

// The exponent of a token's weight relative to the likeliest token's: <= 0, or NaN for NaN.
// Shifting before dividing keeps tiny temperatures from overflowing. Requires best finite, logit <=
// best or NaN, temperature > 0.
inline double scaled_logit(float logit, float best, double temperature) {
  return (static_cast<double>(logit) - static_cast<double>(best)) / temperature;
}

// Sum of exp_nonpositive(scaled_logit(..)) over all logits, in one order that depends on their
// number only.
double sum_weights(std::span<const float> logits, float best, double temperature);

}  // namespace aerie
