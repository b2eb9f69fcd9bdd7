// Floats to the formats that weights are converted to at load, block for block as ggml's reference
// quantisers (quantize_row_*_ref) write them.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace aerie {

// F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0.
bool can_quantize(DType type);
std::string quantizable_types();  // "f32, f16, ..."

// The first element that the type cannot hold: NaN, infinite, or so large that the element or its
// block's scale would become infinite. -1 if there is none. Requires can_quantize(type).
int64_t find_unquantizable(DType type, const float* in, int64_t elements);

// Writes dtype_bytes(type, elements) bytes to `out` (no alignment needed). Requires
// can_quantize(type) and a multiple of the block. Of elements that find_unquantizable() would name,
// floats keep infinities and NaN, and the blocks come out as something without a meaning. Safe to
// call from several threads, for different rows of a tensor say; one thread makes some 10^9
// elements in a few seconds.
//
// A block whose values are so small (below 2^-121) that ggml's own arithmetic divides by zero
// becomes zeros.
void quantize(DType type, const float* in, int64_t elements, void* out);

}  // namespace aerie
