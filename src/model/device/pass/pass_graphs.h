// Passes of few rows as graphs: what is launched for one shape of pass is written down the first
// time and started whole from then on.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/found_tokens.h"
#include "kernels/device/device.h"
#include "model/device/pass/pass_input.h"

namespace aerie {

// All that decides what is launched for a pass. How many rows there are of each kind the kernels
// read from the device's memory: a shape is for as many and for fewer.
struct PassShape {
  PassSizes sizes;
  std::vector<PassSizes> levels;  // behind it (PassLevel)
  int first_layer = 0, end_layer = 0;
  std::vector<int32_t> taps, skipped;
  FoundTokens::Place found;  // of a pass with tokens that are found before it; none: {}

  // Sizes become powers of two, or what the limits are, so that there are few shapes.
  void round_up(const PassLimits& limits);
  auto operator<=>(const PassShape&) const = default;
};

class PassGraphs {
 public:
  explicit PassGraphs(device::Device& device) : device_(device) {}
  ~PassGraphs() { clear(); }
  PassGraphs(const PassGraphs&) = delete;
  PassGraphs& operator=(const PassGraphs&) = delete;

  // Does what `launch` puts on the stream, for the shape and the cache of this number.
  void run(const PassShape& shape, int cache, const std::function<void()>& launch);
  void clear();

 private:
  static constexpr size_t kMost = 64;  // then all are made anew

  device::Device& device_;
  std::map<std::pair<PassShape, int>, device::Graph*> graphs_;
};

}  // namespace aerie
