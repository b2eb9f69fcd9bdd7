#include "tests/format/gguf/test_quantize_grids.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/grids.h"

namespace aerie::test {
namespace {

constexpr int kIq2Magnitudes[3] = {8, 25, 43};
constexpr int kIq3XxsMagnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int kIq3SMagnitudes[8] = {1, 3, 5, 7, 9, 11, 13, 15};

// What tells the formats apart.
struct GridFormat {
  const int* magnitudes;
  int levels;       // of them
  int together;     // weights of a point
  float unit;       // of d (2 s + 1)
  int scaled;       // weights that share a scale
  bool even_signs;  // of eight signs seven are stored
};

GridFormat format_of(DType type) {
  switch (type) {
    case DType::kIQ2_XXS:
      return {kIq2Magnitudes, 3, 8, 0.125f, 32, true};
    case DType::kIQ2_XS:
      return {kIq2Magnitudes, 3, 8, 0.125f, 16, true};
    case DType::kIQ2_S:
      return {kIq2Magnitudes, 3, 8, 0.125f, 16, false};
    case DType::kIQ3_XXS:
      return {kIq3XxsMagnitudes, 8, 4, 0.25f, 32, true};
    default:
      assert(type == DType::kIQ3_S);
      return {kIq3SMagnitudes, 8, 4, 1.0f, 32, false};
  }
}

// Number of the magnitude that comes nearest to `value` when it is multiplied.
size_t nearest_level(const GridFormat& format, float value, float factor) {
  const auto miss = [&](int magnitude) {
    return std::fabs(value - factor * static_cast<float>(magnitude));
  };
  const int* const end = format.magnitudes + format.levels;
  return static_cast<size_t>(
      std::min_element(format.magnitudes, end, [&](int a, int b) { return miss(a) < miss(b); }) -
      format.magnitudes);
}

float greatest_of(const float* x, int count) {
  float largest = 0.0f;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// Which point is nearest to magnitudes, by the number whose digits they are, the first the lowest.
template <int kBase, typename Grid>
std::vector<uint16_t> nearest_points(const Grid& grid, const int* magnitudes) {
  constexpr size_t kTogether = sizeof(grid[0]);
  size_t numbers = 1;
  for (size_t j = 0; j < kTogether; ++j) numbers *= kBase;
  std::vector<uint16_t> nearest(numbers);
  for (size_t number = 0; number < numbers; ++number) {
    int least = std::numeric_limits<int>::max();
    for (size_t p = 0; p < grid.size(); ++p) {
      int error = 0;
      size_t left = number;
      for (size_t j = 0; j < kTogether; ++j, left /= kBase) {
        const int miss = magnitudes[left % kBase] - magnitudes[grid[p] >> (8 * j) & 255];
        error += miss * miss;
      }
      if (error >= least) continue;
      least = error;
      nearest[number] = static_cast<uint16_t>(p);
    }
  }
  return nearest;
}

const std::vector<uint16_t>& nearest_points(DType type) {
  static const auto xxs = nearest_points<3>(kIq2XxsGrid, kIq2Magnitudes);
  static const auto xs = nearest_points<3>(kIq2XsGrid, kIq2Magnitudes);
  static const auto s = nearest_points<3>(kIq2SGrid, kIq2Magnitudes);
  static const auto three_xxs = nearest_points<8>(kIq3XxsGrid, kIq3XxsMagnitudes);
  static const auto three_s = nearest_points<8>(kIq3SGrid, kIq3SMagnitudes);
  switch (type) {
    case DType::kIQ2_XXS:
      return xxs;
    case DType::kIQ2_XS:
      return xs;
    case DType::kIQ2_S:
      return s;
    case DType::kIQ3_XXS:
      return three_xxs;
    default:
      return three_s;
  }
}

// Signs of eight weights; where their number must be even, that of the least one gives way.
unsigned signs_of(const float* x, bool even) {
  unsigned signs = 0;
  int least = 0;
  for (int i = 0; i < 8; ++i) {
    if (x[i] < 0.0f) signs |= 1u << i;
    if (std::fabs(x[i]) < std::fabs(x[least])) least = i;
  }
  return even && std::popcount(signs) % 2 != 0 ? signs ^ 1u << least : signs;
}

void put(uint8_t* p, unsigned bits) {
  for (; bits != 0; bits >>= 8, ++p) *p = static_cast<uint8_t>(*p | (bits & 255));
}

void put_scale(DType type, uint8_t* block, int i, unsigned scale) {
  switch (type) {
    case DType::kIQ2_XXS:
      return put(block + 2 + 8 * i + 4, scale << 28);
    case DType::kIQ3_XXS:
      return put(block + 66 + 4 * i, scale << 28);
    default: {
      const int at = type == DType::kIQ2_XS ? 66 : type == DType::kIQ2_S ? 74 : 106;
      return put(block + at + i / 2, scale << (i % 2 * 4));
    }
  }
}

// Of the i-th eight weights.
void put_signs(DType type, uint8_t* block, int i, unsigned signs) {
  switch (type) {
    case DType::kIQ2_XXS:
      return put(block + 2 + i / 4 * 8 + 4, (signs & 127) << (i % 4 * 7));
    case DType::kIQ3_XXS:
      return put(block + 66 + i / 4 * 4, (signs & 127) << (i % 4 * 7));
    case DType::kIQ2_XS:
      return put(block + 2 + 2 * i, (signs & 127) << 9);
    default:
      return put(block + (type == DType::kIQ2_S ? 34 : 74) + i, signs);
  }
}

// Of the i-th eight (IQ2) or four (IQ3) weights.
void put_point(DType type, uint8_t* block, int i, unsigned point) {
  switch (type) {
    case DType::kIQ2_XXS:
      return put(block + 2 + i / 4 * 8 + i % 4, point);
    case DType::kIQ2_XS:
      return put(block + 2 + 2 * i, point);
    default:
      break;
  }
  put(block + 2 + i, point & 255);
  if (type == DType::kIQ2_S) put(block + 66 + i / 4, point >> 8 << (i % 4 * 2));
  if (type == DType::kIQ3_S) put(block + 66 + i / 8, point >> 8 << (i % 8));
}

}  // namespace

void quantize_to_grid(DType type, const float* x, uint8_t* block) {
  const GridFormat format = format_of(type);
  const std::vector<uint16_t>& nearest = nearest_points(type);
  const auto top = static_cast<float>(format.magnitudes[format.levels - 1]);
  const uint16_t half = f32_to_f16(greatest_of(x, 256) / top / 31.0f / format.unit);
  put(block, half);
  const float d = f16_to_f32(half) * format.unit;
  for (int at = 0; at < 256; at += format.scaled) {
    const float wanted = greatest_of(x + at, format.scaled) / top;
    const float steps = d > 0.0f ? std::round((wanted / d - 1.0f) / 2.0f) : 0.0f;
    const auto scale = static_cast<unsigned>(std::clamp(steps, 0.0f, 15.0f));
    put_scale(type, block, at / format.scaled, scale);
    const float factor = d * static_cast<float>(2 * scale + 1);
    for (int i = at; i < at + format.scaled; i += format.together) {
      size_t number = 0;
      for (int j = format.together; j-- > 0;) {
        number = number * static_cast<size_t>(format.levels) +
                 nearest_level(format, std::fabs(x[i + j]), factor);
      }
      put_point(type, block, i / format.together, nearest[number]);
    }
  }
  for (int i = 0; i < 256; i += 8) {
    put_signs(type, block, i / 8, signs_of(x + i, format.even_signs));
  }
}

}  // namespace aerie::test
