// A sampler over rows of a pass asks for logits only where the best token does not decide.

#include <gtest/gtest.h>

#include <limits>

#include "sampling/sampler.h"
#include "tests/sampling/reference.h"

namespace aerie::row_test {

class Rows final : public LogitSource {
 public:
  explicit Rows(std::vector<std::vector<float>> rows, bool finds_best = true)
      : rows_(std::move(rows)) {
    outputs_.vocab = static_cast<int>(rows_[0].size());
    outputs_.source = this;
    for (std::vector<float> row : rows_) {
      for (float& x : row) x = std::min(x, std::numeric_limits<float>::max());
      if (finds_best) best_.push_back(find_best(row));
    }
    outputs_.best = best_;
  }
  std::span<const float> fetch(int i) override {
    ++fetches;
    return rows_[static_cast<size_t>(i)];
  }
  const ForwardOutputs& outputs() const { return outputs_; }
  int fetches = 0;

 private:
  std::vector<std::vector<float>> rows_;
  std::vector<BestToken> best_;
  ForwardOutputs outputs_;
};

constexpr int kVocab = 50;

// Of a row with ties, one that ends in nothing, and one beyond numbers.
std::vector<std::vector<float>> odd_rows() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> rows(4, std::vector<float>(kVocab, -kInfinity));
  rows[0].assign(kVocab, 1.5f);
  rows[2][7] = std::numeric_limits<float>::max();
  rows[2][9] = kInfinity;
  rows[3].assign(kVocab, std::numeric_limits<float>::quiet_NaN());
  rows[3][4] = -3.0f;
  return rows;
}

TEST(SampledRows, AreAsTheirLogitsWere) {
  std::mt19937_64 random(3);
  int greedy = 0, decided = 0;
  for (int i = 0; i < 3000; ++i) {
    SamplingParams params = random_params(random, kVocab);
    if (random() % 2 == 0) params.temperature = 0.0;
    std::vector<std::vector<float>> logits = odd_rows();
    for (int r = 0; r < 3; ++r) logits.push_back(random_logits(random, kVocab));
    Rows rows(logits, random() % 4 != 0);
    const std::vector<int32_t> committed = random_tokens(random, kVocab, 10);
    std::vector<bool> allowed(kVocab, true);
    allowed[0] = allowed[7] = false;
    const SetConstraint constraint(allowed);
    const SamplingContext context{committed, {}, random() % 3 == 0 ? &constraint : nullptr};
    Sampler sampler(params, kVocab);
    for (int row = 0; row < static_cast<int>(logits.size()); ++row) {
      const std::vector<float>& own = logits[static_cast<size_t>(row)];
      Distribution expected, actual;
      sampler.distribution(own, context, expected);
      sampler.distribution(rows.outputs(), row, context, actual);
      EXPECT_EQ(expected.ids, actual.ids);
      EXPECT_EQ(expected.probs, actual.probs);
      EXPECT_EQ(sampler.sample(rows.outputs(), row, context), sampler.sample(own, context));
    }
    const bool decides = params.temperature == 0.0 && !rows.outputs().best.empty() &&
                         !LogitAdjuster::touches(params, context);
    EXPECT_EQ(rows.fetches, decides ? 0 : 2 * static_cast<int>(logits.size()));
    greedy += params.temperature == 0.0 ? 1 : 0;
    decided += decides ? 1 : 0;
    if (testing::Test::HasFailure()) FAIL() << "case " << i;
  }
  EXPECT_GT(greedy, decided);
  EXPECT_GT(decided, 50);
}

TEST(SampledRows, WhatAdjustsLogitsNeedsThem) {
  const std::vector<int32_t> committed = {1, 2};
  const SetConstraint constraint(std::vector<bool>(kVocab, true));
  const auto fetches = [&](const std::function<void(SamplingParams&)>& change,
                           const TokenConstraint* bound = nullptr) {
    SamplingParams params;
    params.temperature = 0.0;
    change(params);
    Rows rows(odd_rows());
    Sampler sampler(params, kVocab);
    EXPECT_EQ(sampler.sample(rows.outputs(), 0, {committed, {}, bound}),
              sampler.sample(odd_rows()[0], {committed, {}, bound}));
    return rows.fetches;
  };
  EXPECT_EQ(fetches([](SamplingParams&) {}), 0);
  // Filters leave the likeliest token, and logprobs are asked for apart.
  EXPECT_EQ(fetches([](SamplingParams& p) { p.top_k = 3, p.top_p = 0.5, p.min_p = 0.1; }), 0);
  EXPECT_EQ(fetches([](SamplingParams& p) { p.logprobs = 3; }), 0);
  EXPECT_EQ(fetches([](SamplingParams& p) { p.temperature = 0.5; }), 1);
  EXPECT_EQ(fetches([](SamplingParams& p) { p.logit_bias = {{3, 1.0f}}; }), 1);
  EXPECT_EQ(fetches([](SamplingParams& p) { p.repetition_penalty = 1.1; }), 1);
  EXPECT_EQ(fetches([](SamplingParams& p) { p.presence_penalty = 0.1; }), 1);
  EXPECT_EQ(fetches([](SamplingParams& p) { p.frequency_penalty = 0.1; }), 1);
  EXPECT_EQ(fetches([](SamplingParams&) {}, &constraint), 1);
}

TEST(SampledRows, AllOfThemComeInOrder) {
  const std::vector<std::vector<float>> logits = odd_rows();
  std::vector<float> memory;
  Rows rows(logits);
  const std::span<const float> all = rows.outputs().all_logits(3, memory);
  ASSERT_EQ(all.size(), 3u * kVocab);
  EXPECT_EQ(rows.fetches, 3);
  EXPECT_EQ(all[0], 1.5f);
  EXPECT_EQ(all[2 * kVocab + 7], logits[2][7]);
  // Those that are there are not copied.
  ForwardOutputs here;
  here.vocab = kVocab;
  here.logits = logits[0];
  EXPECT_EQ(here.all_logits(1, memory).data(), logits[0].data());
}

}  // namespace aerie::row_test
