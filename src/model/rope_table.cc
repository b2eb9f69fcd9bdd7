#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace aerie {
namespace {

// Peng et al. 2023, 2309.00071, section 3.2: the pair that turns `turns` times over the context.
double yarn_pair(const RopeConfig& config, double turns) {
  return config.dimensions * std::log(config.original_context / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(config.base));
}

// How much of pair i is extrapolated rather than interpolated.
double yarn_share(const RopeConfig& config, int i) {
  double low = yarn_pair(config, config.yarn_beta_fast);
  double high = yarn_pair(config, config.yarn_beta_slow);
  if (config.yarn_truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(0.0, low);
  high = std::min(config.dimensions - 1.0, high);
  const double ramp = (i - low) / std::max(0.001, high - low);
  return (1.0 - std::clamp(ramp, 0.0, 1.0)) * config.yarn_extrapolation;
}

}  // namespace

RopeTable::RopeTable(const RopeConfig& config, int max_positions)
    : magnitude_(config.attention_factor) {
  const bool is_long =
      config.scaling == RopeScaling::kLongRope && max_positions > config.original_context;
  const std::vector<float>& factors = is_long ? config.long_factors : config.factors;
  for (int i = 0; i < config.dimensions / 2; ++i) {
    double frequency = std::pow(config.base, -2.0 * i / config.dimensions);
    switch (config.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= config.factor;
        break;
      case RopeScaling::kFactors:
      case RopeScaling::kLongRope:
        frequency /= double{factors[static_cast<size_t>(i)]};
        break;
      case RopeScaling::kYarn: {
        const double share = yarn_share(config, i);
        frequency = frequency * share + frequency / config.factor * (1.0 - share);
        break;
      }
    }
    frequencies_.push_back(frequency);
  }
  if (config.scaling == RopeScaling::kYarn && config.yarn_extrapolation != 0.0) {
    magnitude_ *= 1.0 + 0.1 * std::log(config.factor);
  }
}

void RopeTable::fill(int32_t position, float* cos, float* sin) const {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const double angle = position * frequencies_[i];
    cos[i] = static_cast<float>(std::cos(angle) * magnitude_);
    sin[i] = static_cast<float>(std::sin(angle) * magnitude_);
  }
}

}  // namespace aerie
