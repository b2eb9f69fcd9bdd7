// What the tests of operations on rows share.
#pragma once

#include "tests/kernels/kernel_testing.h"

namespace aerie::kernels {

struct QuantizedGroup {
  std::span<const float> floats;
  std::span<const int8_t> codes;
  float scale;
  std::span<const int32_t> sums;  // as Activations has them
  std::span<const float> scaled_sums;
};
QuantizedGroup group_of(const Activations& x, size_t g);

void expect_relative(double actual, double expected, double relative, double absolute = 1e-37);

// The codes of `out`, if any, are those that quantize() makes of its floats.
void expect_codes_follow(const Backend& backend, const Activations& out);

// [rows][k], the floats 1.
Activations ones(const Backend& backend, int64_t rows, int64_t k, bool int8);

}  // namespace aerie::kernels
