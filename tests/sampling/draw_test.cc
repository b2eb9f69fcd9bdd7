#include "sampling/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "sampling/weight.h"
#include "tests/sampling/reference.h"

namespace aerie::draw_test {

int32_t brute_force(const std::vector<float>& logits, const GumbelDraw& draw) {
  int32_t best = -1;
  double best_score = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    const int32_t id = static_cast<int32_t>(i);
    const double score = scaled_logit(logits[i], draw.best, draw.temperature) +
                         target_gumbel(draw.key, draw.position, id);
    if (score > best_score) {
      best = id;
      best_score = score;
    }
  }
  return best;
}

void expect_brute_force(const std::vector<float>& logits, double temperature, uint64_t position) {
  const BestToken best = find_best(logits);
  if (best.id < 0) return;
  const GumbelDraw draw{{position * 31, 1}, position, best.logit, temperature};
  const int32_t expected = brute_force(logits, draw);
  ASSERT_EQ(gumbel_argmax(logits, best, draw), expected) << "T " << temperature;
  std::vector<TokenKey> keys;
  select_top(logits, logits.size(), keys);
  ASSERT_EQ(gumbel_argmax(keys, draw), expected) << "T " << temperature;
  std::shuffle(keys.begin(), keys.end(), std::mt19937_64(position));
  ASSERT_EQ(gumbel_argmax(keys, draw), expected) << "T " << temperature;
}

TEST(GumbelArgmax, IsBruteForce) {
  std::mt19937_64 random(31);
  const double temperatures[] = {1.0, 0.7, 0.2, 2.5, 1e-4, 1e-35, 1e-300, 100.0, 1e39, 1e300};
  for (int i = 0; i < 4000 && !HasFailure(); ++i) {
    std::vector<float> logits = random_logits(random, 1 + static_cast<int>(random() % 1500));
    for (float& x : logits) {
      if (x > std::numeric_limits<float>::max()) x = std::numeric_limits<float>::max();
    }
    expect_brute_force(logits, temperatures[random() % 10], static_cast<uint64_t>(i));
  }
}

// Orders that are bad for pruning: each token a little likelier than the one before, or all alike.
TEST(GumbelArgmax, IsBruteForceOnHardOrders) {
  std::vector<float> logits(30000);
  for (const float slope : {0.0f, 1e-6f, 1e-3f, 0.1f, -1e-3f}) {
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = slope * static_cast<float>(i);
    for (uint64_t position = 0; position < 20; ++position) {
      expect_brute_force(logits, 1.0, position);
    }
  }
}

// Many draws where two groups of tokens are as likely as each other, many small against few large:
// winners with high noise and low logits are common.
TEST(GumbelArgmax, IsBruteForceWhereTheTailWins) {
  std::vector<float> logits(20000, 0.0f);
  logits[777] = std::log(20000.0f);
  int tail = 0;
  for (uint64_t position = 0; position < 300; ++position) {
    expect_brute_force(logits, 1.0, position);
    const GumbelDraw draw{{position * 31, 1}, position, logits[777], 1.0};
    tail += gumbel_argmax(logits, {777, logits[777]}, draw) == 777 ? 0 : 1;
  }
  EXPECT_NEAR(tail, 150, 5 * std::sqrt(75.0));
}

std::vector<ScoredToken> brute_force_top(const std::vector<float>& logits, size_t count,
                                         const GumbelDraw& draw) {
  std::vector<ScoredToken> all;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > -std::numeric_limits<float>::infinity())) continue;
    const auto id = static_cast<int32_t>(i);
    all.push_back({id, scaled_logit(logits[i], draw.best, draw.temperature) +
                           target_gumbel(draw.key, draw.position, id)});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const ScoredToken& a, const ScoredToken& b) { return a.score > b.score; });
  all.resize(std::min(all.size(), count));
  return all;
}

void expect_same(const std::vector<ScoredToken>& expected, const std::vector<ScoredToken>& got) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(expected[i].id, got[i].id) << i;
    ASSERT_EQ(expected[i].score, got[i].score) << i;
  }
}

TEST(GumbelTop, IsBruteForce) {
  std::mt19937_64 random(32);
  const double temperatures[] = {1.0, 0.7, 0.05, 3.0, 1000.0};
  std::vector<TokenKey> keys;
  std::vector<ScoredToken> top;
  for (uint64_t i = 0; i < 3000 && !testing::Test::HasFailure(); ++i) {
    std::vector<float> logits = random_logits(random, 1 + static_cast<int>(random() % 1500));
    for (float& x : logits) x = std::min(x, 1e4f);
    const BestToken best = find_best(logits);
    if (best.id < 0) continue;
    const GumbelDraw draw{{i * 17, 2}, i, best.logit, temperatures[random() % 5]};
    const int count = 1 + static_cast<int>(random() % 20);
    const auto expected = brute_force_top(logits, static_cast<size_t>(count), draw);
    gumbel_top(logits, count, draw, keys, top);
    expect_same(expected, top);
    EXPECT_EQ(top[0].id, gumbel_argmax(logits, best, draw));
    select_top(logits, logits.size(), keys);
    std::shuffle(keys.begin(), keys.end(), random);
    gumbel_top(keys, count, draw, top);
    expect_same(expected, top);
  }
}

}  // namespace aerie::draw_test
