#include "sampling/filters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "tests/sampling/reference.h"

namespace aerie::filters_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(TokenKey, OrdersByLogitThenSmallerId) {
  const float ascending[] = {-kInfinity, -3e38f, -1.0f, -1e-40f, 0.0f, 1e-40f, 2.5f, 3e38f};
  for (size_t i = 0; i + 1 < std::size(ascending); ++i) {
    EXPECT_LT(token_key(ascending[i], 0), token_key(ascending[i + 1], 2000000000));
  }
  EXPECT_GT(token_key(1.0f, 3), token_key(1.0f, 4));
  EXPECT_GT(token_key(-0.0f, 3), token_key(0.0f, 4));
  EXPECT_GT(token_key(0.0f, 3), token_key(-0.0f, 4));
}

TEST(TokenKey, GivesBackItsParts) {
  for (const float x : {-3.5f, 0.0f, 1e-40f, 7.25f, 3e38f, -3e38f}) {
    for (const int32_t id : {0, 1, 49151, 2147483647}) {
      EXPECT_EQ(token_key_logit(token_key(x, id)), x);
      EXPECT_EQ(token_key_id(token_key(x, id)), id);
    }
  }
}

TEST(FindBest, TiesGoToTheSmallerId) {
  for (const size_t size : {1u, 15u, 16u, 17u, 64u, 65u, 1000u}) {
    std::vector<float> logits(size, 1.0f);
    EXPECT_EQ(find_best(logits).id, 0);
    logits.back() = 2.0f;
    EXPECT_EQ(find_best(logits).id, static_cast<int32_t>(size) - 1);
    logits[size / 2] = 2.0f;
    EXPECT_EQ(find_best(logits).id, static_cast<int32_t>(size / 2));
    EXPECT_EQ(find_best(logits).logit, 2.0f);
  }
}

TEST(FindBest, PassesOverNan) {
  EXPECT_EQ(find_best(std::vector<float>{kNan, -kInfinity, -5.0f, kNan, -6.0f}).id, 2);
  EXPECT_EQ(find_best(std::vector<float>(100, kNan)).id, -1);
  EXPECT_EQ(find_best(std::vector<float>(100, -kInfinity)).id, -1);
}

TEST(SelectTop, IsTheHeadOfAFullSort) {
  std::mt19937_64 random(21);
  for (int i = 0; i < 2000; ++i) {
    const int vocab = 1 + static_cast<int>(random() % (i % 50 == 0 ? 20000 : 400));
    std::vector<float> logits = random_logits(random, vocab);
    if (i % 7 == 0) std::sort(logits.begin(), logits.end());  // every token is a new best
    std::vector<TokenKey> sorted;
    for (int32_t id = 0; id < vocab; ++id) {
      const float x = logits[static_cast<size_t>(id)];
      if (x > -kInfinity) sorted.push_back(token_key(x, id));
    }
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const size_t k = 1 + random() % static_cast<size_t>(vocab + 3);
    sorted.resize(std::min(k, sorted.size()));
    std::vector<TokenKey> keys;
    select_top(logits, k, keys);
    std::sort(keys.begin(), keys.end(), std::greater<>());
    ASSERT_EQ(keys, sorted) << "vocab " << vocab << " k " << k;
    ASSERT_LE(keys.capacity(), static_cast<size_t>(vocab));
  }
}

std::vector<int32_t> kept(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<TokenKey> keys;
  filter_tokens(logits, find_best(logits).logit, params, keys);
  std::vector<int32_t> ids;
  for (const TokenKey key : keys) ids.push_back(token_key_id(key));
  std::sort(ids.begin(), ids.end());
  return ids;
}

using Ids = std::vector<int32_t>;

TEST(Filters, TopKCutsTiesAtTheLargerId) {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 3;
  EXPECT_EQ(kept({1, 5, 1, 1, 1}, params), (Ids{0, 1, 2}));
  params.top_k = 1;
  EXPECT_EQ(kept({2, 2, 2}, params), (Ids{0}));
}

TEST(Filters, TopPKeepsTheShortestRun) {
  SamplingParams params;
  params.temperature = 1;
  params.top_p = 0.5;
  EXPECT_EQ(kept({0, 0, 0, 0}, params), (Ids{0, 1}));  // 0.5 reaches 0.5
  params.top_p = 0.51;
  EXPECT_EQ(kept({0, 0, 0, 0}, params), (Ids{0, 1, 2}));
  params.top_p = 0.0;
  EXPECT_EQ(kept({0, 3, 3, 0}, params), (Ids{1}));
  params.top_p = 1.0 - 1e-16;
  EXPECT_EQ(kept({0, 0, -1, 0}, params).size(), 4u);
}

TEST(Filters, TopPIsOfWhatTopKLeft) {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 2;
  params.top_p = 0.5;
  // Of all four the first has 1/4; of the two that stay, 1/2.
  EXPECT_EQ(kept({0, 0, 0, 0}, params), (Ids{0}));
}

TEST(Filters, TopPBeyondTheFirstSelection) {
  std::vector<float> logits(10000, 1.5f);
  SamplingParams params;
  params.temperature = 0.9;
  params.top_p = 0.25;
  Ids expected(2500);
  for (int32_t i = 0; i < 2500; ++i) expected[static_cast<size_t>(i)] = i;
  EXPECT_EQ(kept(logits, params), expected);
}

TEST(Filters, MinPIsRelativeToTheLikeliest) {
  SamplingParams params;
  params.temperature = 2;
  params.min_p = 0.5;  // within 2 log 2 = 1.386 of the best
  EXPECT_EQ(kept({3.0f, 1.7f, 1.6f, kNan, -kInfinity}, params), (Ids{0, 1}));
  params.min_p = 1.0;
  EXPECT_EQ(kept({3.0f, 1.0f, 3.0f}, params), (Ids{0, 2}));
}

}  // namespace aerie::filters_test
