#include "sampling/weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace aerie::weight_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Weight, ExpIsAccurate) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> uniform(0, 1);
  double worst = 0;
  for (int i = 0; i < 500000; ++i) {
    const double x = -700 * std::pow(uniform(random), 1 + i % 12);
    const long double exact = std::exp(static_cast<long double>(x));
    const double nearest = static_cast<double>(exact);
    const double ulp = std::nextafter(nearest, kInfinity) - nearest;
    worst = std::max(
        worst,
        static_cast<double>(std::abs(static_cast<long double>(exp_nonpositive(x)) - exact) / ulp));
  }
  EXPECT_LT(worst, 1.5);
}

TEST(Weight, ExpAtTheEnds) {
  EXPECT_EQ(exp_nonpositive(0.0), 1.0);
  EXPECT_EQ(exp_nonpositive(-0.0), 1.0);
  EXPECT_GT(exp_nonpositive(-707.9), 0.0);
  EXPECT_EQ(exp_nonpositive(-708.1), 0.0);
  EXPECT_EQ(exp_nonpositive(-1e300), 0.0);
  EXPECT_EQ(exp_nonpositive(-kInfinity), 0.0);
  EXPECT_EQ(exp_nonpositive(std::numeric_limits<double>::quiet_NaN()), 0.0);
  EXPECT_LE(exp_nonpositive(-1e-17), 1.0);
}

TEST(Weight, ScaledLogitSurvivesExtremes) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  EXPECT_EQ(scaled_logit(3.0f, 3.0f, 1e-320), 0.0);
  EXPECT_EQ(scaled_logit(2.0f, 3.0f, 1e-320), -kInfinity);
  EXPECT_EQ(scaled_logit(-kLargest, kLargest, 1.0), -2.0 * kLargest);
  EXPECT_EQ(scaled_logit(1.0f, 3.0f, 2.0), -1.0);
}

// Lane by lane: the sum is that of single weights in the documented order, to the bit.
TEST(Weight, SumIsThatOfSingleWeights) {
  std::mt19937_64 random(12);
  std::normal_distribution<float> normal(0, 4);
  for (size_t size = 1; size < 300; size += 1 + size / 20) {
    std::vector<float> logits(size);
    for (float& x : logits) x = normal(random);
    if (size > 5) logits[3] = -std::numeric_limits<float>::infinity();
    if (size > 5) logits[4] = std::numeric_limits<float>::quiet_NaN();
    float best = -1e30f;
    for (const float x : logits) best = x > best ? x : best;
    double lanes[8] = {};
    for (size_t i = 0; i < size; ++i) {
      lanes[i % 8] += exp_nonpositive(scaled_logit(logits[i], best, 0.7));
    }
    const double even = (lanes[0] + lanes[2]) + (lanes[4] + lanes[6]);
    const double odd = (lanes[1] + lanes[3]) + (lanes[5] + lanes[7]);
    EXPECT_EQ(sum_weights(logits, best, 0.7), even + odd) << size;
  }
}

}  // namespace aerie::weight_test
