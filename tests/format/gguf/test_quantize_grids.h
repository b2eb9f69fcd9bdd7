// A part of test_quantize.cc: the formats with grids of magnitudes.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace aerie::test {

// 256 floats to a block that is zeroed before: of the points of the grid the nearest each time.
// Requires IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS or IQ3_S.
void quantize_to_grid(DType type, const float* x, uint8_t* block);

}  // namespace aerie::test
