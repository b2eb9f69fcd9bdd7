#include "tests/format/test_quantize.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace aerie::test {
namespace {

void store_u16(uint8_t* p, uint16_t value) {
  p[0] = static_cast<uint8_t>(value);
  p[1] = static_cast<uint8_t>(value >> 8);
}

// Stores the scale and returns what a reader will see.
float store_half(uint8_t* p, float value) {
  const uint16_t half = f32_to_f16(value);
  store_u16(p, half);
  return f16_to_f32(half);
}

// value / scale to the nearest integer in [low, high]; 0 stands for anything over a zero scale.
int nearest(float value, float scale, int low, int high) {
  if (scale == 0.0f) return std::clamp(0, low, high);
  return static_cast<int>(
      std::clamp(std::round(value / scale), static_cast<float>(low), static_cast<float>(high)));
}

float largest_magnitude(const float* x, int count) {
  float largest = 0.0f;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// q4_0 and q5_0: quants around a centre of 2^(bits - 1).
template <int kBits>
void quantize_symmetric(const float* x, uint8_t* block) {
  constexpr int kCentre = 1 << (kBits - 1);
  const float d = store_half(block, largest_magnitude(x, 32) / static_cast<float>(kCentre - 1));
  uint8_t* qs = block + (kBits == 5 ? 6 : 2);
  for (int j = 0; j < 32; ++j) {
    const int q = nearest(x[j], d, -kCentre, kCentre - 1) + kCentre;
    qs[j % 16] = static_cast<uint8_t>(qs[j % 16] | (q & 15) << (j / 16 * 4));
    if (kBits == 5) block[2 + j / 8] = static_cast<uint8_t>(block[2 + j / 8] | (q >> 4) << (j % 8));
  }
}

// q4_1 and q5_1: quants upwards from the minimum.
template <int kBits>
void quantize_affine(const float* x, uint8_t* block) {
  constexpr int kTop = (1 << kBits) - 1;
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float d = store_half(block, (*high - *low) / static_cast<float>(kTop));
  const float m = store_half(block + 2, *low);
  uint8_t* qs = block + (kBits == 5 ? 8 : 4);
  for (int j = 0; j < 32; ++j) {
    const int q = nearest(x[j] - m, d, 0, kTop);
    qs[j % 16] = static_cast<uint8_t>(qs[j % 16] | (q & 15) << (j / 16 * 4));
    if (kBits == 5) block[4 + j / 8] = static_cast<uint8_t>(block[4 + j / 8] | (q >> 4) << (j % 8));
  }
}

void quantize_q8_0(const float* x, uint8_t* block) {
  const float d = store_half(block, largest_magnitude(x, 32) / 127.0f);
  for (int j = 0; j < 32; ++j) block[2 + j] = static_cast<uint8_t>(nearest(x[j], d, -128, 127));
}

void pack_scale_min(uint8_t* packed, int j, int scale, int min) {
  const auto set = [&](int at, int bits) { packed[at] = static_cast<uint8_t>(packed[at] | bits); };
  if (j < 4) {
    set(j, scale);
    set(j + 4, min);
  } else {
    set(j + 4, (scale & 15) | (min & 15) << 4);
    set(j - 4, scale >> 4 << 6);
    set(j, min >> 4 << 6);
  }
}

// q4_k and q5_k: eight sub-blocks, each with a 6-bit scale and a 6-bit (negated) minimum.
template <int kBits>
void quantize_k_affine(const float* x, uint8_t* block) {
  constexpr int kTop = (1 << kBits) - 1;
  std::array<float, 8> scales, mins;
  for (int j = 0; j < 8; ++j) {
    const auto [low, high] = std::minmax_element(x + j * 32, x + j * 32 + 32);
    mins[static_cast<size_t>(j)] = std::max(0.0f, -*low);
    scales[static_cast<size_t>(j)] = (std::max(0.0f, *high) - std::min(0.0f, *low)) / kTop;
  }
  const float d = store_half(block, *std::max_element(scales.begin(), scales.end()) / 63.0f);
  const float dmin = store_half(block + 2, *std::max_element(mins.begin(), mins.end()) / 63.0f);
  for (int j = 0; j < 8; ++j) {
    const int scale = nearest(scales[static_cast<size_t>(j)], d, 0, 63);
    const int min = nearest(mins[static_cast<size_t>(j)], dmin, 0, 63);
    pack_scale_min(block + 4, j, scale, min);
    uint8_t* qs = block + (kBits == 5 ? 48 : 16) + j / 2 * 32;
    for (int l = 0; l < 32; ++l) {
      const float lifted = x[j * 32 + l] + dmin * static_cast<float>(min);
      const int q = nearest(lifted, d * static_cast<float>(scale), 0, kTop);
      qs[l] = static_cast<uint8_t>(qs[l] | (q & 15) << (j % 2 * 4));
      if (kBits == 5) block[16 + l] = static_cast<uint8_t>(block[16 + l] | (q >> 4) << j);
    }
  }
}

void quantize_q6_k(const float* x, uint8_t* block) {
  std::array<float, 16> scales;
  for (int j = 0; j < 16; ++j) {
    scales[static_cast<size_t>(j)] = largest_magnitude(x + j * 16, 16) / 31.0f;
  }
  const float d = store_half(block + 208, *std::max_element(scales.begin(), scales.end()) / 127.0f);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const int scale = nearest(scales[static_cast<size_t>(i / 16)], d, -128, 127);
    block[192 + i / 16] = static_cast<uint8_t>(scale);
    const int q = nearest(x[i], d * static_cast<float>(scale), -32, 31) + 32;
    uint8_t& low = block[half * 64 + quarter % 2 * 32 + l];
    low = static_cast<uint8_t>(low | (q & 15) << (quarter / 2 * 4));
    uint8_t& high = block[128 + half * 32 + l];
    high = static_cast<uint8_t>(high | (q >> 4) << (quarter * 2));
  }
}

void quantize_block(DType type, const float* x, uint8_t* block) {
  switch (type) {
    case DType::kF32:
      std::memcpy(block, x, sizeof(float));
      return;
    case DType::kF16:
      store_u16(block, f32_to_f16(*x));
      return;
    case DType::kBF16:
      store_u16(block, f32_to_bf16(*x));
      return;
    case DType::kQ4_0:
      quantize_symmetric<4>(x, block);
      return;
    case DType::kQ4_1:
      quantize_affine<4>(x, block);
      return;
    case DType::kQ5_0:
      quantize_symmetric<5>(x, block);
      return;
    case DType::kQ5_1:
      quantize_affine<5>(x, block);
      return;
    case DType::kQ8_0:
      quantize_q8_0(x, block);
      return;
    case DType::kQ4_K:
      quantize_k_affine<4>(x, block);
      return;
    case DType::kQ5_K:
      quantize_k_affine<5>(x, block);
      return;
    case DType::kQ6_K:
      quantize_q6_k(x, block);
      return;
  }
}

}  // namespace

std::vector<std::byte> quantize(DType type, std::span<const float> values) {
  const DTypeInfo& info = dtype_info(type);
  const auto step = static_cast<size_t>(info.block_elements);
  assert(values.size() % step == 0);
  std::vector<std::byte> out(values.size() / step * static_cast<size_t>(info.block_bytes));
  auto* block = reinterpret_cast<uint8_t*>(out.data());
  for (size_t i = 0; i < values.size(); i += step, block += info.block_bytes) {
    quantize_block(type, values.data() + i, block);
  }
  return out;
}

std::vector<float> quantize_dequantize(DType type, std::span<const float> values) {
  const std::vector<std::byte> blocks = quantize(type, values);
  std::vector<float> out(values.size());
  dequantize(type, blocks.data(), static_cast<int64_t>(values.size()), out.data());
  return out;
}

}  // namespace aerie::test
