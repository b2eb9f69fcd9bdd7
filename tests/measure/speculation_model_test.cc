#include "measure/spec/speculation_model.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace aerie::measure::speculation_model_test {

TEST(SpeculationModel, ExpectedTokens) {
  EXPECT_DOUBLE_EQ(expected_tokens(0.0, 5), 1.0);
  EXPECT_DOUBLE_EQ(expected_tokens(1.0, 5), 6.0);
  EXPECT_DOUBLE_EQ(expected_tokens(0.7, 0), 1.0);
  EXPECT_DOUBLE_EQ(expected_tokens(0.5, 4), 1.9375);
  EXPECT_NEAR(expected_tokens(0.7, 4), 2.7731, 1e-12);
  EXPECT_NEAR(expected_tokens(0.9, 4), 4.0951, 1e-12);
}

// The formula against rounds that are played.
TEST(SpeculationModel, ExpectedTokensAreTheMeanOfRounds) {
  std::mt19937 random(7);
  constexpr int kRounds = 200000, kDrafted = 4;
  constexpr double kAlpha = 0.7;
  int64_t tokens = 0;
  for (int round = 0; round < kRounds; ++round) {
    int accepted = 0;
    while (accepted < kDrafted && static_cast<double>(random()) < kAlpha * 0x1.0p32) ++accepted;
    tokens += accepted + 1;
  }
  // The deviation of a round is below 1.6, that of the mean below 0.004.
  EXPECT_NEAR(static_cast<double>(tokens) / kRounds, expected_tokens(kAlpha, kDrafted), 0.02);
}

TEST(SpeculationModel, DepthsOfTheirOwn) {
  EXPECT_DOUBLE_EQ(expected_tokens(std::span<const double>()), 1.0);
  EXPECT_DOUBLE_EQ(expected_tokens(std::array{0.5, 0.5, 0.5}), expected_tokens(0.5, 3));
  EXPECT_DOUBLE_EQ(expected_tokens(std::array{0.8, 0.5, 0.25}), 1.0 + 0.8 + 0.4 + 0.1);
  EXPECT_DOUBLE_EQ(expected_tokens(std::array{0.8, 0.0, 1.0}), 1.8);
}

TEST(SpeculationModel, RoundsThatDraftUnequally) {
  EXPECT_DOUBLE_EQ(expected_tokens(0.5, std::array{1.0, 1.0, 1.0}), expected_tokens(0.5, 3));
  // Half of the rounds draft two tokens, the others none.
  EXPECT_DOUBLE_EQ(expected_tokens(0.5, std::array{0.5, 0.5}),
                   0.5 * expected_tokens(0.5, 2) + 0.5 * expected_tokens(0.5, 0));
}

TEST(SpeculationModel, Speedup) {
  EXPECT_DOUBLE_EQ(speedup(0.5, 0, 0.3), 1.0);
  EXPECT_DOUBLE_EQ(speedup(0.5, 4, 0.0), 1.9375);
  EXPECT_DOUBLE_EQ(speedup(0.5, 2, 0.1), 1.75 / 1.2);
  // Corollary 3.9: one drafted token gives (1 + alpha) / (1 + c).
  EXPECT_DOUBLE_EQ(speedup(0.8, 1, 0.2), 1.8 / 1.2);
  EXPECT_DOUBLE_EQ(speedup_of_round(3.0, 4, 0.25, 1.5), 3.0 / 2.5);
  EXPECT_DOUBLE_EQ(speedup_of_round(expected_tokens(0.6, 3), 3, 0.1, 1.0), speedup(0.6, 3, 0.1));
}

TEST(SpeculationModel, BestNumberOfDraftedTokens) {
  struct Case {
    double alpha, cost;
    int best;
  };
  constexpr Case kCases[] = {{0.5, 0.01, 5},  {0.5, 0.05, 3},  {0.5, 0.1, 2},  {0.5, 0.2, 1},
                             {0.7, 0.01, 9},  {0.7, 0.05, 6},  {0.7, 0.1, 4},  {0.7, 0.2, 3},
                             {0.9, 0.01, 24}, {0.9, 0.05, 13}, {0.9, 0.1, 10}, {0.9, 0.2, 7}};
  for (const Case& c : kCases) {
    EXPECT_EQ(best_drafted(c.alpha, c.cost, 64), c.best) << c.alpha << " " << c.cost;
  }
}

TEST(SpeculationModel, NothingIsDraftedWhereNothingIsGained) {
  EXPECT_EQ(best_drafted(0.3, 0.3, 64), 0);
  EXPECT_EQ(best_drafted(0.0, 0.0, 64), 0);
  EXPECT_EQ(best_drafted(0.3, 0.29, 64), 1);
  EXPECT_EQ(best_drafted(0.9, 0.1, 3), 3);  // no more than allowed
  EXPECT_EQ(best_drafted(0.9, 0.1, 0), 0);
}

}  // namespace aerie::measure::speculation_model_test
