// Operations on rows of activations against what they stand for, computed in double.
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/kernels/kernel_testing.h"

namespace aerie::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
// Groups of smaller values than this are rounded to 0: their scale would be no normal number.
constexpr double kNegligible = 1e-35;

using QuantizeTest = IsaTest;

struct QuantizedGroup {
  std::span<const float> floats;
  std::span<const int8_t> codes;
  float scale;
  int first_sum, sum;
};

QuantizedGroup group_of(const Activations& x, size_t g) {
  return {x.floats.as<float>().subspan(g * 32, 32), x.codes.as<int8_t>().subspan(g * 32, 32),
          x.scales.as<float>()[g], x.sums.as<int32_t>()[2 * g], x.sums.as<int32_t>()[2 * g + 1]};
}

void expect_sums_and_range(const QuantizedGroup& g) {
  int first = 0, all = 0;
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_GE(g.codes[i], -127);
    if (i < 16) first += g.codes[i];
    all += g.codes[i];
  }
  EXPECT_EQ(g.first_sum, first);
  EXPECT_EQ(g.sum, all);
}

void expect_faithful(const QuantizedGroup& g) {
  expect_sums_and_range(g);
  const double scale = double{g.scale};
  for (size_t i = 0; i < 32; ++i) {
    const double error = std::fabs(scale * g.codes[i] - double{g.floats[i]});
    EXPECT_LE(error, 0.5 * scale + 1e-6 * std::fabs(double{g.floats[i]}) + kNegligible)
        << "value " << g.floats[i] << " code " << int{g.codes[i]} << " scale " << g.scale;
  }
}

TEST_P(QuantizeTest, CodesComeCloseAndSumsAreRight) {
  if (!backend().wants_int8(DType::kQ8_0)) return;  // the reference keeps floats
  Random random(40);
  for (const int64_t k : {32, 64, 96, 576}) {
    std::vector<float> values;
    for (int exponent = -125; exponent <= 125; exponent += 5) {
      for (const float x : uniform_floats(random, k, -1.0f, 1.0f)) {
        values.push_back(std::ldexp(x, exponent));
      }
    }
    const Activations x = activations_of(backend(), values, k, true);
    for (size_t g = 0; g < values.size() / 32; ++g) expect_faithful(group_of(x, g));
  }
}

// scale = largest / 127, code = x * (127 / largest) to the nearest, ties to even.
TEST_P(QuantizeTest, IsTheDocumentedRounding) {
  if (!backend().wants_int8(DType::kQ8_0)) return;
  Random random(41);
  const Activations x =
      activations_of(backend(), uniform_floats(random, 64 * 32, -3.0f, 3.0f), 32, true);
  for (size_t g = 0; g < 64; ++g) {
    const QuantizedGroup group = group_of(x, g);
    float largest = 0.0f;
    for (const float value : group.floats) largest = std::max(largest, std::fabs(value));
    EXPECT_EQ(group.scale, largest / 127.0f);
    const float inverse = 127.0f / largest;
    for (size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(static_cast<float>(group.codes[i]), std::nearbyint(group.floats[i] * inverse));
    }
  }
}

TEST_P(QuantizeTest, TiesGoToEven) {
  if (!backend().wants_int8(DType::kQ8_0)) return;
  std::vector<float> values(32);
  for (size_t i = 0; i < 32; ++i) values[i] = static_cast<float>(i) - 15.5f;
  values[0] = 127.0f;  // so that the scale is 1
  const Activations x = activations_of(backend(), values, 32, true);
  const QuantizedGroup g = group_of(x, 0);
  EXPECT_EQ(g.scale, 1.0f);
  EXPECT_EQ(g.codes[0], 127);
  for (size_t i = 1; i < 32; ++i) {
    EXPECT_EQ(g.codes[i] % 2, 0) << values[i];
    EXPECT_EQ(std::fabs(static_cast<float>(g.codes[i]) - values[i]), 0.5f) << values[i];
  }
  expect_sums_and_range(g);
}

TEST_P(QuantizeTest, ZeroAndTinyRows) {
  if (!backend().wants_int8(DType::kQ8_0)) return;
  Random random(42);
  const std::vector<float> sizes = {0.0f,   1.4e-45f, 1e-44f, 1e-41f, 1e-38f, 1.2e-38f,
                                    1e-37f, 3.7e-37f, 4e-37f, 1e-36f, 1e-35f, 1e-33f};
  for (const float size : sizes) {
    std::vector<float> values = uniform_floats(random, 32, -1.0f, 1.0f);
    values[7] = -1.0f;
    for (float& value : values) value *= size;
    const Activations x = activations_of(backend(), values, 32, true);
    SCOPED_TRACE(testing::Message() << "largest " << size);
    EXPECT_TRUE(std::isfinite(x.scales.as<float>()[0]));
    EXPECT_GE(x.scales.as<float>()[0], 0.0f);
    expect_faithful(group_of(x, 0));
  }
}

