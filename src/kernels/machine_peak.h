// What the processor can do at most with the instructions of an Isa: reads of memory and dot
// products with nothing else around them. The caller holds the clock; measurements alone use this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/backend.h"

namespace aerie::kernels {

// The instructions that matrix products are made of.
enum class Dot : uint8_t {
  kInt8,    // products of bytes, summed in 32 bits: what quantised weights take
  kBfloat,  // products of bfloat16, summed in float
  kFloat,   // fused multiply-add
};
inline constexpr int kDotCount = 3;
std::string_view dot_name(Dot dot);  // "int8", "bf16", "f32"

// Whether the processor has it and `isa` may use it. kFloat always.
bool has_dot(Isa isa, Dot dot);

// Ways to do the same, 0 .. count - 1; which is the fastest differs between processors.
int read_variants();
int dot_variants(Dot dot);

// Reads `bytes` bytes (a multiple of 4096) once. What is there must be floats that are not
// subnormal, zeros say. The result depends on all of them, so that none can be left out.
float read_range(Isa isa, int variant, const std::byte* data, int64_t bytes);

// Does `steps` steps (a multiple of 64) of dot products on data that stay in the first cache;
// requires has_dot(). A step has dot_operations() operations, a multiplication and an addition
// counting as two.
float run_dots(Isa isa, Dot dot, int variant, int64_t steps);
int64_t dot_operations(Dot dot, int variant);

}  // namespace aerie::kernels
