#include "tensor/quantize.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

namespace aerie {
namespace {

constexpr int kBlock = 32;
constexpr int32_t kMagnitude = 0x7FFFFFFF;
constexpr float kLargestHalf = 65504.0f;

void write_u16(uint8_t* p, uint16_t value) {
  p[0] = static_cast<uint8_t>(value);
  p[1] = static_cast<uint8_t>(value >> 8);
}

// Magnitudes are ordered as their bits are, and compilers vectorise a maximum of integers.
float largest_magnitude(const float* x) {
  int32_t largest = 0;
  for (int i = 0; i < kBlock; ++i) {
    largest = std::max(largest, std::bit_cast<int32_t>(x[i]) & kMagnitude);
  }
  return std::bit_cast<float>(largest);
}

// 1 / d, or 0 where that is infinite.
float inverse(float d) {
  const float inverted = d != 0.0f ? 1.0f / d : 0.0f;
  return std::fabs(inverted) <= 0x1.FFFFFEp127f ? inverted : 0.0f;
}

// Truncates to a code in [0, top]; NaN becomes 0.
uint8_t truncate(float x, float top) {
  return static_cast<uint8_t>(static_cast<int>(std::min(std::max(0.0f, x), top)));
}

// Low nibbles hold the first half of a block, high nibbles the second; a fifth bit lies in `qh`,
// in the order of the elements.
template <int kBits>
void write_codes(const uint8_t* codes, uint8_t* qh, uint8_t* qs) {
  for (int j = 0; j < kBlock / 2; ++j) {
    qs[j] = static_cast<uint8_t>((codes[j] & 0x0F) | codes[j + 16] << 4);
  }
  if constexpr (kBits == 5) {
    uint32_t high = 0;
    for (int j = 0; j < kBlock; ++j) high |= static_cast<uint32_t>(codes[j] >> 4) << j;
    for (int j = 0; j < 4; ++j) qh[j] = static_cast<uint8_t>(high >> (8 * j));
  }
}

// Q4_0 and Q5_0: the value of the largest magnitude, whatever its sign, becomes code 0, the one
// code whose magnitude is not matched on the other side.
template <int kBits>
void quantize_symmetric(const float* x, uint8_t* block) {
  constexpr int kCentre = 1 << (kBits - 1);
  const float largest = largest_magnitude(x);
  float extreme = 0.0f;  // not -0, which would give the scale of a block of zeros its sign
  if (largest > 0.0f) {
    extreme = *std::find_if(x, x + kBlock - 1, [&](float v) { return std::fabs(v) == largest; });
  }
  const float d = extreme / static_cast<float>(-kCentre);
  const float inverse_d = inverse(d);
  uint8_t codes[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    const float code = x[i] * inverse_d + (static_cast<float>(kCentre) + 0.5f);
    codes[i] = truncate(code, static_cast<float>(2 * kCentre - 1));
  }
  write_u16(block, f32_to_f16(d));
  write_codes<kBits>(codes, block + 2, block + (kBits == 5 ? 6 : 2));
}

// Q4_1 and Q5_1: codes upwards from the minimum.
template <int kBits>
void quantize_affine(const float* x, uint8_t* block) {
  constexpr auto kTop = static_cast<float>((1 << kBits) - 1);
  float low = x[0], high = x[0];
  for (int i = 1; i < kBlock; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  const float d = (high - low) / kTop;
  const float inverse_d = inverse(d);
  uint8_t codes[kBlock];
  for (int i = 0; i < kBlock; ++i) codes[i] = truncate((x[i] - low) * inverse_d + 0.5f, kTop);
  write_u16(block, f32_to_f16(d));
  write_u16(block + 2, f32_to_f16(low));
  write_codes<kBits>(codes, block + 4, block + (kBits == 5 ? 8 : 4));
}

void quantize_q8_0(const float* x, uint8_t* block) {
  constexpr auto kLargestCode = std::bit_cast<int32_t>(127.0f);
  const float d = largest_magnitude(x) / 127.0f;
  const float inverse_d = inverse(d);
  int32_t codes[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    // To nearest, halves away from zero: what std::round does, but in a form that vectorises.
    const auto bits = std::bit_cast<int32_t>(x[i] * inverse_d);
    const auto magnitude = std::bit_cast<float>(std::min(bits & kMagnitude, kLargestCode));
    const int32_t code = (static_cast<int32_t>(2.0f * magnitude) + 1) >> 1;
    const int32_t sign = bits >> 31;
    codes[i] = (code ^ sign) - sign;
  }
  write_u16(block, f32_to_f16(d));
  for (int i = 0; i < kBlock; ++i) block[2 + i] = static_cast<uint8_t>(codes[i]);
}

using QuantizeBlock = void (*)(const float* x, uint8_t* block);

QuantizeBlock block_quantizer(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return quantize_symmetric<4>;
    case DType::kQ4_1:
      return quantize_affine<4>;
    case DType::kQ5_0:
      return quantize_symmetric<5>;
    case DType::kQ5_1:
      return quantize_affine<5>;
    case DType::kQ8_0:
      return quantize_q8_0;
    default:
      return nullptr;
  }
}

// The largest float that neither becomes infinite itself nor makes a scale or minimum so.
float largest_quantizable(DType type) {
  switch (type) {
    case DType::kF16:
      return 0x1.FFDFFEp15f;  // the float below 65520
    case DType::kBF16:
      return 0x1.FEFFFEp127f;  // the float below the middle between bfloat16's largest and 2^128
    case DType::kQ4_0:
      return kLargestHalf * 8.0f;
    case DType::kQ5_0:
      return kLargestHalf * 16.0f;
    case DType::kQ4_1:
    case DType::kQ5_1:
      return kLargestHalf;
    case DType::kQ8_0:
      return kLargestHalf * 127.0f;
    default:
      return 0x1.FFFFFEp127f;
  }
}

}  // namespace

bool can_quantize(DType type) {
  return dtype_info(type).block_elements == 1 || block_quantizer(type) != nullptr;
}

std::string quantizable_types() {
  std::string known;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    if (!can_quantize(type)) continue;
    if (!known.empty()) known += ", ";
    known += dtype_info(type).name;
  }
  return known;
}

