#include "sampling/adjust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/sampling/reference.h"

namespace aerie::adjust_test {

using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

TEST(Adjust, HandsUntouchedLogitsThrough) {
  LogitAdjuster adjuster(3);
  const std::vector<float> logits = {1, 2, 3};
  const std::vector<int32_t> history = {0, 1};
  EXPECT_EQ(adjuster.adjust(logits, {}, {history, {}, nullptr}).data(), logits.data());
  SamplingParams params;
  params.repetition_penalty = 2.0;
  params.penalty_window = 0;
  EXPECT_EQ(adjuster.adjust(logits, params, {history, {}, nullptr}).data(), logits.data());
}

TEST(Adjust, RepetitionDividesPositiveAndMultipliesNegative) {
  LogitAdjuster adjuster(4);
  SamplingParams params;
  params.repetition_penalty = 2.0;
  const std::vector<int32_t> history = {0, 1, 0, 3};
  EXPECT_THAT(adjuster.adjust(std::vector<float>{4, -4, 4, 0}, params, {history, {}, nullptr}),
              ElementsAre(2, -8, 4, 0));
}

TEST(Adjust, FrequencyCountsAndPresenceDoesNot) {
  LogitAdjuster adjuster(3);
  SamplingParams params;
  params.frequency_penalty = 1.0;
  params.presence_penalty = 0.25;
  const std::vector<int32_t> committed = {0, 1, 0};
  const std::vector<int32_t> path = {0};
  EXPECT_THAT(adjuster.adjust(std::vector<float>{0, 0, 0}, params, {committed, path, nullptr}),
              ElementsAre(-3.25, -1.25, 0));
  // The counts were left at zero.
  EXPECT_THAT(adjuster.adjust(std::vector<float>{0, 0, 0}, params, {committed, {}, nullptr}),
              ElementsAre(-2.25, -1.25, 0));
}

TEST(Adjust, WindowTakesTheNewest) {
  LogitAdjuster adjuster(5);
  SamplingParams params;
  params.presence_penalty = 1.0;
  params.penalty_window = 3;
  const std::vector<int32_t> committed = {0, 1, 2};
  const std::vector<int32_t> path = {3};
  const std::vector<float> logits(5, 0.0f);
  EXPECT_THAT(adjuster.adjust(logits, params, {committed, path, nullptr}),
              ElementsAre(0, -1, -1, -1, 0));
  const std::vector<int32_t> long_path = {4, 4, 0, 0};
  EXPECT_THAT(adjuster.adjust(logits, params, {committed, long_path, nullptr}),
              ElementsAre(-1, 0, 0, 0, -1));
  params.penalty_window = -1;
  EXPECT_THAT(adjuster.adjust(logits, params, {committed, path, nullptr}),
              ElementsAre(-1, -1, -1, -1, 0));
}

TEST(Adjust, BiasComesBeforePenaltiesAndMaskAfterBias) {
  LogitAdjuster adjuster(3);
  SamplingParams params;
  params.repetition_penalty = 2.0;
  params.logit_bias = {{0, 5.0f}, {1, -kInfinity}, {2, 100.0f}, {0, 1.0f}};
  const SetConstraint constraint({true, true, false});
  const std::vector<int32_t> history = {0};
  EXPECT_THAT(adjuster.adjust(std::vector<float>{-4, 1, 1}, params, {history, {}, &constraint}),
              ElementsAre(1, -kInfinity, -kInfinity));
}

TEST(Adjust, StaysWithinFloats) {
  LogitAdjuster adjuster(4);
  EXPECT_THAT(adjuster.adjust(std::vector<float>{kInfinity, 1, -kInfinity, 2}, {}, {}),
              ElementsAre(kLargest, 1, -kInfinity, 2));
  SamplingParams params;
  params.repetition_penalty = 1e-30;
  params.presence_penalty = -1e308;
  params.frequency_penalty = -1e308;
  const std::vector<int32_t> history = {0, 1, 2, 2};
  EXPECT_THAT(
      adjuster.adjust(std::vector<float>{1e30f, -1, -kInfinity, 2}, params, {history, {}, nullptr}),
      ElementsAre(kLargest, kLargest, testing::_, 2));
  params.presence_penalty = 1e300;
  params.frequency_penalty = 0;
  EXPECT_THAT(
      adjuster.adjust(std::vector<float>{1, -1, -kInfinity, 2}, params, {history, {}, nullptr}),
      ElementsAre(-kLargest, -kLargest, -kInfinity, 2));
}

TEST(Adjust, PassesOverForeignIds) {
  LogitAdjuster adjuster(2);
  SamplingParams params;
  params.presence_penalty = 1.0;
  const std::vector<int32_t> history = {-1, 2, 1, 2147483647};
  EXPECT_THAT(adjuster.adjust(std::vector<float>{0, 0}, params, {history, {}, nullptr}),
              ElementsAre(0, -1));
}

TEST(Adjust, FallbackPrefersAllowedThenUnbanned) {
  LogitAdjuster adjuster(4);
  SamplingParams params;
  EXPECT_EQ(adjuster.fallback(params, nullptr), 0);
  params.logit_bias = {{0, -kInfinity}, {2, -kInfinity}};
  EXPECT_EQ(adjuster.fallback(params, nullptr), 1);
  const SetConstraint two({false, false, true, true});
  EXPECT_EQ(adjuster.fallback(params, &two), 3);
  const SetConstraint one({false, false, true, false});
  EXPECT_EQ(adjuster.fallback(params, &one), 2);
}

}  // namespace aerie::adjust_test
