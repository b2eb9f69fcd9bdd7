// Activation functions and soft caps against their definitions, computed in double.
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/kernels/row_ops_testing.h"

namespace aerie::kernels::activation_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu,
                                       Activation::kClampedSilu};

struct Expected64 {
  double value = 0.0;
  // What a rounding of the exponent, which is computed in float, does to the value.
  double relative = 0.0;
};

Expected64 in_double(Activation activation, double x) {
  if (activation == Activation::kSilu) return {x / (1.0 + std::exp(-x)), 5e-7};
  if (activation == Activation::kGelu) {
    return {0.5 * x * std::erfc(-x / std::numbers::sqrt2), 5e-7 + (x < 0.0 ? 6e-8 * x * x : 0.0)};
  }
  if (activation == Activation::kClampedSilu) {
    const double y = x > 7.0 ? 7.0 : x;
    // The exponent is a rounded product here.
    return {y / (1.0 + std::exp(-1.702 * y)), 5e-7 + (y < 0.0 ? 1.7e-7 * -y : 0.0)};
  }
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  // Far below 0 the definition cancels even in double.
  const double half = u > -1.0 ? 0.5 * (1.0 + std::tanh(u)) : 1.0 / (1.0 + std::exp(-2.0 * u));
  return {x * half, 5e-7 + (x < 0.0 ? 4e-7 * -u : 0.0)};
}

double factor_in_double(Activation activation, double x) {
  if (activation != Activation::kClampedSilu) return x;
  return 1.0 + (x > 7.0 ? 7.0 : x < -7.0 ? -7.0 : x);
}

class ActivationTest : public BackendTest<std::tuple<Isa, Activation>> {
 protected:
  Activation activation() const { return std::get<1>(GetParam()); }
  std::vector<float> activate(const std::vector<float>& x) const {
    const auto k = static_cast<int64_t>(x.size());
    Activations out = ones(backend(), 1, k, false);
    backend().activate(pool_of(1), activation(), x.data(), out);
    return {out.row(0), out.row(0) + k};
  }
};

TEST_P(ActivationTest, CloseToDouble) {
  Random random(45);
  constexpr int64_t kRows = 3;
  for (const int64_t k : {1, 7, 33, 100, 576, 1536}) {
    const Fenced<float> gate(uniform_floats(random, kRows * k, -8.0f, 8.0f));
    const bool clamped = activation() == Activation::kClampedSilu;
    const float wide = clamped ? 14.0f : 2.0f;
    const Fenced<float> up(uniform_floats(random, kRows * k, -wide, wide));
    const bool int8 = k % 32 == 0;
    Activations product = ones(backend(), kRows, k, int8), alone = ones(backend(), kRows, k, int8);
    backend().gated(pool_of(3), activation(), gate.data(), up.data(), product);
    backend().activate(pool_of(3), activation(), gate.data(), alone);
    for (int64_t i = 0; i < kRows * k; ++i) {
      const Expected64 expected = in_double(activation(), double{gate.data()[i]});
      expect_relative(double{alone.row(0)[i]}, expected.value, expected.relative);
      const double factor = factor_in_double(activation(), double{up.data()[i]});
      // 1 + z is rounded, and next to -1 little is left of it.
      const double rounding = clamped ? 6e-8 * std::fabs(expected.value) : 1e-37;
      expect_relative(double{product.row(0)[i]}, expected.value * factor, expected.relative,
                      rounding);
    }
    if (int8) {
      expect_codes_follow(backend(), product);
      expect_codes_follow(backend(), alone);
    }
  }
}

// Down to where nothing is left, and through every size on both sides of 0.
TEST_P(ActivationTest, WholeRange) {
  std::vector<float> x;
  for (int i = 0; i < 48000; ++i) x.push_back(-86.99f + 0.0037f * static_cast<float>(i));
  for (int i = 0; i < 8000; ++i) x.push_back(-14.0f + 0.0035f * static_cast<float>(i));
  for (int exponent = -149; exponent < 127; ++exponent) {
    x.push_back(std::ldexp(1.37f, exponent));
    x.push_back(-x.back());
  }
  const std::vector<float> out = activate(x);
  for (size_t i = 0; i < x.size(); ++i) {
    const Expected64 expected = in_double(activation(), double{x[i]});
    // What weighs less than e^-87 may become 0.
    expect_relative(double{out[i]}, expected.value, expected.relative,
                    3e-38 * std::fabs(double{x[i]}) + 1e-44);
  }
}

TEST_P(ActivationTest, OddValues) {
  const std::vector<float> out = activate({0.0f, -0.0f, kInf, std::nanf(""), 3e38f, -3e38f});
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_TRUE(std::isnan(out[3]));
  EXPECT_EQ(out[5], 0.0f);
  if (activation() == Activation::kClampedSilu) {
    EXPECT_EQ(out[2], out[4]);
    EXPECT_NEAR(out[4], 7.0f, 7.0f * 7e-6f);  // sigmoid(11.9)
    return;
  }
  EXPECT_EQ(out[2], kInf);
  EXPECT_EQ(out[4], 3e38f);
}

