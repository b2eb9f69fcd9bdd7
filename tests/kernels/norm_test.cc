// Normalisation against its definition, computed in double.
#include <cmath>
#include <limits>

#include "tests/kernels/row_ops_testing.h"

namespace aerie::kernels::norm_test {

constexpr int64_t kLengths[] = {1, 7, 16, 33, 100, 576, 2048};

double root_mean_square(const float* x, int64_t k, double eps) {
  double squares = 0.0;
  for (int64_t i = 0; i < k; ++i) squares += double{x[i]} * double{x[i]};
  return std::sqrt(squares / static_cast<double>(k) + eps);
}

using RmsNormTest = IsaTest;

TEST_P(RmsNormTest, CloseToDouble) {
  Random random(44);
  constexpr int64_t kRows = 5;
  for (const int64_t k : kLengths) {
    for (const float size : {1e-3f, 1.0f, 1e6f}) {
      const int64_t stride = k + 9;
      const Fenced<float> x(uniform_floats(random, (kRows - 1) * stride + k, -size, size));
      const Fenced<float> weight(uniform_floats(random, k, -2.0f, 2.0f));
      const bool int8 = k % 32 == 0;
      Activations out = ones(backend(), kRows, k, int8);
      backend().rms_norm(pool_of(2), x.data(), stride, weight.data(), 1e-6, out);
      for (int64_t r = 0; r < kRows; ++r) {
        const float* in = x.data() + r * stride;
        const double root = root_mean_square(in, k, 1e-6);
        for (int64_t i = 0; i < k; ++i) {
          expect_relative(double{out.row(r)[i]}, double{in[i]} / root * double{weight.data()[i]},
                          5e-7);
        }
      }
      if (int8) expect_codes_follow(backend(), out);
    }
  }
}

TEST_P(RmsNormTest, ZerosStayZero) {
  const std::vector<float> x(64, 0.0f), weight(64, 1.0f);
  Activations out = ones(backend(), 1, 64, true);
  backend().rms_norm(pool_of(1), x.data(), 64, weight.data(), 1e-5, out);
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(out.row(0)[i], 0.0f);
}

// A head is a row of its own.
TEST_P(RmsNormTest, HeadsAreRows) {
  Random random(45);
  for (const int head_dim : {8, 20, 64, 96, 128, 256}) {
    for (const int heads : {1, 3, 16}) {
      const int64_t rows = 7;
      const std::vector<float> x = uniform_floats(random, rows * heads * head_dim, -5.0f, 5.0f);
      const Fenced<float> weight(uniform_floats(random, head_dim, -2.0f, 2.0f));
      Fenced<float> in_place(x);
      backend().rms_norm_heads(pool_of(3), in_place.data(), rows, heads, head_dim, weight.data(),
                               1e-6);
      Activations expected = ones(backend(), rows * heads, head_dim, false);
      backend().rms_norm(pool_of(1), x.data(), head_dim, weight.data(), 1e-6, expected);
      EXPECT_TRUE(same_bits(in_place.span(), expected.floats.as<float>()))
          << heads << " heads of " << head_dim;
    }
  }
}

TEST_P(RmsNormTest, AddsToTheResidual) {
  Random random(46);
  constexpr int64_t kRows = 6;
  for (const int64_t n : kLengths) {
    const Fenced<float> y(uniform_floats(random, kRows * n, -30.0f, 30.0f));
    const Fenced<float> weight(uniform_floats(random, n, -2.0f, 2.0f));
    const std::vector<float> before = uniform_floats(random, kRows * n, -4.0f, 4.0f);
    Fenced<float> residual(before);
    backend().add_rms_norm(pool_of(2), y.data(), kRows, n, weight.data(), 1e-6, residual.data());
    for (int64_t r = 0; r < kRows; ++r) {
      const double root = root_mean_square(y.data() + r * n, n, 1e-6);
      for (int64_t i = 0; i < n; ++i) {
        const double normed = double{y.data()[r * n + i]} / root * double{weight.data()[i]};
        const double old = double{before[static_cast<size_t>(r * n + i)]};
        EXPECT_NEAR(double{residual[r * n + i]}, old + normed,
                    1e-7 * std::fabs(old) + 6e-7 * std::fabs(normed));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RmsNormTest, testing::ValuesIn(kAllIsas), isa_test_name);

class LayerNormTest : public IsaTest {
 protected:
  // Values of `size` around `centre`; `bias` may be null.
  void check(int64_t k, float centre, float size, const float* weight, const float* bias,
             Random& random) {
    SCOPED_TRACE(testing::Message() << "k " << k << " centre " << centre << " size " << size);
    constexpr int64_t kRows = 5;
    const int64_t stride = k + 9;
    const Fenced<float> x(
        uniform_floats(random, (kRows - 1) * stride + k, centre - size, centre + size));
    const bool int8 = k % 32 == 0;
    Activations out = ones(backend(), kRows, k, int8);
    backend().layer_norm(pool_of(2), x.data(), stride, weight, bias, 1e-5, out);
    for (int64_t r = 0; r < kRows; ++r) check_row(x.data() + r * stride, weight, bias, out, r);
    if (int8) expect_codes_follow(backend(), out);
  }

 private:
  void check_row(const float* x, const float* weight, const float* bias, const Activations& out,
                 int64_t r) {
    const auto k = static_cast<double>(out.k);
    double mean = 0.0, variance = 0.0, largest = 0.0;
    for (int64_t i = 0; i < out.k; ++i) {
      mean += double{x[i]} / k;
      largest = std::max(largest, std::fabs(double{x[i]}));
    }
    for (int64_t i = 0; i < out.k; ++i) {
      variance += (double{x[i]} - mean) * (double{x[i]} - mean) / k;
    }
    const double root = std::sqrt(variance + 1e-5);
    for (int64_t i = 0; i < out.k; ++i) {
      const double normed = (double{x[i]} - mean) / root * double{weight[i]};
      const double shift = bias != nullptr ? double{bias[i]} : 0.0;
      // The mean is a float, off by a rounding or two of what is averaged.
      const double of_mean = 1.5e-7 * largest / root * std::fabs(double{weight[i]});
      ASSERT_NEAR(double{out.row(r)[i]}, normed + shift,
                  6e-7 * std::fabs(normed) + 1e-7 * std::fabs(shift) + of_mean + 1e-37)
          << "row " << r << " element " << i;
    }
  }
};

TEST_P(LayerNormTest, CloseToDouble) {
  Random random(47);
  for (const int64_t k : kLengths) {
    const Fenced<float> weight(uniform_floats(random, k, -2.0f, 2.0f));
    const Fenced<float> bias(uniform_floats(random, k, -1.0f, 1.0f));
    for (const float size : {1e-3f, 1.0f, 1e6f}) {
      for (const float centre : {0.0f, -0.7f, 50.0f}) {
        check(k, centre * size, size, weight.data(), bias.data(), random);
        check(k, centre * size, size, weight.data(), nullptr, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Nothing deviates from the mean: what is left is the bias, to the bit.
TEST_P(LayerNormTest, EqualValuesGiveTheBias) {
  Random random(48);
  for (const int64_t k : kLengths) {
    const std::vector<float> x(static_cast<size_t>(k), 2.0f);
    const std::vector<float> weight = uniform_floats(random, k, -2.0f, 2.0f);
    const std::vector<float> bias = uniform_floats(random, k, 0.5f, 1.0f);
    Activations out = ones(backend(), 1, k, false);
    backend().layer_norm(pool_of(1), x.data(), k, weight.data(), bias.data(), 1e-5, out);
    EXPECT_TRUE(same_bits(out.floats.as<float>(), bias)) << k;
    backend().layer_norm(pool_of(1), x.data(), k, weight.data(), nullptr, 1e-5, out);
    for (int64_t i = 0; i < k; ++i) EXPECT_EQ(out.row(0)[i], 0.0f) << k;
  }
}

TEST_P(LayerNormTest, NotANumberShowsInTheWholeRow) {
  const std::vector<float> weight(40, 1.0f);
  for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(80, 0.5f);
    x[33] = odd;
    Activations out = ones(backend(), 2, 40, false);
    backend().layer_norm(pool_of(1), x.data(), 40, weight.data(), nullptr, 1e-5, out);
    for (int64_t i = 0; i < 40; ++i) {
      EXPECT_TRUE(std::isnan(out.row(0)[i]));
      EXPECT_EQ(out.row(1)[i], 0.0f);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LayerNormTest, testing::ValuesIn(kAllIsas), isa_test_name);

}  // namespace aerie::kernels::norm_test
