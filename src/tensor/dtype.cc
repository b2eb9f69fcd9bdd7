#include "tensor/dtype.h"

#include <array>
#include <cassert>
#include <cstddef>
#include <cstring>

namespace aerie {
namespace {

constexpr int kSmallBlock = 32;
constexpr int kSuperBlock = 256;

constexpr std::array<DTypeInfo, kDTypeCount> kInfos = {{
    {"f32", 1, 4},
    {"f16", 1, 2},
    {"bf16", 1, 2},
    {"q4_0", kSmallBlock, 18},
    {"q4_1", kSmallBlock, 20},
    {"q5_0", kSmallBlock, 22},
    {"q5_1", kSmallBlock, 24},
    {"q8_0", kSmallBlock, 34},
    {"q4_k", kSuperBlock, 144},
    {"q5_k", kSuperBlock, 176},
    {"q6_k", kSuperBlock, 210},
}};

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Blocks are packed in files, so fields are fetched byte by byte: no alignment, either endianness.
uint16_t load_u16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

uint32_t load_u32(const uint8_t* p) {
  return load_u16(p) | static_cast<uint32_t>(load_u16(p + 2)) << 16;
}

float load_half(const uint8_t* p) {
  return f16_to_f32(load_u16(p));
}

// In the formulas below each product has at most 23 significant bits (11 of an f16 scale, 8 or
// fewer of a sub-scale, 5 of a quant), so it is exact in a float, and only the final sum rounds.

void dequantize_q4_0(const uint8_t* block, float* out) {
  const float d = load_half(block);
  const uint8_t* qs = block + 2;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((qs[j] & 15) - 8);
    out[j + 16] = d * static_cast<float>((qs[j] >> 4) - 8);
  }
}

void dequantize_q4_1(const uint8_t* block, float* out) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  const uint8_t* qs = block + 4;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(qs[j] & 15) + m;
    out[j + 16] = d * static_cast<float>(qs[j] >> 4) + m;
  }
}

void dequantize_q5_0(const uint8_t* block, float* out) {
  const float d = load_half(block);
  const uint32_t qh = load_u32(block + 2);
  const uint8_t* qs = block + 6;
  for (int j = 0; j < 16; ++j) {
    const int low = (qs[j] & 15) | static_cast<int>(qh >> j & 1) << 4;
    const int high = (qs[j] >> 4) | static_cast<int>(qh >> (j + 16) & 1) << 4;
    out[j] = d * static_cast<float>(low - 16);
    out[j + 16] = d * static_cast<float>(high - 16);
  }
}

void dequantize_q5_1(const uint8_t* block, float* out) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  const uint32_t qh = load_u32(block + 4);
  const uint8_t* qs = block + 8;
  for (int j = 0; j < 16; ++j) {
    const int low = (qs[j] & 15) | static_cast<int>(qh >> j & 1) << 4;
    const int high = (qs[j] >> 4) | static_cast<int>(qh >> (j + 16) & 1) << 4;
    out[j] = d * static_cast<float>(low) + m;
    out[j + 16] = d * static_cast<float>(high) + m;
  }
}

void dequantize_q8_0(const uint8_t* block, float* out) {
  const float d = load_half(block);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(static_cast<int8_t>(block[2 + j]));
}

// The 6-bit scale and minimum of sub-block j of Q4_K and Q5_K: eight pairs in 12 bytes, the last
// four pairs' top two bits in the top bits of the first eight bytes.
struct ScaleMin {
  float scale;
  float min;
};
ScaleMin scale_min(const uint8_t* packed, int j) {
  int scale, min;
  if (j < 4) {
    scale = packed[j] & 63;
    min = packed[j + 4] & 63;
  } else {
    scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    min = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
  }
  return {static_cast<float>(scale), static_cast<float>(min)};
}

void dequantize_q4_k(const uint8_t* block, float* out) {
  const float d = load_half(block);
  const float dmin = load_half(block + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_min(block + 4, j);
    const float sub_d = d * scale;
    const float sub_m = dmin * min;
    const uint8_t* qs = block + 16 + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      out[j * 32 + l] = sub_d * static_cast<float>(qs[l] >> shift & 15) - sub_m;
    }
  }
}

