// Floats of 16 and 8 bits: every bit pattern, and every point where rounding turns over.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tensor/dtype.h"
#include "tests/tensor/golden_file.h"

namespace aerie::half_test {

uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
float float_of(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// The value by its definition, in doubles.
double f16_by_definition(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 0x3FF;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31 && mantissa != 0) return std::nan("");
  if (exponent == 31) return sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(F16, EveryPatternHasItsValueAndComesBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto half = static_cast<uint16_t>(i);
    const float value = f16_to_f32(half);
    const double expected = f16_by_definition(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_EQ(f32_to_f16(value), half | 0x200) << "payload and sign of NaN " << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << i;
    ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0) << i;
    ASSERT_EQ(f32_to_f16(value), half) << i;
  }
}

TEST(F16, RoundsToNearestAndTiesToEvenBetweenEveryPairOfNeighbours) {
  for (const uint32_t sign : {0u, 0x8000u}) {
    for (uint32_t i = 0; i < 0x7C00; ++i) {
      const auto low = static_cast<uint16_t>(sign | i);
      const auto high = static_cast<uint16_t>(sign | (i + 1));
      // Beyond the largest finite value, the next one would be 65536.
      const double above =
          i + 1 == 0x7C00 ? (sign != 0 ? -65536.0 : 65536.0) : f16_by_definition(high);
      const auto middle = static_cast<float>((f16_by_definition(low) + above) / 2);
      const uint16_t even = (i & 1) == 0 ? low : high;
      ASSERT_EQ(f32_to_f16(middle), even) << i;
      ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), low) << i;
      ASSERT_EQ(f32_to_f16(std::nextafter(middle, static_cast<float>(above) * 2)), high) << i;
    }
  }
}

TEST(F16, ExtremesOfFloat) {
  constexpr auto kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::max()), 0xFC00);
  EXPECT_EQ(f32_to_f16(kInfinity), 0x7C00);
  EXPECT_EQ(f32_to_f16(-kInfinity), 0xFC00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::min()), 0x8000);
  EXPECT_EQ(f32_to_f16(float_of(0x7F800001)) & 0x7E00, 0x7E00) << "a NaN with a low payload";
}

TEST(Bf16, EveryPatternComesBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = bf16_to_f32(bits);
    ASSERT_EQ(bits_of(value), i << 16);
    const uint16_t quiet = std::isnan(value) ? 0x40 : 0;
    ASSERT_EQ(f32_to_bf16(value), bits | quiet) << i;
  }
}

TEST(Bf16, RoundsToNearestAndTiesToEvenBetweenEveryPairOfNeighbours) {
  for (const uint32_t sign : {0u, 0x8000u}) {
    for (uint32_t i = 0; i < 0x7F80; ++i) {
      const uint32_t low = sign | i;
      const uint32_t even = (i & 1) == 0 ? low : low + 1;
      ASSERT_EQ(f32_to_bf16(float_of(low << 16 | 0x7FFF)), low);
      ASSERT_EQ(f32_to_bf16(float_of(low << 16 | 0x8000)), even);
      ASSERT_EQ(f32_to_bf16(float_of(low << 16 | 0x8001)), low + 1);
    }
  }
}

TEST(Bf16, NanStaysNan) {
  EXPECT_EQ(f32_to_bf16(float_of(0x7F800001)), 0x7FC0);
  EXPECT_EQ(f32_to_bf16(float_of(0xFFFFFFFF)), 0xFFFF);
}

TEST(F8, EveryCodeAgainstPyTorch) {
  GoldenFile golden("float8.bin");
  for (const auto convert : {f8_e4m3_to_f32, f8_e5m2_to_f32}) {
    const std::vector<float> expected = golden.floats(256);
    for (size_t i = 0; i < 256; ++i) {
      const float actual = convert(static_cast<uint8_t>(i));
      if (std::isnan(actual) && std::isnan(expected[i])) continue;
      ASSERT_EQ(bits_of(actual), bits_of(expected[i])) << i;
    }
  }
  EXPECT_TRUE(golden.at_end());
}

// From the specification's tables of special values.
TEST(F8, SpecialValues) {
  EXPECT_EQ(f8_e4m3_to_f32(0x7E), 448.0f);
  EXPECT_EQ(f8_e4m3_to_f32(0x08), 0x1.0p-6f);
  EXPECT_EQ(f8_e4m3_to_f32(0x01), 0x1.0p-9f);
  EXPECT_EQ(bits_of(f8_e4m3_to_f32(0x80)), 0x80000000u);
  EXPECT_TRUE(std::isnan(f8_e4m3_to_f32(0x7F)));
  EXPECT_TRUE(std::isnan(f8_e4m3_to_f32(0xFF)));
  EXPECT_EQ(f8_e5m2_to_f32(0x7B), 57344.0f);
  EXPECT_EQ(f8_e5m2_to_f32(0x01), 0x1.0p-16f);
  EXPECT_EQ(f8_e5m2_to_f32(0xFC), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(f8_e5m2_to_f32(0x7D)));
}

}  // namespace aerie::half_test
