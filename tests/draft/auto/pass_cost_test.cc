#include "draft/auto/pass_cost.h"

#include <gtest/gtest.h>

#include "tests/testing/decoding.h"
#include "tests/testing/tiny_model.h"

namespace aerie::pass_cost_test {

PassCost some_cost() {
  return PassCost({{1, 4e-3, 1e-6}, {5, 6e-3, 3e-6}, {9, 12e-3, 5e-6}});
}

TEST(PassCost, IsInterpolatedAndGoesOnAsItRose) {
  const PassCost cost = some_cost();
  EXPECT_NEAR(cost.seconds({1, 1, 0}), 4e-3, 1e-12);
  EXPECT_NEAR(cost.seconds({3, 1, 0}), 5e-3, 1e-12);
  EXPECT_NEAR(cost.seconds({9, 1, 0}), 12e-3, 1e-12);
  EXPECT_NEAR(cost.seconds({13, 1, 0}), 18e-3, 1e-12);
  // And so does what a position of context costs.
  EXPECT_NEAR(cost.seconds({3, 1, 1000}), 7e-3, 1e-12);
  EXPECT_NEAR(cost.seconds({13, 1, 1000}), 18e-3 + 7e-3, 1e-12);
}

TEST(PassCost, EverySequenceReadsItsOwnContext) {
  const PassCost cost = some_cost();
  EXPECT_NEAR(cost.seconds({5, 5, 1000}), 6e-3 + 5 * 1e-3, 1e-12);
  EXPECT_NEAR(cost.seconds({6, 2, 1000}), 7.5e-3 + 2 * 2e-3, 1e-12);  // three rows each
}

TEST(PassCost, OfOnePointIsTheSameForAnyRows) {
  const PassCost cost({{1, 4e-3, 0.0}});
  EXPECT_EQ(cost.seconds({1, 1, 0}), cost.seconds({40, 1, 0}));
}

TEST(PassCost, LearnsWhatPassesTake) {
  PassCost cost = some_cost();
  for (int i = 0; i < 300; ++i) cost.learn({5, 1, 100}, 9e-3);
  EXPECT_NEAR(cost.seconds({5, 1, 100}), 9e-3, 1e-4);
  // A busier machine is busier for all: the others have followed, if not all the way.
  EXPECT_GT(cost.seconds({1, 1, 100}), 5e-3);
  EXPECT_LT(cost.seconds({1, 1, 100}), 4.1e-3 * 9 / 6);
}

TEST(PassCost, OneDisturbedPassMovesLittle) {
  PassCost cost = some_cost();
  cost.learn({5, 1, 0}, 1.0);
  EXPECT_LT(cost.seconds({5, 1, 0}), 6e-3 * 1.03);
  cost.learn({5, 1, 0}, 0.0);  // a clock that stood still says nothing
  EXPECT_GT(cost.seconds({5, 1, 0}), 6e-3);
}

TEST(PassCost, IsMeasured) {
  const test::TinyFile file(test::TinySpec{});
  ModelOptions options = test::model_options(1);
  options.max_logits = 32;
  const auto model = file.load(options);
  DecoderOptions decoder;
  decoder.max_positions = 512;
  KvCache cache = test::cache_for(*model, decoder, 1);
  const int pages = cache.free_pages();
  const auto cost = measure_pass_cost(*model, cache, {.max_rows = 32});
  ASSERT_TRUE(cost.ok()) << cost.status().message();
  EXPECT_EQ(cache.free_pages(), pages);
  EXPECT_TRUE(cache.open().ok());  // the one place is free
  EXPECT_EQ(cost->points().front().rows, 1);
  EXPECT_EQ(cost->points().back().rows, 32);
  for (size_t i = 1; i < cost->points().size(); ++i) {
    EXPECT_GT(cost->points()[i].rows, cost->points()[i - 1].rows);
    EXPECT_GE(cost->points()[i].seconds, cost->points()[i - 1].seconds);
  }
  EXPECT_GT(cost->seconds({32, 1, 0}), cost->seconds({1, 1, 0}));
}

TEST(PassCost, IsMeasuredInTheLeastCache) {
  const test::TinyFile file(test::TinySpec{});
  const auto model = file.load(test::model_options(1));
  DecoderOptions decoder;
  decoder.max_positions = 2;
  KvCache cache = test::cache_for(*model, decoder, 1);
  const auto cost = measure_pass_cost(*model, cache, {.max_rows = 1});
  ASSERT_TRUE(cost.ok()) << cost.status().message();
  EXPECT_GT(cost->seconds({1, 1, 0}), 0);
  // No room is an error, not a guess.
  ASSERT_TRUE(cache.open().ok());
  EXPECT_EQ(measure_pass_cost(*model, cache, {.max_rows = 1}).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace aerie::pass_cost_test