int64_t find_unquantizable(DType type, const float* in, int64_t elements) {
  constexpr int64_t kStep = 1024;
  const auto limit = std::bit_cast<int32_t>(largest_quantizable(type));
  for (int64_t begin = 0; begin < elements; begin += kStep) {
    const int64_t end = std::min(begin + kStep, elements);
    int32_t largest = 0;
    for (int64_t i = begin; i < end; ++i) {
      largest = std::max(largest, std::bit_cast<int32_t>(in[i]) & kMagnitude);
    }
    if (largest <= limit) continue;
    for (int64_t i = begin; i < end; ++i) {
      if ((std::bit_cast<int32_t>(in[i]) & kMagnitude) > limit) return i;
    }
  }
  return -1;
}

void quantize(DType type, const float* in, int64_t elements, void* out) {
  assert(can_quantize(type));
  const DTypeInfo& info = dtype_info(type);
  assert(elements % info.block_elements == 0);
  auto* bytes = static_cast<uint8_t*>(out);
  if (elements <= 0) return;
  switch (type) {
    case DType::kF32:
      static_assert(std::endian::native == std::endian::little);
      std::memcpy(out, in, static_cast<size_t>(elements) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < elements; ++i) write_u16(bytes + 2 * i, f32_to_f16(in[i]));
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < elements; ++i) write_u16(bytes + 2 * i, f32_to_bf16(in[i]));
      return;
    default:
      break;
  }
  const QuantizeBlock quantize_block = block_quantizer(type);
  for (int64_t i = 0; i < elements; i += kBlock, bytes += info.block_bytes) {
    quantize_block(in + i, bytes);
  }
}

}  // namespace aerie
