// Cosines and sines of rotary embedding (Su et al. 2021, 2104.09864) and the ways in which it is
// stretched beyond the context that a model was trained for.
#pragma once

#include <cstdint>
#include <vector>

namespace aerie {

enum class RopeScaling : uint8_t {
  kNone,
  kLinear,    // positions divided by `factor` (Chen et al. 2023, 2306.15595)
  kYarn,      // Peng et al. 2023, 2309.00071
  kFactors,   // one divisor for each pair of dimensions (Llama 3)
  kLongRope,  // such divisors for short and for long contexts (Ding et al. 2024, 2402.13753)
};

struct RopeConfig {
  int dimensions = 0;  // the first so many dimensions of a head turn; the rest pass
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  int original_context = 0;  // kYarn, kLongRope: the context before stretching
  double yarn_beta_fast = 32.0;
  double yarn_beta_slow = 1.0;
  double yarn_extrapolation = 1.0;
  bool yarn_truncate = true;        // whether the ramp begins and ends at whole pairs
  double attention_factor = 1.0;    // multiplies cosines and sines, on top of what kYarn does
  std::vector<float> factors;       // kFactors, kLongRope (short contexts): dimensions / 2 divisors
  std::vector<float> long_factors;  // kLongRope: the same for contexts beyond original_context
};

class RopeTable {
 public:
  // kLongRope takes the divisors by `max_positions`, the longest sequence that there will be: a
  // key is turned once, when nobody knows yet how long its sequence becomes.
  RopeTable(const RopeConfig& config, int max_positions);

  int pairs() const { return static_cast<int>(frequencies_.size()); }
  // Writes pairs() cosines and sines for a position.
  void fill(int32_t position, float* cos, float* sin) const;

 private:
  std::vector<double> frequencies_;  // radians for each position
  double magnitude_ = 1.0;
};

}  // namespace aerie
