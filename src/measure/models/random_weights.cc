#include "measure/models/random_weights.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <vector>

namespace aerie::measure {
namespace {

// splitmix64 (Steele, Lea & Flood 2014).
class Bits {
 public:
  // Each number goes through the mixer, so that near seeds give sequences that are far apart.
  explicit Bits(const RowSeed& seed) {
    for (const uint64_t part : {seed.model, seed.tensor, seed.row}) state_ = next() ^ part;
    state_ = next();
  }
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }

 private:
  uint64_t state_ = 0;
};

// The sum of four uniform numbers: nearly normal, and cheap enough for billions.
float next_normal(Bits& bits) {
  const uint64_t word = bits.next();
  int32_t sum = -2 * 0xFFFF;
  for (int i = 0; i < 4; ++i) sum += static_cast<int32_t>(word >> (16 * i) & 0xFFFF);
  constexpr double kDeviation = 65536.0 * 0.57735026918962576;  // sqrt(4 / 12) of 2^16
  return static_cast<float>(sum / kDeviation * kWeightDeviation);
}

// Where a block keeps its scale and its minimum (binary16), and the minimum that makes the mean 0.
struct BlockScales {
  size_t scale = 0;
  size_t minimum = 0;
  double ratio = 0.0;  // minimum / scale; 0: no minimum
};

BlockScales block_scales(DType type) {
  switch (type) {
    case DType::kQ4_1:
      return {0, 2, -7.5};
    case DType::kQ5_1:
      return {0, 2, -15.5};
    case DType::kQ2_K:
      return {80, 82, 1.5};
    case DType::kQ3_K:
      return {108};
    case DType::kQ4_K:
      return {0, 2, 7.5};
    case DType::kQ5_K:
      return {0, 2, 15.5};
    case DType::kQ6_K:
      return {208};
    default:
      return {0};
  }
}

void put_half(uint8_t* at, double value) {
  const uint16_t half = f32_to_f16(static_cast<float>(value));
  at[0] = static_cast<uint8_t>(half);
  at[1] = static_cast<uint8_t>(half >> 8);
}

// The scale that is nearest; they ascend.
uint8_t near_e4m3(double value) {
  const auto miss = [&](int bits) {
    return std::abs(static_cast<double>(f8_e4m3_to_f32(static_cast<uint8_t>(bits))) - value);
  };
  int bits = 1;
  while (bits < 0x7E && miss(bits + 1) < miss(bits)) ++bits;
  return static_cast<uint8_t>(bits);
}

constexpr int64_t kCalibrationElements = 1 << 17;
// Far from both ends of binary16 in every type.
constexpr double kCalibrationScale = 0x1p-8;

}  // namespace

RandomWeights::RandomWeights(DType type) : type_(type) {
  const DTypeInfo& info = dtype_info(type);
  if (info.block_elements == 1) return;
  std::vector<uint8_t> blocks(static_cast<size_t>(dtype_bytes(type, kCalibrationElements)));
  fill_blocks({}, kCalibrationElements / info.block_elements, kCalibrationScale, blocks.data());
  std::vector<float> values(kCalibrationElements);
  dequantize(type, blocks.data(), kCalibrationElements, values.data());
  double squares = 0.0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  const double deviation = std::sqrt(squares / static_cast<double>(kCalibrationElements));
  scale_ = kCalibrationScale * kWeightDeviation / deviation;
}

void RandomWeights::fill(const RowSeed& seed, int64_t elements, std::byte* out) const {
  const DTypeInfo& info = dtype_info(type_);
  assert(elements % info.block_elements == 0);
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  if (info.block_elements > 1) {
    fill_blocks(seed, elements / info.block_elements, scale_, bytes);
    return;
  }
  Bits bits(seed);
  for (int64_t i = 0; i < elements; ++i, bytes += info.block_bytes) {
    const float value = next_normal(bits);
    if (type_ == DType::kF32) {
      std::memcpy(bytes, &value, sizeof(value));
    } else {
      const uint16_t word = type_ == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      std::memcpy(bytes, &word, sizeof(word));
    }
  }
}

void RandomWeights::fill_blocks(const RowSeed& seed, int64_t blocks, double scale,
                                uint8_t* out) const {
  static_assert(std::endian::native == std::endian::little);
  const auto size = static_cast<size_t>(dtype_info(type_).block_bytes);
  const BlockScales at = block_scales(type_);
  Bits bits(seed);
  for (int64_t b = 0; b < blocks; ++b, out += size) {
    for (size_t i = 0; i < size; i += 8) {
      const uint64_t word = bits.next();
      std::memcpy(out + i, &word, std::min<size_t>(8, size - i));
    }
    if (type_ == DType::kMXFP4) {  // a power of two: 2^(byte - 127)
      out[0] = static_cast<uint8_t>(127 + std::lround(std::log2(scale)));
      continue;
    }
    if (type_ == DType::kNVFP4) {
      for (size_t i = 0; i < 4; ++i) out[i] = near_e4m3(scale);
      continue;
    }
    if (type_ == DType::kQ8_0) {  // quantisers keep to -127 .. 127
      for (size_t i = 2; i < size; ++i) out[i] = out[i] == 0x80 ? 0 : out[i];
    }
    put_half(out + at.scale, scale);
    if (at.ratio != 0.0) put_half(out + at.minimum, scale * at.ratio);
  }
}

}  // namespace aerie::measure
