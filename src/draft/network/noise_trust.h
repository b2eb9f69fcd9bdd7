// What a drafter's logits and the target's own noise say together about the token that the target
// will draw.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace aerie {

// The target draws the token of the largest log p_i + g_i (sampling/noise.h), and a drafter knows
// g_i, but of log p_i only its own x_i. How far these are off differs from drafter to drafter, so
// it is learned: of the tokens that are looked at, token i is the one with a probability
// proportional to exp(a x_i + w g_i). The less a drafter knows, the smaller is w; one that is
// always right comes to a = w, as large as can be. They are fit to what has been seen (multinomial
// logistic regression with a >= w, what is older counting less) by a step of Newton's method for
// each token. Not thread-safe.
class NoiseTrust {
 public:
  // By how much a drafter's logits (over the temperature) are multiplied before the noise is added.
  // At least 1: what is off in them hits unlikely tokens hardest, of which there are many. A
  // drafter that has not been wrong yet is taken at its word.
  double sharpness() const { return has_erred_ ? logit_ / noise_ : 1.0; }
  // Likeliness of a token whose score, sharpness() x_i + g_i, is so much below another's.
  double odds(double behind) const { return std::exp(-noise_ * behind); }

  struct Seen {
    double logit = 0.0;  // x_i, up to a term that all have
    double noise = 0.0;  // g_i
  };
  // Of some tokens, of which the first was thought to be the likeliest, the target drew this one,
  // or (tokens.size()) none.
  void learn(std::span<const Seen> tokens, size_t drawn) {
    has_erred_ = has_erred_ || drawn > 0;
    if (drawn >= tokens.size()) return;
    // Temperatures near 0 put logits at -infinity, of which two are alike.
    const auto ahead = [](double of_one, double of_other) {
      return of_one == of_other ? 0.0 : std::clamp(of_one - of_other, -kFarthest, kFarthest);
    };
    double total = 0.0, x = 0.0, g = 0.0, xx = 0.0, xg = 0.0, gg = 0.0;
    for (const Seen& token : tokens) {
      const double by_logit = ahead(token.logit, tokens[drawn].logit);
      const double by_noise = ahead(token.noise, tokens[drawn].noise);
      const double weight = std::exp(logit_ * by_logit + noise_ * by_noise);
      total += weight;
      x += weight * by_logit;
      g += weight * by_noise;
      xx += weight * by_logit * by_logit;
      xg += weight * by_logit * by_noise;
      gg += weight * by_noise * by_noise;
    }
    x /= total;
    g /= total;
    keep(xx_, xx / total - x * x, kBelief);
    keep(gg_, gg / total - g * g, kBelief);
    keep(xg_, xg / total - x * g, 0.0);
    const double determinant = xx_ * gg_ - xg_ * xg_;
    logit_ -= (gg_ * x - xg_ * g) / determinant;
    noise_ -= (xx_ * g - xg_ * x) / determinant;
    noise_ = std::clamp(noise_, kLeast, kMost);
    logit_ = std::clamp(logit_, noise_, kMost);
  }

 private:
  static constexpr double kBelief = 20.0;  // information that the first values are worth
  static constexpr double kForget = 1.0 / 1000.0;
  static constexpr double kLeast = 0.1, kMost = 8.0;
  static constexpr double kFarthest = 20.0;  // what is further ahead is as good as certain

  static void keep(double& information, double seen, double least) {
    information += seen + kForget * (least - information);
  }

  bool has_erred_ = false;
  double logit_ = 1.15, noise_ = 0.95;  // a and w
  double xx_ = kBelief, xg_ = 0.0, gg_ = kBelief;
};

}  // namespace aerie
