#include "draft/auto/pass_cost.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/import/hugging_face_file.h"
#include "tests/decode/faults/fetching_model.h"
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

// Rows of a mixture of experts are dear as far as each reads experts of its own.
TEST(PassCost, LearnsHowManyExpertsRowsShare) {
  const PassCost::Point one = {1, 10e-3, 0.0, 100.0, 50e-6};
  const PassCost::Point eight = {8, 31e-3, 0.0, 500.0, 50e-6};  // 400 experts more: 20 ms of 21
  PassCost cost({one, eight});
  EXPECT_NEAR(cost.seconds({8, 1, 0}), 31e-3, 1e-12);
  EXPECT_EQ(cost.expert_share(), 1.0);
  for (int i = 0; i < 20; ++i) cost.learn({8, 1, 0}, 16e-3, 200);  // a quarter of the 400
  EXPECT_NEAR(cost.expert_share(), 0.25, 0.01);
  EXPECT_NEAR(cost.seconds({8, 1, 0}), 16e-3, 0.2e-3);
  // Rows that were never run have become cheaper, too; one row has not.
  const PassCost before({one, eight});
  EXPECT_LT(cost.seconds({4, 1, 0}), 0.75 * before.seconds({4, 1, 0}));
  EXPECT_NEAR(cost.seconds({1, 1, 0}), 10e-3, 0.1e-3);
  // Passes of one row say nothing of what several share.
  for (int i = 0; i < 20; ++i) cost.learn({1, 1, 0}, 10e-3, 100);
  EXPECT_NEAR(cost.expert_share(), 0.25, 0.01);
}

TEST(PassCost, JudgesAPassByTheExpertsThatItRead) {
  const PassCost::Point one = {1, 10e-3, 0.0, 100.0, 50e-6};
  PassCost cost({one, {8, 31e-3, 0.0, 500.0, 50e-6}});
  // Some passes share more, some less, and each takes as long as it should.
  for (int i = 0; i < 100; ++i) {
    const int further = i % 2 == 0 ? 100 : 300;
    cost.learn({8, 1, 0}, 11e-3 + further * 50e-6, 100 + further);
  }
  EXPECT_NEAR(cost.seconds({1, 1, 0}), 10e-3, 0.1e-3) << "the machine is as fast as before";
  EXPECT_NEAR(cost.seconds({8, 1, 0}), 21e-3, 1e-3);
}

TEST(PassCost, CountsTheExpertsOfAModel) {
  const auto file = open_model_file("tests/golden/families/qwen3-moe");
  ASSERT_TRUE(file.ok()) << file.status().message();
  ModelOptions options = test::model_options(1);
  options.max_logits = 32;
  const auto model = load_model(**file, options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  DecoderOptions decoder;
  decoder.max_positions = 64;
  const ModelCache owned_cache = test::cache_for(**model, decoder, 1);
  KvCache& cache = *owned_cache;
  const auto cost = measure_pass_cost(**model, cache, {16, 0.05});
  ASSERT_TRUE(cost.ok()) << cost.status().message();
  const ModelConfig& config = (*model)->config();
  EXPECT_EQ(cost->points().front().experts, config.used_experts * config.layers);
  EXPECT_GT(cost->points().back().experts, cost->points().front().experts);
  EXPECT_LE(cost->points().back().experts, config.experts * config.layers);
}

TEST(PassCost, IsMeasured) {
  const test::TinyFile file(test::TinySpec{});
  ModelOptions options = test::model_options(1);
  options.max_logits = 32;
  const auto model = file.load(options);
  DecoderOptions decoder;
  decoder.max_positions = 512;
  const ModelCache owned_cache = test::cache_for(*model, decoder, 1);
  KvCache& cache = *owned_cache;
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

// The cache of several sequences has room for longer ones than the model was made for.
TEST(PassCost, NoSequenceIsLongerThanTheModelsOwn) {
  test::TinySpec spec;
  spec.context = 4096;
  const test::TinyFile file(spec);
  ModelOptions options = test::model_options(1);
  options.max_positions = 128;
  const auto model = file.load(options);
  int32_t last = 0;
  const auto look = [&](const ForwardBatch& batch, int) {
    for (const BatchRow& row : batch.rows) last = std::max(last, row.position);
    return last >= options.max_positions;  // and is not computed
  };
  test::FetchingModel::Counts counts;
  test::FetchingModel watched(*model, {.fails = look}, counts);
  DecoderOptions decoder;
  decoder.max_positions = 128;
  const ModelCache cache = test::cache_for(*model, decoder, 16);
  ASSERT_GE(cache->positions(), 1024);
  const auto cost = measure_pass_cost(watched, *cache, {16, 0.05, options.max_positions});
  ASSERT_TRUE(cost.ok()) << cost.status().message();
  EXPECT_LT(last, options.max_positions);
  EXPECT_GT(counts.passes, 0);
}

TEST(PassCost, IsMeasuredInTheLeastCache) {
  const test::TinyFile file(test::TinySpec{});
  const auto model = file.load(test::model_options(1));
  DecoderOptions decoder;
  decoder.max_positions = 2;
  const ModelCache owned_cache = test::cache_for(*model, decoder, 1);
  KvCache& cache = *owned_cache;
  const auto cost = measure_pass_cost(*model, cache, {.max_rows = 1});
  ASSERT_TRUE(cost.ok()) << cost.status().message();
  EXPECT_GT(cost->seconds({1, 1, 0}), 0);
  // No room is an error, not a guess.
  ASSERT_TRUE(cache.open().ok());
  EXPECT_EQ(measure_pass_cost(*model, cache, {.max_rows = 1}).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace aerie::pass_cost_test
