// Cosines and sines of rotary embedding (Su et al. 2021, 2104.09864) with the scalings of
// RopeConfig.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model_config.h"

namespace aerie {

class RopeTable {
 public:
  explicit RopeTable(const RopeConfig& config);

  int pairs() const { return static_cast<int>(frequencies_.size()); }
  // Writes pairs() cosines and sines for a position.
  void fill(int32_t position, float* cos, float* sin) const;

 private:
  std::vector<double> frequencies_;  // radians for each position
  double magnitude_ = 1.0;
};

}  // namespace aerie
