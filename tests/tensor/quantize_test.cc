#include "tensor/quantize.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/tensor/golden_file.h"

namespace aerie::tensor_quantize_test {

constexpr std::array kTypes = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                               DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string blocks_of(DType type, const std::vector<float>& values) {
  const auto elements = static_cast<int64_t>(values.size());
  std::string blocks(static_cast<size_t>(dtype_bytes(type, elements)), '?');
  quantize(type, values.data(), elements, blocks.data());
  return blocks;
}

std::vector<float> there_and_back(DType type, const std::vector<float>& values) {
  std::vector<float> out(values.size());
  dequantize(type, blocks_of(type, values).data(), static_cast<int64_t>(out.size()), out.data());
  return out;
}

int64_t find(DType type, const std::vector<float>& values) {
  return find_unquantizable(type, values.data(), static_cast<int64_t>(values.size()));
}

TEST(Quantize, TheTypesItMakes) {
  int count = 0;
  for (int i = 0; i < kDTypeCount; ++i) count += can_quantize(static_cast<DType>(i)) ? 1 : 0;
  EXPECT_EQ(count, static_cast<int>(kTypes.size()));
  for (const DType type : kTypes) EXPECT_TRUE(can_quantize(type)) << dtype_info(type).name;
}

TEST(Quantize, MatchesGgufPythonBitForBit) {
  GoldenFile golden("quantize.bin");
  const std::vector<float> values = golden.floats(golden.u32());
  int types = 0;
  for (; !golden.at_end(); ++types) {
    const std::string name = golden.bytes(golden.u32());
    const std::string expected = golden.bytes(golden.u32());
    const auto type = dtype_from_name(name);
    ASSERT_TRUE(type) << name;
    EXPECT_EQ(find(*type, values), -1) << name;
    const std::string actual = blocks_of(*type, values);
    ASSERT_EQ(actual.size(), expected.size()) << name;
    const auto bytes = static_cast<size_t>(dtype_info(*type).block_bytes);
    for (size_t at = 0; at < actual.size(); at += bytes) {
      ASSERT_EQ(actual.substr(at, bytes), expected.substr(at, bytes)) << name << " byte " << at;
    }
  }
  EXPECT_EQ(types, static_cast<int>(kTypes.size()) - 1) << "all but F32";
}

TEST(Quantize, F32IsACopy) {
  const std::vector<float> values = {1.0f, -0.0f, 1e-45f, kInfinity, -3.5f};
  const std::string blocks = blocks_of(DType::kF32, values);
  EXPECT_EQ(std::memcmp(blocks.data(), values.data(), blocks.size()), 0);
}

TEST(Quantize, NeedsNoAlignment) {
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  for (const DType type : kTypes) {
    const std::string expected = blocks_of(type, values);
    std::string shifted(expected.size() + 1, '?');
    quantize(type, values.data(), 64, shifted.data() + 1);
    EXPECT_EQ(shifted.substr(1), expected) << dtype_info(type).name;
    EXPECT_EQ(shifted[0], '?');
  }
}

TEST(Quantize, NoElements) {
  for (const DType type : kTypes) {
    quantize(type, nullptr, 0, nullptr);
    EXPECT_EQ(find_unquantizable(type, nullptr, 0), -1);
  }
}

// So small that the inverse of the scale is infinite.
TEST(Quantize, ValuesNextToNothingBecomeZeros) {
  for (const float tiny : {1e-45f, 1e-40f, -1e-39f}) {
    std::vector<float> values(32, 0.0f);
    values[7] = tiny;
    for (const DType type :
         {DType::kQ4_0, DType::kQ5_0, DType::kQ8_0, DType::kQ4_1, DType::kQ5_1}) {
      EXPECT_EQ(find(type, values), -1);
      EXPECT_EQ(there_and_back(type, values), std::vector<float>(32, 0.0f))
          << dtype_info(type).name;
    }
  }
}

TEST(Quantize, ABlockOfNegativeZeros) {
  const std::vector<float> zeros(32, 0.0f), negative(32, -0.0f);
  for (const DType type : {DType::kQ4_0, DType::kQ5_0, DType::kQ8_0}) {
    EXPECT_EQ(blocks_of(type, negative), blocks_of(type, zeros)) << dtype_info(type).name;
  }
}

// The largest value of each type and the float after it; what the first becomes is finite.
TEST(Quantize, LargestValues) {
  const std::pair<DType, float> largest[] = {
      {DType::kF32, std::numeric_limits<float>::max()},
      {DType::kF16, std::nextafter(65520.0f, 0.0f)},
      {DType::kBF16, std::nextafter(std::bit_cast<float>(0x7F7F8000), 0.0f)},
      {DType::kQ4_0, 8 * 65504.0f},
      {DType::kQ4_1, 65504.0f},
      {DType::kQ5_0, 16 * 65504.0f},
      {DType::kQ5_1, 65504.0f},
      {DType::kQ8_0, 127 * 65504.0f}};
  for (const auto& [type, value] : largest) {
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> values(32, 0.0f);
      values[30] = sign * value;
      EXPECT_EQ(find(type, values), -1) << dtype_info(type).name;
      for (const float back : there_and_back(type, values)) EXPECT_TRUE(std::isfinite(back));
      values[30] = sign * std::nextafter(value, kInfinity);
      EXPECT_EQ(find(type, values), 30) << dtype_info(type).name;
    }
  }
}

TEST(Quantize, FindsTheFirstValueThatIsNotFinite) {
  for (const DType type : kTypes) {
    for (const size_t at : {0u, 31u, 1023u, 1024u, 2500u, 4095u}) {
      for (const float odd : {kNan, -kNan, kInfinity, -kInfinity}) {
        std::vector<float> values(4096, 0.25f);
        values[at] = values.back() = odd;
        EXPECT_EQ(find(type, values), static_cast<int64_t>(at)) << dtype_info(type).name;
      }
    }
  }
}

// Whoever asks anyway gets blocks without a meaning, but no more than blocks.
TEST(Quantize, ValuesThatAreNotFiniteDoNoHarm) {
  for (const DType type : kTypes) {
    for (const float odd : {kNan, kInfinity, -kInfinity, 3e38f}) {
      std::vector<float> values(64, 0.25f);
      values[3] = odd;
      const std::vector<float> back = there_and_back(type, values);
      const std::vector<float> other(back.begin() + 32, back.end());
      for (const float value : other) EXPECT_NEAR(value, 0.25f, 1e-3f) << dtype_info(type).name;
    }
  }
}

}  // namespace aerie::tensor_quantize_test
