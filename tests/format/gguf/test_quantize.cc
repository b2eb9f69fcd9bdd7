#include "tests/format/gguf/test_quantize.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "tensor/blocks.h"
#include "tensor/quantize.h"
#include "tests/format/gguf/test_quantize_grids.h"

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

// Sixteen sub-blocks, each with a 4-bit scale and a 4-bit (negated) minimum.
void quantize_q2_k(const float* x, uint8_t* block) {
  std::array<float, 16> scales, mins;
  for (size_t j = 0; j < 16; ++j) {
    const auto [low, high] = std::minmax_element(x + j * 16, x + j * 16 + 16);
    mins[j] = std::max(0.0f, -*low);
    scales[j] = (std::max(0.0f, *high) - std::min(0.0f, *low)) / 3.0f;
  }
  const float d = store_half(block + 80, *std::max_element(scales.begin(), scales.end()) / 15.0f);
  const float dmin = store_half(block + 82, *std::max_element(mins.begin(), mins.end()) / 15.0f);
  for (size_t i = 0; i < 256; ++i) {
    const int scale = nearest(scales[i / 16], d, 0, 15), min = nearest(mins[i / 16], dmin, 0, 15);
    block[i / 16] = static_cast<uint8_t>(scale | min << 4);
    const float lifted = x[i] + dmin * static_cast<float>(min);
    const int q = nearest(lifted, d * static_cast<float>(scale), 0, 3);
    uint8_t& four = block[16 + i / 128 * 32 + i % 32];
    four = static_cast<uint8_t>(four | q << (i % 128 / 32 * 2));
  }
}

// Sixteen sub-blocks, each with a signed 6-bit scale.
void quantize_q3_k(const float* x, uint8_t* block) {
  std::array<float, 16> scales;
  for (size_t j = 0; j < 16; ++j) scales[j] = largest_magnitude(x + j * 16, 16) / 3.5f;
  const float d = store_half(block + 108, *std::max_element(scales.begin(), scales.end()) / 31.0f);
  for (size_t j = 0; j < 16; ++j) {
    const int scale = nearest(scales[j], d, -32, 31) + 32;
    uint8_t& low = block[96 + j % 8];
    low = static_cast<uint8_t>(low | (scale & 15) << (j / 8 * 4));
    uint8_t& high = block[104 + j % 4];
    high = static_cast<uint8_t>(high | scale >> 4 << (j / 4 * 2));
    for (size_t i = 16 * j; i < 16 * j + 16; ++i) {
      const int q = nearest(x[i], d * static_cast<float>(scale - 32), -4, 3) + 4;
      block[i % 32] = static_cast<uint8_t>(block[i % 32] | (q >> 2) << (i / 32));
      uint8_t& four = block[32 + i / 128 * 32 + i % 32];
      four = static_cast<uint8_t>(four | (q & 3) << (i % 128 / 32 * 2));
    }
  }
}

// Codes of a group of 32, low nibbles first: of the 16 numbers the nearest.
void quantize_by_table(DType type, const float* x, float d, uint8_t* qs) {
  const std::span<const uint8_t> table(code_table(type), 16);
  for (int j = 0; j < 32; ++j) {
    const auto error = [&](uint8_t number) {
      return std::fabs(d * static_cast<float>(number - code_zero(type)) - x[j]);
    };
    const auto best = std::min_element(table.begin(), table.end(),
                                       [&](uint8_t a, uint8_t b) { return error(a) < error(b); });
    qs[j % 16] = static_cast<uint8_t>(qs[j % 16] | (best - table.begin()) << (j / 16 * 4));
  }
}

void quantize_iq4_nl(const float* x, uint8_t* block) {
  quantize_by_table(DType::kIQ4_NL, x, store_half(block, largest_magnitude(x, 32) / 127.0f),
                    block + 2);
}

// Eight sub-blocks, each with a signed 6-bit scale.
void quantize_iq4_xs(const float* x, uint8_t* block) {
  const float d = store_half(block, largest_magnitude(x, 256) / 127.0f / 31.0f);
  for (int j = 0; j < 8; ++j) {
    const int scale = nearest(largest_magnitude(x + 32 * j, 32) / 127.0f, d, -32, 31) + 32;
    block[2 + j / 4] = static_cast<uint8_t>(block[2 + j / 4] | scale >> 4 << (j % 4 * 2));
    block[4 + j / 2] = static_cast<uint8_t>(block[4 + j / 2] | (scale & 15) << (j % 2 * 4));
    quantize_by_table(DType::kIQ4_XS, x + 32 * j, d * static_cast<float>(scale - 32),
                      block + 8 + 16 * j);
  }
}

// The power of two that puts the largest value, which may be clipped, between the codes 4 and 6.
void quantize_mxfp4(const float* x, uint8_t* block) {
  const float largest = largest_magnitude(x, 32);
  const int exponent = largest > 0.0f ? std::ilogb(largest) - 2 : -127;
  block[0] = static_cast<uint8_t>(std::clamp(exponent + 127, 0, 254));
  quantize_by_table(DType::kMXFP4, x, std::ldexp(0.5f, exponent), block + 1);
}

// Of the scales that do not clip the largest value the least.
uint8_t scale_of_e4m3(float largest) {
  uint8_t scale = 0;
  while (scale < 0x7E && 6.0f * f8_e4m3_to_f32(scale) < largest) ++scale;
  return scale;
}

// Four scales, then for each 16 values their low nibbles and their high ones.
void quantize_nvfp4(const float* x, uint8_t* block) {
  for (int s = 0; s < 4; ++s, x += 16) {
    block[s] = scale_of_e4m3(largest_magnitude(x, 16));
    float values[32] = {};
    std::copy_n(x, 8, values);
    std::copy_n(x + 8, 8, values + 16);
    uint8_t pairs[16] = {};
    quantize_by_table(DType::kNVFP4, values, f8_e4m3_to_f32(block[s]) * 0.5f, pairs);
    std::copy_n(pairs, 8, block + 4 + 8 * s);
  }
}

void quantize_block(DType type, const float* x, uint8_t* block) {
  switch (type) {
    case DType::kQ2_K:
      return quantize_q2_k(x, block);
    case DType::kQ3_K:
      return quantize_q3_k(x, block);
    case DType::kQ4_K:
      return quantize_k_affine<4>(x, block);
    case DType::kQ5_K:
      return quantize_k_affine<5>(x, block);
    case DType::kQ6_K:
      return quantize_q6_k(x, block);
    case DType::kIQ4_NL:
      return quantize_iq4_nl(x, block);
    case DType::kIQ4_XS:
      return quantize_iq4_xs(x, block);
    case DType::kMXFP4:
      return quantize_mxfp4(x, block);
    case DType::kNVFP4:
      return quantize_nvfp4(x, block);
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return quantize_to_grid(type, x, block);
    default:
      return aerie::quantize(type, x, dtype_info(type).block_elements, block);
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
