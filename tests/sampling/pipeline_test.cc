// The sampler against the plain reference, over many mixes of logits, settings and histories.
#include <gtest/gtest.h>

#include "sampling/sampler.h"
#include "tests/sampling/reference.h"

namespace aerie::pipeline_test {

struct Case {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<int32_t> committed;
  std::vector<int32_t> path;
  std::vector<bool> allowed;  // empty: no constraint

  std::vector<int32_t> history() const {
    std::vector<int32_t> all = committed;
    all.insert(all.end(), path.begin(), path.end());
    return all;
  }
};

Case random_case(std::mt19937_64& random, int vocab) {
  Case c;
  c.logits = random_logits(random, vocab);
  c.params = random_params(random, vocab);
  c.committed = random_tokens(random, vocab, 1 + static_cast<int>(random() % 30));
  c.path = random_tokens(random, vocab, static_cast<int>(random() % 5));
  if (random() % 8 == 0) c.committed[0] = vocab + 3;  // an id that the logits do not have
  if (random() % 4 == 0) {
    c.allowed.resize(static_cast<size_t>(vocab));
    for (size_t i = 0; i < c.allowed.size(); ++i) c.allowed[i] = random() % 3 == 0;
    c.allowed[random() % c.allowed.size()] = true;
  }
  return c;
}

// Of no token left: the smallest allowed one, an unbanned one if there is.
int32_t expected_fallback(const Case& c) {
  int32_t first = -1;
  for (int32_t id = 0; id < static_cast<int32_t>(c.logits.size()); ++id) {
    if (!c.allowed.empty() && !c.allowed[static_cast<size_t>(id)]) continue;
    if (first < 0) first = id;
    bool banned = false;
    for (const auto& bias : c.params.logit_bias) {
      banned |= bias.first == id && bias.second < -1e30f;
    }
    if (!banned) return id;
  }
  return first;
}

void check(const Case& c, Sampler& sampler) {
  const SetConstraint constraint(c.allowed);
  SamplingContext context{c.committed, c.path, c.allowed.empty() ? nullptr : &constraint};
  const int32_t token = sampler.sample(c.logits, context);
  Distribution distribution;
  sampler.distribution(c.logits, context, distribution);

  const auto expected = reference_tokens(c.logits, c.params, c.history(), c.allowed);
  if (expected.empty()) {
    EXPECT_EQ(token, expected_fallback(c));
    EXPECT_EQ(distribution.ids, std::vector<int32_t>{token});
    return;
  }
  EXPECT_EQ(token, reference_draw(expected, c.params, c.history().size()));
  double total = 0;
  for (const ReferenceToken& t : expected) total += t.weight;
  double sum = 0;
  size_t listed = 0;
  for (const ReferenceToken& t : expected) {
    const double p = distribution.probability(t.id);
    EXPECT_NEAR(p, t.weight / total, 1e-13);
    listed += p > 0 ? 1 : 0;
    sum += p;
  }
  EXPECT_EQ(listed, distribution.size());  // nothing but those tokens
  EXPECT_NEAR(sum, 1.0, 1e-12);
  EXPECT_TRUE(std::is_sorted(distribution.ids.begin(), distribution.ids.end()));

  const std::vector<int32_t> history = c.history();
  EXPECT_EQ(sampler.sample(c.logits, {history, {}, context.constraint}), token)
      << "a path counts as if it were committed";
}

void run(uint64_t seed, int cases, const std::vector<int>& vocabs) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    const int vocab = vocabs[random() % vocabs.size()];
    Case c = random_case(random, vocab);
    ASSERT_TRUE(validate(c.params, vocab).ok());
    SCOPED_TRACE(testing::Message()
                 << "case " << i << " vocab " << vocab << " T " << c.params.temperature << " k "
                 << c.params.top_k << " p " << c.params.top_p << " min " << c.params.min_p);
    Sampler sampler(c.params, vocab);
    check(c, sampler);
    // Another node, with the scratch of the first.
    Case other = random_case(random, vocab);
    other.params = c.params;
    check(other, sampler);
    check(c, sampler);
  }
}

TEST(Pipeline, MatchesTheReferenceOnSmallVocabularies) {
  run(1, 20000, {1, 2, 3, 5, 17, 63, 64, 65, 200});
}

TEST(Pipeline, MatchesTheReferenceOnLargerVocabularies) {
  run(2, 300, {1000, 4099, 20000});
}

}  // namespace aerie::pipeline_test