// What a limit must not make a number of.
TEST_P(ActivationTest, FactorsThatAreOdd) {
  const std::vector<float> gate(6, 1.0f);
  const std::vector<float> up = {kInf, -kInf, std::nanf(""), 3e38f, -3e38f, -1.0f};
  Activations out = ones(backend(), 1, 6, false);
  backend().gated(pool_of(1), activation(), gate.data(), up.data(), out);
  const float* product = out.row(0);
  EXPECT_TRUE(std::isnan(product[2]));
  if (activation() != Activation::kClampedSilu) {
    EXPECT_EQ(product[0], kInf);
    EXPECT_EQ(product[1], -kInf);
    return;
  }
  const double one = 1.0 / (1.0 + std::exp(-1.702));
  for (const size_t i : {0u, 3u}) EXPECT_NEAR(double{product[i]}, 8.0 * one, 4e-6);
  for (const size_t i : {1u, 4u}) EXPECT_NEAR(double{product[i]}, -6.0 * one, 4e-6);
  EXPECT_EQ(product[5], 0.0f);
}

// Values computed with 30 digits.
TEST_P(ActivationTest, KnownValues) {
  const std::vector<float> x = {-3.0f, -1.0f, -0.5f, 0.5f, 1.0f, 2.0f};
  const double expected[][6] = {{-0.142277619533, -0.26894142137, -0.188770334399, 0.311229665601,
                                 0.73105857863, 1.76159415596},
                                {-0.00363739208177, -0.158808009392, -0.154285990175,
                                 0.345714009825, 0.841191990608, 1.95459769409},
                                {-0.00404969409489, -0.158655253931, -0.154268769363,
                                 0.345731230637, 0.841344746069, 1.9544997361},
                                {-0.0180713097078, -0.154204234067, -0.149611563394, 0.350388436606,
                                 0.845795765933, 1.93565862314}};
  const std::vector<float> out = activate(x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double value = expected[static_cast<size_t>(activation())][i];
    EXPECT_NEAR(double{out[i]}, value, 1.5e-6 * std::fabs(value)) << x[i];
  }
}

std::string activation_test_name(const testing::TestParamInfo<std::tuple<Isa, Activation>>& info) {
  constexpr const char* kNames[] = {"Silu", "GeluTanh", "Gelu", "ClampedSilu"};
  return std::string(isa_name(std::get<0>(info.param))) + "_" +
         kNames[static_cast<size_t>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(All, ActivationTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::ValuesIn(kActivations)),
                         activation_test_name);

class SoftCapTest : public IsaTest {
 protected:
  std::vector<float> capped(const std::vector<float>& x, float cap, int threads = 1) const {
    Fenced<float> in_place(x);
    backend().soft_cap(pool_of(threads), in_place.data(), static_cast<int64_t>(x.size()), cap);
    return {in_place.data(), in_place.data() + x.size()};
  }
};

// With a cap of 1 the hyperbolic tangent itself is on trial.
TEST_P(SoftCapTest, CloseToDouble) {
  std::vector<float> x;
  for (int i = -60000; i <= 60000; ++i) x.push_back(2.1e-4f * static_cast<float>(i));
  for (int exponent = -120; exponent < 127; ++exponent) {
    for (const float mantissa : {1.0f, 1.23f, 1.71f}) {
      x.push_back(std::ldexp(mantissa, exponent));
      x.push_back(-x.back());
    }
  }
  for (const float cap : {1.0f, 30.0f, 50.0f, 0.3f}) {
    const std::vector<float> out = capped(x, cap);
    for (size_t i = 0; i < x.size(); ++i) {
      expect_relative(double{out[i]}, double{cap} * std::tanh(double{x[i]} / double{cap}), 5e-7);
      EXPECT_LE(std::fabs(out[i]), cap);
    }
  }
}

TEST_P(SoftCapTest, OddValues) {
  const std::vector<float> out =
      capped({0.0f, -0.0f, kInf, -kInf, std::nanf(""), 3e38f, -3e38f, 1e-42f}, 30.0f);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], 30.0f);
  EXPECT_EQ(out[3], -30.0f);
  EXPECT_TRUE(std::isnan(out[4]));
  EXPECT_EQ(out[5], 30.0f);
  EXPECT_EQ(out[6], -30.0f);
  EXPECT_NEAR(double{out[7]}, 1e-42, 6e-44);
}

TEST_P(SoftCapTest, AnyCountWithAnyThreads) {
  Random random(49);
  const std::vector<float> x = uniform_floats(random, 20011, -100.0f, 100.0f);
  const std::vector<float> expected = capped(x, 30.0f);
  for (const int64_t count : {0, 1, 15, 16, 17, 4095, 4096, 4097, 8200, 20011}) {
    for (const int threads : kThreadCounts) {
      const std::vector<float> first(x.begin(), x.begin() + count);
      EXPECT_TRUE(same_bits(capped(first, 30.0f, threads),
                            std::span(expected).first(static_cast<size_t>(count))))
          << count << " floats, " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SoftCapTest, testing::ValuesIn(kAllIsas), isa_test_name);

}  // namespace aerie::kernels::activation_test
