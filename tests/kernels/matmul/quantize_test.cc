// Activations in 8 bits.
#include <cmath>
#include <limits>

#include "tests/kernels/row_ops_testing.h"

namespace aerie::kernels::quantize_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
// Groups of smaller values than this are rounded to 0: their scale would be no normal number.
constexpr double kNegligible = 1e-35;

using QuantizeTest = IsaTest;

void expect_sums_and_range(const QuantizedGroup& g) {
  int first = 0, all = 0;
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_GE(g.codes[i], -127);
    if (i < 16) first += g.codes[i];
    all += g.codes[i];
  }
  const int sums[] = {first, all - first, all};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(g.sums[i], sums[i]);
    EXPECT_TRUE(same_bits(g.scaled_sums[i], g.scale * static_cast<float>(sums[i])));
  }
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

}  // namespace aerie::kernels::quantize_test
