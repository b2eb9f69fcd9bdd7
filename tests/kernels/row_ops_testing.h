// What the tests of operations on rows share.
#pragma once

#include <array>

#include "tests/kernels/kernel_testing.h"

namespace aerie::kernels {

struct QuantizedGroup {
  std::span<const float> floats;
  std::array<int8_t, 32> codes;
  float scale;
  std::array<int32_t, 3> sums;  // as RowCodes has them
  std::array<float, 3> scaled_sums;
};
QuantizedGroup group_of(const Activations& x, size_t g);

void expect_relative(double actual, double expected, double relative, double absolute = 1e-37);

// The codes of `out`, if any, are those that quantize() makes of its floats.
void expect_codes_follow(const Backend& backend, const Activations& out);

// [rows][k], the floats 1.
Activations ones(const Backend& backend, int64_t rows, int64_t k, bool int8);

}  // namespace aerie::kernels
