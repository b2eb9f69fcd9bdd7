// The quantiser that other tests build their models with: its blocks must be near what they stand
// for.
#include "tests/format/gguf/test_quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace aerie::test::test_quantize_test {

// The largest error in units of the largest magnitude that a type of so many bits may make.
double tolerance(DType type) {
  switch (type) {
    case DType::kF32:
      return 0.0;
    case DType::kF16:
      return 0x1.0p-11;
    case DType::kBF16:
      return 0x1.0p-8;
    case DType::kQ8_0:
      return 0.005;
    case DType::kQ6_K:
      return 0.03;
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return 0.06;
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ4_K:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return 0.13;
    case DType::kQ3_K:
    case DType::kMXFP4:
    case DType::kNVFP4:
      return 0.26;
    case DType::kQ2_K:
      return 0.45;
    // Grids have few of the combinations, and an odd number of signs cannot always be had.
    case DType::kIQ3_S:
    case DType::kIQ3_XXS:
      return 0.6;
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return 0.85;
  }
  return 0.0;
}

void expect_close(DType type, const std::vector<float>& values) {
  const std::vector<float> back = quantize_dequantize(type, values);
  ASSERT_EQ(back.size(), values.size());
  double largest = 0.0;
  for (const float value : values) largest = std::max(largest, std::fabs(double{value}));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(back[i], values[i], largest * tolerance(type))
        << dtype_info(type).name << " element " << i;
  }
}

class Quantize : public ::testing::TestWithParam<int> {
 protected:
  DType type() const { return static_cast<DType>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(EveryType, Quantize, ::testing::Range(0, kDTypeCount));

TEST_P(Quantize, ComesCloseToTheValues) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(1024);
  for (float& value : values) value = normal(random);
  expect_close(type(), values);
}

TEST_P(Quantize, OneSidedValues) {
  std::vector<float> values(512);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f + static_cast<float>(i % 37) / 37.0f;
  expect_close(type(), values);
  for (float& value : values) value = -value;
  expect_close(type(), values);
}

TEST_P(Quantize, ConstantValues) {
  for (const float constant : {0.0f, 1.0f, -3.5f}) {
    expect_close(type(), std::vector<float>(256, constant));
  }
  EXPECT_EQ(quantize_dequantize(type(), std::vector<float>(256, 0.0f)),
            std::vector<float>(256, 0.0f));
}

TEST_P(Quantize, SizesOfTheType) {
  EXPECT_EQ(static_cast<int64_t>(quantize(type(), std::vector<float>(768)).size()),
            dtype_bytes(type(), 768));
  EXPECT_TRUE(quantize(type(), {}).empty());
}

}  // namespace aerie::test::test_quantize_test