TEST_P(QuantizeTest, LargestRows) {
  if (!backend().wants_int8(DType::kQ8_0)) return;
  std::vector<float> values(32, std::numeric_limits<float>::max());
  for (size_t i = 0; i < 32; i += 3) values[i] = -values[i];
  expect_faithful(group_of(activations_of(backend(), values, 32, true), 0));
}

// Products of what is not a number must not look like numbers.
TEST_P(QuantizeTest, NonFiniteValuesShowInTheScale) {
  if (!backend().wants_int8(DType::kQ8_0)) return;
  Random random(43);
  for (const float odd : {kInf, -kInf, std::nanf("")}) {
    for (size_t place = 0; place < 32; ++place) {
      std::vector<float> values = uniform_floats(random, 96, -1.0f, 1.0f);
      values[32 + place] = odd;
      const Activations x = activations_of(backend(), values, 96, true);
      EXPECT_TRUE(std::isnan(group_of(x, 1).scale)) << odd << " at " << place;
      expect_sums_and_range(group_of(x, 1));
      expect_faithful(group_of(x, 0));
      expect_faithful(group_of(x, 2));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeTest, testing::ValuesIn(kAllIsas), isa_test_name);

void expect_relative(double actual, double expected, double relative) {
  EXPECT_LE(std::fabs(actual - expected), relative * std::fabs(expected) + 1e-37)
      << actual << " instead of " << expected;
}

// The codes of `out`, if any, are those that quantize() makes of its floats.
void expect_codes_follow(const Backend& backend, const Activations& out) {
  if (!backend.wants_int8(DType::kQ8_0)) return;
  const Activations again = activations_of(
      backend, out.floats.as<float>().first(static_cast<size_t>(out.rows * out.k)), out.k, true);
  for (size_t g = 0; g < static_cast<size_t>(out.rows * out.k / 32); ++g) {
    const QuantizedGroup a = group_of(out, g), b = group_of(again, g);
    EXPECT_TRUE(std::equal(a.codes.begin(), a.codes.end(), b.codes.begin()));
    EXPECT_EQ(a.scale, b.scale);
    EXPECT_EQ(a.first_sum, b.first_sum);
    EXPECT_EQ(a.sum, b.sum);
  }
}

using RmsNormTest = IsaTest;

TEST_P(RmsNormTest, CloseToDouble) {
  Random random(44);
  constexpr int64_t kRows = 5;
  for (const int64_t k : {1, 7, 16, 33, 100, 576, 2048}) {
    for (const float size : {1e-3f, 1.0f, 1e6f}) {
      const int64_t stride = k + 9;
      const Fenced<float> x(uniform_floats(random, (kRows - 1) * stride + k, -size, size));
      const Fenced<float> weight(uniform_floats(random, k, -2.0f, 2.0f));
      const bool int8 = k % 32 == 0;
      Activations out =
          activations_of(backend(), std::vector<float>(static_cast<size_t>(kRows * k)), k, int8);
      backend().rms_norm(pool_of(2), x.data(), stride, weight.data(), 1e-6, out);
      for (int64_t r = 0; r < kRows; ++r) {
        const float* in = x.data() + r * stride;
        double squares = 0.0;
        for (int64_t i = 0; i < k; ++i) squares += double{in[i]} * double{in[i]};
        const double root = std::sqrt(squares / static_cast<double>(k) + 1e-6);
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
  Activations out = activations_of(backend(), std::vector<float>(64, 1.0f), 64, true);
  backend().rms_norm(pool_of(1), x.data(), 64, weight.data(), 1e-5, out);
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(out.row(0)[i], 0.0f);
}

INSTANTIATE_TEST_SUITE_P(All, RmsNormTest, testing::ValuesIn(kAllIsas), isa_test_name);

using SiluMulTest = IsaTest;

double silu(double g) {
  return g / (1.0 + std::exp(-g));
}

TEST_P(SiluMulTest, CloseToDouble) {
  Random random(45);
  constexpr int64_t kRows = 3;
  for (const int64_t k : {1, 7, 33, 100, 576, 1536}) {
    const Fenced<float> gate(uniform_floats(random, kRows * k, -20.0f, 20.0f));
    const Fenced<float> up(uniform_floats(random, kRows * k, -2.0f, 2.0f));
    const bool int8 = k % 32 == 0;
    Activations out =
        activations_of(backend(), std::vector<float>(static_cast<size_t>(kRows * k)), k, int8);
    backend().silu_mul(pool_of(3), gate.data(), up.data(), out);
    for (int64_t i = 0; i < kRows * k; ++i) {
      expect_relative(double{out.row(0)[i]}, silu(double{gate.data()[i]}) * double{up.data()[i]},
                      5e-7);
    }
    if (int8) expect_codes_follow(backend(), out);
  }
}

// With up = 1 and a gate far below 0, silu is gate * e^gate: the exponential itself is on trial.
TEST_P(SiluMulTest, ExponentialOverItsWholeRange) {
  std::vector<float> gate;
  for (int i = 0; i < 48000; ++i) gate.push_back(-86.99f + 0.0037f * static_cast<float>(i));
  const std::vector<float> up(gate.size(), 1.0f);
  const auto k = static_cast<int64_t>(gate.size());
  Activations out = activations_of(backend(), std::vector<float>(gate.size()), k, false);
  backend().silu_mul(pool_of(1), gate.data(), up.data(), out);
  for (size_t i = 0; i < gate.size(); ++i) {
    expect_relative(double{out.row(0)[i]}, silu(double{gate[i]}), 4e-7);
  }
}

TEST_P(SiluMulTest, ExtremeGates) {
  const std::vector<float> gate = {0.0f, -0.0f,  1e-40f, -1e-40f, -88.0f,       -1e4f,
                                   1e4f, -3e38f, 3e38f,  kInf,    std::nanf("")};
  const std::vector<float> up(gate.size(), 1.0f);
  Activations out = activations_of(backend(), std::vector<float>(gate.size()),
                                   static_cast<int64_t>(gate.size()), false);
  backend().silu_mul(pool_of(1), gate.data(), up.data(), out);
  for (size_t i = 0; i + 2 < gate.size(); ++i) {
    EXPECT_NEAR(double{out.row(0)[i]}, silu(double{gate[i]}),
                1e-6 * std::fabs(double{gate[i]}) * (gate[i] > 0.0f ? 1.0 : 1e-30))
        << gate[i];
  }
  EXPECT_EQ(out.row(0)[gate.size() - 2], kInf);
  EXPECT_TRUE(std::isnan(out.row(0)[gate.size() - 1]));
}

INSTANTIATE_TEST_SUITE_P(All, SiluMulTest, testing::ValuesIn(kAllIsas), isa_test_name);

using RopeTest = IsaTest;

TEST_P(RopeTest, TurnsPairsAndKeepsTheRest) {
  Random random(46);
  constexpr int64_t kRows = 6;
  constexpr int kHeads = 3;
  for (const auto& [head_dim, dimensions] :
       {std::pair{16, 16}, {32, 24}, {64, 64}, {80, 32}, {128, 2}, {256, 256}, {64, 0}}) {
    const int64_t turns = dimensions / 2;
    std::vector<float> cos, sin;
    for (int64_t i = 0; i < kRows * turns; ++i) {
      const float angle = random.uniform(-4000.0f, 4000.0f);
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
    const Fenced<float> cosines(cos), sines(sin);
    const std::vector<float> before =
        uniform_floats(random, kRows * kHeads * head_dim, -3.0f, 3.0f);
    Fenced<float> x(before);
    backend().rope(pool_of(2), x.data(), kRows, kHeads, head_dim, dimensions, cosines.data(),
                   sines.data());
    for (int64_t i = 0; i < static_cast<int64_t>(before.size()); i += 2) {
      const int64_t row = i / (kHeads * head_dim), pair = i % head_dim / 2;
      const double a = double{before[static_cast<size_t>(i)]};
      const double b = double{before[static_cast<size_t>(i) + 1]};
      if (pair >= turns) {
        EXPECT_EQ(double{x[i]}, a);
        EXPECT_EQ(double{x[i + 1]}, b);
        continue;
      }
      const double c = double{cos[static_cast<size_t>(row * turns + pair)]};
      const double s = double{sin[static_cast<size_t>(row * turns + pair)]};
      EXPECT_NEAR(double{x[i]}, a * c - b * s, 1e-6);
      EXPECT_NEAR(double{x[i + 1]}, a * s + b * c, 1e-6);
      EXPECT_NEAR(std::hypot(double{x[i]}, double{x[i + 1]}), std::hypot(a, b), 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RopeTest, testing::ValuesIn(kAllIsas), isa_test_name);

}  // namespace
}  // namespace aerie::kernels
