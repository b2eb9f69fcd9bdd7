// Floats to every format, for tests: what tensor/quantize.h makes where it can, and for the others
// plain rounding to nearest. Those blocks are valid and come close to the floats, but no effort is
// made to find the best scales.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace aerie::test {

// Requires a multiple of the type's block length and finite values of a magnitude that f16 holds.
std::vector<std::byte> quantize(DType type, std::span<const float> values);

// What quantize() made of the values: the floats that dequantize() gives back.
std::vector<float> quantize_dequantize(DType type, std::span<const float> values);

}  // namespace aerie::test
