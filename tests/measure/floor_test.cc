#include "measure/passes/floor.h"

#include <gtest/gtest.h>

#include "format/gguf/gguf.h"
#include "kv/kv_cache.h"
#include "measure/models/make_model.h"
#include "tests/measure/models.h"

namespace aerie::measure::floor_test {

using kernels::Dot;

// "tiny" by hand: 2 layers, hidden 256, ffn 512, 4 heads and 2 key/value heads of 64, 320 tokens,
// embedding and head in one.
constexpr int64_t kLayerWeights = 256 * 256 + 2 * 256 * 128 + 256 * 256 + 3 * 256 * 512;
constexpr int64_t kEmbeddingWeights = 256 * 320;
constexpr int64_t kNormBytes = 4 * 256 * 5;
constexpr int64_t kPositionBytes = 2 * 128 * 2;  // keys and values of 16 bits

PassWork work_of_model(const std::string& shape, DType type) {
  const MadeModel model(shape, type);
  const auto file = GgufFile::open(model.path());
  EXPECT_TRUE(file.ok()) << file.status().message();
  const auto work = work_of(**file);
  EXPECT_TRUE(work.ok()) << work.status().message();
  return *work;
}

TEST(Floor, CountsATiedModel) {
  const PassWork work = work_of_model("tiny", DType::kQ8_0);
  const int64_t weights = 2 * kLayerWeights + kEmbeddingWeights;
  EXPECT_EQ(work.weight_bytes, weights / 32 * 34 + kNormBytes);
  EXPECT_EQ(work.row_operations[static_cast<size_t>(Dot::kInt8)], 2.0 * weights);
  EXPECT_EQ(work.row_operations[static_cast<size_t>(Dot::kBfloat)], 0.0);
  EXPECT_EQ(work.row_operations[static_cast<size_t>(Dot::kFloat)], 0.0);
  EXPECT_EQ(work.position_bytes, kPositionBytes);
  EXPECT_EQ(work.cache_bytes(128), 2 * 128 * kPositionBytes);
  EXPECT_EQ(work.position_operations, 4.0 * 256);
  EXPECT_EQ(work.attention_dot, Dot::kFloat);
  // No token of a prompt wants the head; the n-th sees n positions, in each of two layers.
  EXPECT_EQ(work.head_operations, 2.0 * kEmbeddingWeights);
  EXPECT_EQ(prompt_operations(work, 100),
            100 * 4.0 * kLayerWeights + 2 * 4.0 * 256 * (100 * 101 / 2));
}

// The embedding table is not read when there is another head.
TEST(Floor, LeavesOutAnEmbeddingThatIsNotTheHead) {
  const PassWork work = work_of_model("tiny-odd", DType::kF32);
  const int64_t layer = 96 * 96 + 2 * 96 * 32 + 96 * 96 + 3 * 96 * 256;
  const int64_t weights = 2 * layer + 96 * 320;
  EXPECT_EQ(work.weight_bytes, 4 * (weights + 5 * 96));
  EXPECT_EQ(work.row_operations[static_cast<size_t>(Dot::kFloat)], 2.0 * weights);
}

TEST(Floor, WindowsBoundWhatIsReadOfTheCache) {
  PassWork work;
  work.position_bytes = 10;
  work.windows = {0, 100};
  EXPECT_EQ(work.cache_bytes(80), 1600);
  EXPECT_EQ(work.cache_bytes(1000), 11000);
}

TEST(Floor, IsTheLargerOfReadingAndMultiplying) {
  PassWork work;
  work.weight_bytes = 900;
  work.position_bytes = 1;
  work.windows = {0};
  work.row_operations = {200.0, 0.0, 10.0};
  Limits limits;
  limits.bandwidth = 100.0;
  limits.dots = {1000.0, 0.0, 100.0};
  EXPECT_DOUBLE_EQ(floor_seconds(work, 100, 1, limits), 10.0);   // 1000 bytes; 0.3 s of products
  EXPECT_DOUBLE_EQ(floor_seconds(work, 300, 1, limits), 12.0);   // 1200 bytes
  EXPECT_DOUBLE_EQ(floor_seconds(work, 100, 64, limits), 19.2);  // 64 (0.2 + 0.1)
}

TEST(Floor, CountsAttention) {
  PassWork work;
  work.windows = {0, 100};
  work.position_operations = 10.0;
  Limits limits;
  limits.bandwidth = 1.0;
  limits.dots = {1000.0, 0.0, 100.0};
  EXPECT_DOUBLE_EQ(floor_seconds(work, 400, 3, limits), 150.0);  // 3 rows, 500 positions
  work.attention_dot = Dot::kInt8;
  EXPECT_DOUBLE_EQ(floor_seconds(work, 400, 3, limits), 15.0);
}

// A layer that keeps states reads and writes these in every pass, and nothing by the context.
TEST(Floor, CountsStates) {
  const PassWork work = work_of_model("tiny-hybrid", DType::kQ8_0);
  const int64_t state = 4 * 64 * 64 + 3 * (2 * 2 * 64 + 4 * 64);
  EXPECT_EQ(work.state_bytes, 3 * 2 * 4 * state);
  EXPECT_EQ(work.state_operations, 3 * 6.0 * 4 * 64 * 64);
  EXPECT_EQ(work.cache_bytes(100), 100 * 2 * 2 * 64 * 2);  // one layer
  PassWork alone;
  alone.state_bytes = 40;
  alone.state_operations = 7.0;
  Limits limits;
  limits.bandwidth = 10.0;
  limits.dots[static_cast<size_t>(Dot::kFloat)] = 1.0;
  EXPECT_DOUBLE_EQ(floor_seconds(alone, 0, 0, limits), 4.0);
  EXPECT_DOUBLE_EQ(floor_seconds(alone, 0, 2, limits), 14.0);
}

TEST(Floor, CountsTheExpertsThatAreRead) {
  PassWork work;
  work.weight_bytes = 100;
  work.expert_bytes = 10;
  work.expert_layers = 3;
  work.experts = 8;
  work.used_experts = 2;
  EXPECT_DOUBLE_EQ(work.expected_experts(1), 6.0);
  EXPECT_DOUBLE_EQ(work.expected_experts(2), 3 * 8 * (1 - 0.75 * 0.75));
  EXPECT_NEAR(work.expected_experts(1000), 24.0, 1e-9);
  Limits limits;
  limits.bandwidth = 10.0;
  EXPECT_DOUBLE_EQ(floor_seconds(work, 0, 1, limits), 16.0);
  EXPECT_DOUBLE_EQ(floor_seconds(work, 0, 4, 9.0, limits), 19.0);
}

TEST(Floor, TypesWithoutADotOfTheirOwnTakeThatOfFloats) {
  PassWork work;
  work.row_operations = {0.0, 100.0, 0.0};
  Limits limits;
  limits.bandwidth = 1.0;
  limits.dots = {1000.0, 0.0, 50.0};
  EXPECT_DOUBLE_EQ(floor_seconds(work, 0, 1, limits), 2.0);
  limits.dots[static_cast<size_t>(Dot::kBfloat)] = 200.0;
  EXPECT_DOUBLE_EQ(floor_seconds(work, 0, 1, limits), 0.5);
  limits.dots = {};  // as of a device
  work.weight_bytes = 3;
  EXPECT_DOUBLE_EQ(floor_seconds(work, 0, 1, limits), 3.0);
}

}  // namespace aerie::measure::floor_test
