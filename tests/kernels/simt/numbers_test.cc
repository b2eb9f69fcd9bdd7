// Narrow numbers, every one of them; rounding is pinned where it turns: at the middle between two
// neighbours and just beside it.
#include <cmath>
#include <limits>
#include <random>

#include "kernels/simt/numbers.h"
#include "tests/kernels/simt/simt_testing.h"

namespace aerie::numbers_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The value of a finite number with so many bits of exponent and fraction, of its sign too.
double value_of(uint32_t h, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto field = static_cast<int>(h >> fraction_bits & ((1u << exponent_bits) - 1));
  const auto fraction = static_cast<double>(h & ((1u << fraction_bits) - 1));
  const double size = field == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                 : std::ldexp(fraction + std::ldexp(1, fraction_bits),
                                              field - bias - fraction_bits);
  return (h & 0x8000) != 0 ? -size : size;
}

template <typename To, typename From>
void check_all(int exponent_bits, int fraction_bits, const To& to, const From& from) {
  const uint32_t infinite = ((1u << exponent_bits) - 1) << fraction_bits;
  for (uint32_t size = 0; size < infinite; ++size) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      const uint32_t h = size | sign;
      const double value = value_of(h, exponent_bits, fraction_bits);
      ASSERT_EQ(double{from(static_cast<uint16_t>(h))}, value) << h;
      ASSERT_EQ(to(static_cast<float>(value)), h);
      // The next number, or what would be it: 2^16 is what binary16 calls infinite.
      const double next = size + 1 == infinite
                              ? 2 * value - value_of(h - 1, exponent_bits, fraction_bits)
                              : value_of(h + 1, exponent_bits, fraction_bits);
      const auto middle = static_cast<float>((value + next) / 2);
      if (!std::isfinite(middle)) continue;
      ASSERT_EQ(to(middle), h % 2 == 0 ? h : h + 1) << h;
      ASSERT_EQ(to(std::nextafter(middle, 0.0f)), h) << h;
      ASSERT_EQ(to(std::nextafter(middle, sign != 0 ? -kInfinity : kInfinity)), h + 1) << h;
    }
  }
  for (const uint32_t sign : {0u, 0x8000u}) {
    const float infinity = sign != 0 ? -kInfinity : kInfinity;
    EXPECT_EQ(to(infinity), infinite | sign);
    EXPECT_EQ(from(static_cast<uint16_t>(infinite | sign)), infinity);
    EXPECT_TRUE(std::isnan(from(static_cast<uint16_t>(infinite | sign | 1))));
  }
  EXPECT_EQ(to(std::nanf("")), 0x7fff);
  EXPECT_EQ(to(-std::nanf("")), 0x7fff);
}

TEST(NarrowNumbers, Binary16) {
  check_all(5, 10, simt::to_f16, simt::from_f16);
}

TEST(NarrowNumbers, BFloat16) {
  check_all(8, 7, simt::to_bf16, simt::from_bf16);
}

TEST(NarrowNumbers, PairsHaveTheFirstInTheLowHalf) {
  EXPECT_EQ(simt::pack_bf16(1.0f, -2.0f), 0xc0003f80u);
  EXPECT_EQ(simt::pack_f16(1.0f, -2.0f), 0xc0003c00u);
}

// A sum of doubles as bfloat16, in units of its last place.
uint32_t rounded(double sum) {
  int exponent = 0;
  std::frexp(sum, &exponent);
  const int last = std::max(exponent - 8, -133);
  const double whole = std::ldexp(std::nearbyint(std::ldexp(sum, -last)), last);
  return simt::bits_of(static_cast<float>(whole)) >> 16;  // or infinity
}

TEST(NarrowNumbers, SumsOfPairsRoundOnce) {
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) {
    uint32_t a = random(), b = random();
    // Exponents near one another, lest most sums are the larger number.
    b = (b & 0x807f807fu) | (a & 0x7f807f80u);
    b ^= (random() & 7u) << 7 | (random() & 7u) << 23;
    for (int half = 0; half < 32; half += 16) {
      const double x = simt::from_bf16(static_cast<uint16_t>(a >> half));
      const double y = simt::from_bf16(static_cast<uint16_t>(b >> half));
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      ASSERT_EQ(simt::add_bf16x2(a, b) >> half & 0xffff, rounded(x + y)) << a << ' ' << b;
      ASSERT_EQ(simt::sub_bf16x2(a, b) >> half & 0xffff, rounded(x - y)) << a << ' ' << b;
    }
  }
  // Ties go to the even one: 1 + 2^-8 and 1 + 3 * 2^-8.
  const uint32_t ones = 0x3f803f80u;
  EXPECT_EQ(simt::add_bf16x2(ones, 0x3b803b80u), ones);
  EXPECT_EQ(simt::add_bf16x2(0x3f813f81u, 0x3b803b80u), 0x3f823f82u);
  EXPECT_EQ(simt::sub_bf16x2(ones, ones), 0u);
}

TEST(NarrowNumbers, ProductsOfPairsRoundOnce) {
  std::mt19937 random(4);
  for (int i = 0; i < 200000; ++i) {
    const uint32_t a = random(), b = random();
    for (int half = 0; half < 32; half += 16) {
      const double x = simt::from_bf16(static_cast<uint16_t>(a >> half));
      const double y = simt::from_bf16(static_cast<uint16_t>(b >> half));
      // What is below a float's own normal numbers may round twice.
      if (!std::isfinite(x) || !std::isfinite(y) || std::abs(x * y) < 0x1p-126) continue;
      ASSERT_EQ(simt::mul_bf16x2(a, b) >> half & 0xffff, rounded(x * y)) << a << ' ' << b;
    }
  }
  // Of subnormal numbers by powers of two exactly.
  EXPECT_EQ(simt::mul_bf16x2(0x80400040u, 0x7f007f00u), 0xbf803f80u);
}

// As 4-bit codes are unpacked: in the lowest bits of a number, or four higher.
TEST(NarrowNumbers, CodesBecomeNumbersByOneMultiplication) {
  for (uint32_t code = 0; code < 16; ++code) {
    const uint32_t both = code | (15 - code) << 16;
    const auto expected = [](float value) { return simt::to_bf16(value / 64.0f); };
    const uint32_t low = simt::fma_bf16x2(both, 0x7f007f00u, 0xbe00be00u);
    EXPECT_EQ(low & 0xffff, expected(static_cast<float>(code) - 8.0f)) << code;
    EXPECT_EQ(low >> 16, expected(7.0f - static_cast<float>(code))) << code;
    EXPECT_EQ(simt::fma_bf16x2(both << 4, 0x7d007d00u, 0xbe00be00u), low) << code;
    EXPECT_EQ(simt::mul_bf16x2(both, 0x7f007f00u) & 0xffff, expected(static_cast<float>(code)));
    EXPECT_EQ(simt::mul_bf16x2(both << 4, 0x7d007d00u), simt::mul_bf16x2(both, 0x7f007f00u));
  }
}

}  // namespace aerie::numbers_test
