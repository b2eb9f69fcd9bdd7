// Element types: plain floats and ggml's block-quantised formats, as they lie in files.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace aerie {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kNVFP4,
};
inline constexpr int kDTypeCount = 22;

// `block_elements` consecutive elements of a row are stored in `block_bytes` bytes.
struct DTypeInfo {
  std::string_view name;  // "q4_1", as ggml spells it, in lower case
  int block_elements;
  int block_bytes;
};
const DTypeInfo& dtype_info(DType type);

// Case-insensitive inverse of dtype_info().name.
std::optional<DType> dtype_from_name(std::string_view name);

// Bytes of `elements` elements. Requires a multiple of the block length.
int64_t dtype_bytes(DType type, int64_t elements);

// Writes `elements` floats to `out` from the blocks at `data` (no alignment needed). Every value is
// the exact one that the format defines, rounded once to float. Requires a multiple of the block.
void dequantize(DType type, const void* data, int64_t elements, float* out);

// IEEE 754 binary16 and bfloat16, round to nearest even; infinities and NaN are kept.
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
inline uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  const uint32_t quiet = bits >> 16 | 0x40;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

// The 8-bit floats of the OCP's specification (OFP8 1.0), as Hugging Face checkpoints have them.
// E4M3 has no infinities: 0x7F and 0xFF are NaN, 448 is the largest. E5M2 is binary16 without its
// last eight bits.
float f8_e4m3_to_f32(uint8_t bits);
inline float f8_e5m2_to_f32(uint8_t bits) {
  return f16_to_f32(static_cast<uint16_t>(bits << 8));
}

}  // namespace aerie
