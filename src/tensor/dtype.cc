#include "tensor/dtype.h"

#include <array>
#include <cassert>
#include <cstddef>
#include <cstring>

#include "tensor/blocks.h"

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
    {"q2_k", kSuperBlock, 84},
    {"q3_k", kSuperBlock, 110},
    {"q4_k", kSuperBlock, 144},
    {"q5_k", kSuperBlock, 176},
    {"q6_k", kSuperBlock, 210},
    {"iq4_nl", kSmallBlock, 18},
    {"iq4_xs", kSuperBlock, 136},
    {"mxfp4", kSmallBlock, 17},
    {"iq2_xxs", kSuperBlock, 66},
    {"iq2_xs", kSuperBlock, 74},
    {"iq2_s", kSuperBlock, 82},
    {"iq3_xxs", kSuperBlock, 98},
    {"iq3_s", kSuperBlock, 110},
    {"nvfp4", 64, 36},
}};

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Blocks are packed in files, so fields are fetched byte by byte: no alignment, either endianness.
uint16_t load_u16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

// In the formulas below each product has at most 23 significant bits (11 of an f16 scale, 5 to 8 of
// a sub-scale, 7 to 4 of a number; 8 of a number alone), so it is exact in a float, and only the
// final sum rounds.
void dequantize_group(DType type, const WeightGroup& g, float* out) {
  const float d = (type == DType::kMXFP4 ? bf16_to_f32(g.d) : f16_to_f32(g.d)) * scale_unit(type);
  const float m = f16_to_f32(g.m);
  float numbers[kWeightGroup];
  for (int i = 0; i < kWeightGroup; ++i) {
    const int number = has_code_table(type) ? code_table(type)[g.codes[i]] : g.codes[i];
    numbers[i] = static_cast<float>(number - code_zero(type));
  }
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
      for (int i = 0; i < kWeightGroup; ++i) out[i] = d * numbers[i] + m;
      return;
    case DType::kQ2_K:
      for (int i = 0; i < kWeightGroup; ++i) {
        const float sub_d = d * static_cast<float>(g.sc[i / 16] & 0x0F);
        const float sub_m = m * static_cast<float>(g.sc[i / 16] >> 4);
        out[i] = sub_d * numbers[i] - sub_m;
      }
      return;
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const float sub_d = d * static_cast<float>(g.sc[0]);
      const float sub_m = m * static_cast<float>(g.sc[1]);
      for (int i = 0; i < kWeightGroup; ++i) out[i] = sub_d * numbers[i] - sub_m;
      return;
    }
    case DType::kQ3_K:
    case DType::kQ6_K:
    case DType::kIQ4_XS:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      for (int i = 0; i < kWeightGroup; ++i) {
        const float sub_d = d * static_cast<float>(static_cast<int8_t>(g.sc[i / 16]));
        out[i] = sub_d * numbers[i];
      }
      return;
    case DType::kNVFP4:
      for (int i = 0; i < kWeightGroup; ++i) {
        out[i] = ue4m3_to_f32(g.sc[i / 16]) * scale_unit(type) * numbers[i];
      }
      return;
    default:
      for (int i = 0; i < kWeightGroup; ++i) out[i] = d * numbers[i];
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
  switch (type) {
    case DType::kF32:
      static_assert(std::endian::native == std::endian::little);
      std::memcpy(out, data, static_cast<size_t>(elements) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < elements; ++i) out[i] = f16_to_f32(load_u16(bytes + 2 * i));
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < elements; ++i) out[i] = bf16_to_f32(load_u16(bytes + 2 * i));
      return;
    default:
      for (int64_t group = 0; group < elements / kWeightGroup; ++group) {
        dequantize_group(type, read_weight_group(type, bytes, group), out + group * kWeightGroup);
      }
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

float f8_e4m3_to_f32(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 24;
  const uint32_t magnitude = bits & 0x7F;
  if (magnitude == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000);
  if (magnitude < 8) {  // subnormal, in units of 2^-9
    const float value = static_cast<float>(magnitude) * 0x1.0p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((120u << 3) + magnitude) << 20);
}

}  // namespace aerie
