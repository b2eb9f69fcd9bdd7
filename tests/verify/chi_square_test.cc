#include "tests/verify/chi_square.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace aerie::stats::chi_square_test {

TEST(ChiSquare, TailMatchesClosedForms) {
  // Two degrees: exp(-x / 2). One: erfc(sqrt(x / 2)). Four: (1 + x / 2) exp(-x / 2).
  for (const double x : {0.01, 0.5, 1.0, 3.0, 10.0, 40.0, 200.0}) {
    EXPECT_NEAR(chi_square_tail(x, 2) / std::exp(-x / 2), 1.0, 1e-12) << x;
    EXPECT_NEAR(chi_square_tail(x, 1) / std::erfc(std::sqrt(x / 2)), 1.0, 1e-12) << x;
    EXPECT_NEAR(chi_square_tail(x, 4) / ((1 + x / 2) * std::exp(-x / 2)), 1.0, 1e-12) << x;
  }
  EXPECT_EQ(chi_square_tail(0, 3), 1.0);
}

TEST(ChiSquare, CriticalValuesMatchTables) {
  EXPECT_NEAR(chi_square_critical(1, 0.05), 3.841458821, 1e-8);
  EXPECT_NEAR(chi_square_critical(10, 0.01), 23.20925116, 1e-7);
  EXPECT_NEAR(chi_square_critical(100, 0.001), 149.4492531, 1e-6);
}

// P(X > x) for one degree is P(|Z + sqrt(lambda)| > sqrt(x)).
TEST(ChiSquare, NoncentralTailMatchesShiftedNormal) {
  const auto normal_tail = [](double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); };
  for (const double lambda : {0.0, 0.3, 4.0, 25.0, 90.0}) {
    for (const double x : {0.1, 2.0, 9.0, 60.0}) {
      const double shift = std::sqrt(lambda);
      const double expected = normal_tail(std::sqrt(x) - shift) + normal_tail(std::sqrt(x) + shift);
      EXPECT_NEAR(noncentral_chi_square_tail(x, 1, lambda), expected, 1e-12) << lambda << " " << x;
    }
  }
}

TEST(ChiSquare, NoncentralityReachesPower) {
  for (const double degrees : {1.0, 5.0, 215.0}) {
    const double lambda = noncentrality_for_power(degrees, 1e-6, 0.999);
    const double critical = chi_square_critical(degrees, 1e-6);
    EXPECT_NEAR(noncentral_chi_square_tail(critical, degrees, lambda), 0.999, 1e-9);
    EXPECT_LT(noncentral_chi_square_tail(critical, degrees, lambda * 0.99), 0.999);
  }
}

int rejections(const std::vector<double>& right, const std::vector<double>& sampled,
               ChiSquareSettings settings, int trials) {
  std::mt19937_64 random(7);
  std::discrete_distribution<size_t> draw(sampled.begin(), sampled.end());
  const ChiSquareTest fresh(right, settings);
  int rejected = 0;
  for (int t = 0; t < trials; ++t) {
    ChiSquareTest test = fresh;
    for (int64_t i = 0; i < test.samples(); ++i) test.add(draw(random));
    rejected += test.result().rejected ? 1 : 0;
  }
  return rejected;
}

TEST(ChiSquareTest, RejectsTheRightSamplerAsOftenAsStated) {
  const std::vector<double> right = {0.4, 0.3, 0.15, 0.1, 0.04, 0.01};
  ChiSquareSettings settings;
  settings.alpha = 0.05;
  settings.power = 0.9;
  const int trials = 1000;
  const int rejected = rejections(right, right, settings, trials);
  EXPECT_NEAR(rejected, 50, 5 * std::sqrt(trials * 0.05 * 0.95));
}

// The bias that is hardest to see for its total variation has |d_i| proportional to p_i.
TEST(ChiSquareTest, RejectsTheLeastFavourableBiasWithTheStatedPower) {
  const std::vector<double> right = {0.3, 0.2, 0.2, 0.2, 0.1};
  std::vector<double> wrong = right;
  for (size_t i = 0; i < wrong.size(); ++i) wrong[i] *= i < 2 ? 1.04 : 0.96;
  double distance = 0;
  for (size_t i = 0; i < wrong.size(); ++i) distance += std::abs(wrong[i] - right[i]) / 2;
  ASSERT_NEAR(distance, 0.02, 1e-12);

  ChiSquareSettings settings;
  settings.power = 0.9;
  const int trials = 300;
  EXPECT_NEAR(rejections(right, wrong, settings, trials), 270, 5 * std::sqrt(trials * 0.09));
  EXPECT_GE(rejections(right, wrong, ChiSquareSettings(), trials), trials - 3);
}

TEST(ChiSquareTest, PoolsRareCellsAndStillSeesTheBias) {
  std::vector<double> right(200, 0.0);
  for (size_t i = 0; i < right.size(); ++i) right[i] = std::pow(0.9, static_cast<double>(i));
  const double sum = std::accumulate(right.begin(), right.end(), 0.0);
  for (double& p : right) p /= sum;
  std::vector<double> wrong = right;
  for (size_t i = 0; i < wrong.size(); ++i) wrong[i] *= i % 2 == 0 ? 0.915 : 1.0;
  const ChiSquareTest test(right);
  EXPECT_LT(test.degrees(), 199);
  EXPECT_EQ(rejections(right, right, ChiSquareSettings(), 20), 0);
  EXPECT_EQ(rejections(right, wrong, ChiSquareSettings(), 20), 20);
}

TEST(ChiSquareTest, RejectsTheImpossible) {
  ChiSquareTest test({0.5, 0.5, 0.0});
  test.add(0, 500);
  test.add(1, 500);
  EXPECT_FALSE(test.result().rejected);
  test.add(2);
  EXPECT_TRUE(test.result().rejected);
}

TEST(ChiSquareTest, OneCertainCell) {
  ChiSquareTest test({0.0, 1.0});
  EXPECT_EQ(test.degrees(), 0);
  test.add(1, test.samples());
  EXPECT_FALSE(test.result().rejected);
  test.add(0);
  EXPECT_TRUE(test.result().rejected);
}

}  // namespace aerie::stats::chi_square_test