void dequantize_q5_k(const uint8_t* block, float* out) {
  const float d = load_half(block);
  const float dmin = load_half(block + 2);
  const uint8_t* qh = block + 16;
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_min(block + 4, j);
    const float sub_d = d * scale;
    const float sub_m = dmin * min;
    const uint8_t* qs = block + 48 + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      const int q = (qs[l] >> shift & 15) | (qh[l] >> j & 1) << 4;
      out[j * 32 + l] = sub_d * static_cast<float>(q) - sub_m;
    }
  }
}

void dequantize_q6_k(const uint8_t* block, float* out) {
  const float d = load_half(block + 208);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const int nibble = block[half * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
    const int top = block[128 + half * 32 + l] >> (quarter * 2) & 3;
    const auto scale = static_cast<int8_t>(block[192 + i / 16]);
    out[i] = d * static_cast<float>(scale) * static_cast<float>((nibble | top << 4) - 32);
  }
}

template <typename Block>
void for_blocks(DType type, const uint8_t* data, int64_t elements, float* out, const Block& block) {
  const DTypeInfo& info = dtype_info(type);
  for (int64_t i = 0; i < elements; i += info.block_elements) {
    block(data, out + i);
    data += info.block_bytes;
  }
}

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  assert(static_cast<size_t>(type) < kInfos.size());
  return kInfos[static_cast<size_t>(type)];
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    const std::string_view candidate = kInfos[i].name;
    bool same = candidate.size() == name.size();
    for (size_t c = 0; same && c < name.size(); ++c) same = lower(name[c]) == candidate[c];
    if (same) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int64_t dtype_bytes(DType type, int64_t elements) {
  const DTypeInfo& info = dtype_info(type);
  assert(elements % info.block_elements == 0);
  return elements / info.block_elements * info.block_bytes;
}

void dequantize(DType type, const void* data, int64_t elements, float* out) {
  assert(elements % dtype_info(type).block_elements == 0);
  if (elements <= 0) return;
  const auto* bytes = static_cast<const uint8_t*>(data);
  const auto blocks = [&](const auto& block) { for_blocks(type, bytes, elements, out, block); };
  switch (type) {
    case DType::kF32:
      static_assert(std::endian::native == std::endian::little);
      std::memcpy(out, data, static_cast<size_t>(elements) * sizeof(float));
      return;
    case DType::kF16:
      return blocks([](const uint8_t* p, float* o) { *o = load_half(p); });
    case DType::kBF16:
      return blocks([](const uint8_t* p, float* o) { *o = bf16_to_f32(load_u16(p)); });
    case DType::kQ4_0:
      return blocks(dequantize_q4_0);
    case DType::kQ4_1:
      return blocks(dequantize_q4_1);
    case DType::kQ5_0:
      return blocks(dequantize_q5_0);
    case DType::kQ5_1:
      return blocks(dequantize_q5_1);
    case DType::kQ8_0:
      return blocks(dequantize_q8_0);
    case DType::kQ4_K:
      return blocks(dequantize_q4_k);
    case DType::kQ5_K:
      return blocks(dequantize_q5_k);
    case DType::kQ6_K:
      return blocks(dequantize_q6_k);
  }
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31;
  const uint32_t mantissa = bits & 0x3FF;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    // A signalling NaN becomes quiet, as in IEEE 754's conversion and in hardware.
    const uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7F800000 | quiet | mantissa << 13);
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t half;
  if (magnitude > 0x7F800000) {
    half = 0x7E00 | (magnitude >> 13 & 0x3FF);
  } else if (magnitude >= 0x477FF000) {  // 65520 and above round to infinity
    half = 0x7C00;
  } else if (magnitude < 0x33000000) {  // below 2^-25, half of the smallest subnormal
    half = 0;
  } else if (magnitude < 0x38800000) {  // below 2^-14: a subnormal, in units of 2^-24
    const uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000;
    const uint32_t shift = 126 - (magnitude >> 23);
    const uint32_t rest = mantissa & ((1u << shift) - 1);
    const uint32_t tie = 1u << (shift - 1);
    half = mantissa >> shift;
    if (rest > tie || (rest == tie && (half & 1) != 0)) ++half;
  } else {
    const uint32_t rebiased = magnitude - 0x38000000;
    half = (rebiased + 0xFFF + (rebiased >> 13 & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace aerie
