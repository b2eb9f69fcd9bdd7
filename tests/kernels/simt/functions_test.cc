// Functions of kernels: how near they are, where they end, and that their bits are the same
// wherever this is compiled.
#include <cmath>
#include <limits>

#include "tests/kernels/simt/simt_testing.h"

namespace aerie::functions_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Units in the last place of the nearest float that lie between.
double distance(float got, double exact) {
  const auto nearest = static_cast<float>(exact);
  const double size = std::fabs(double{nearest});
  int exponent = 0;
  std::frexp(size, &exponent);
  const double unit = std::ldexp(1, std::max(exponent - 24, -149));
  return std::fabs(double{got} - exact) / unit;
}

// Floats of both signs up to `most`, evenly among their bits.
template <typename F>
void for_floats(float most, uint32_t step, const F& f) {
  for (uint32_t bits = 0; bits <= simt::bits_of(most); bits += step) {
    f(simt::float_of(bits));
    f(-simt::float_of(bits));
  }
}

template <typename F, typename G>
double worst(float most, const F& function, const G& exact) {
  double farthest = 0;
  for_floats(most, 4099, [&](float x) {
    farthest = std::max(farthest, distance(function(x), exact(double{x})));
  });
  return farthest;
}

TEST(Functions, AreNear) {
  EXPECT_LE(worst(88.7f, simt::exp, [](double x) { return std::exp(x); }), 1.0);
  EXPECT_LE(worst(20.0f, simt::tanh, [](double x) { return std::tanh(x); }), 2.0);
  EXPECT_LE(worst(10.0f, simt::erf, [](double x) { return std::erf(x); }), 2.0);
}

TEST(Functions, LogarithmsAreNear) {
  double farthest = 0.0;
  for (uint32_t bits = 0; bits <= simt::bits_of(1.0f); bits += 1009) {
    const float x = simt::float_of(bits);
    farthest = std::max(farthest, distance(simt::log_1p(x), std::log1p(double{x})));
  }
  EXPECT_LE(farthest, 2.0);
  EXPECT_EQ(simt::log_1p(0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(simt::log_1p(std::nanf(""))));
}

TEST(Functions, End) {
  EXPECT_EQ(simt::exp(0.0f), 1.0f);
  EXPECT_EQ(simt::exp(-kInfinity), 0.0f);
  EXPECT_EQ(simt::exp(-1e30f), 0.0f);
  EXPECT_EQ(simt::exp(kInfinity), kInfinity);
  EXPECT_EQ(simt::exp(88.73f), kInfinity);
  EXPECT_LT(simt::exp(88.72f), kInfinity);
  EXPECT_GT(simt::exp(-103.0f), 0.0f);  // a subnormal number
  EXPECT_EQ(simt::exp(-104.0f), 0.0f);
  for (const auto& odd : {simt::tanh, simt::erf}) {
    EXPECT_EQ(odd(kInfinity), 1.0f);
    EXPECT_EQ(odd(-kInfinity), -1.0f);
    EXPECT_EQ(odd(0.0f), 0.0f);
    EXPECT_TRUE(std::signbit(odd(-0.0f)));
    EXPECT_TRUE(std::isnan(odd(std::nanf(""))));
  }
  EXPECT_TRUE(std::isnan(simt::exp(std::nanf(""))));
}

TEST(Functions, KeepTheirSign) {
  for_floats(12.0f, 65537, [](float x) {
    ASSERT_EQ(simt::tanh(-x), -simt::tanh(x));
    ASSERT_EQ(simt::erf(-x), -simt::erf(x));
  });
}

TEST(Functions, TakeTheSecondOfNoNumber) {
  const float nan = std::nanf("");
  EXPECT_EQ(simt::min(nan, 1.0f), 1.0f);
  EXPECT_EQ(simt::max(nan, 1.0f), 1.0f);
  EXPECT_EQ(simt::min(2.0f, 1.0f), 1.0f);
  EXPECT_EQ(simt::max(2.0f, 1.0f), 2.0f);
}

// Compilers, processors and devices agree on this.
TEST(Functions, HaveTheirBits) {
  uint64_t digest = 14695981039346656037u;
  for_floats(100.0f, 10007, [&](float x) {
    for (const float y : {simt::exp(x), simt::tanh(x), simt::erf(x), simt::divide(1.5f, x),
                          simt::square_root(std::fabs(x)), simt::reciprocal(x),
                          simt::log_1p(simt::exp(-std::fabs(x)))}) {
      digest = (digest ^ simt::bits_of(y)) * 1099511628211u;
    }
  });
  EXPECT_EQ(digest, 2642980536430956002u);
}

}  // namespace aerie::functions_test
