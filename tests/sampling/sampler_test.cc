#include "sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/sampling/reference.h"
#include "tests/verify/chi_square.h"

namespace aerie::sampler_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams at(double temperature) {
  SamplingParams params;
  params.temperature = temperature;
  return params;
}

TEST(Validate, AcceptsTheEdges) {
  EXPECT_TRUE(validate({}, 10).ok());
  SamplingParams params;
  params.temperature = 1e300;
  params.top_k = 1000000;
  params.top_p = 0;
  params.min_p = 1;
  params.repetition_penalty = 1e-9;
  params.penalty_window = -1;
  params.logprobs = 10;
  params.logit_bias = {{0, -100.0f}, {9, -kInfinity}};
  EXPECT_TRUE(validate(params, 10).ok());
}

TEST(Validate, NamesWhatIsOutOfRange) {
  constexpr double kDoubleNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kDoubleInfinity = std::numeric_limits<double>::infinity();
  const auto rejects = [](const char* name, const std::function<void(SamplingParams&)>& change) {
    SamplingParams params;
    change(params);
    const Status status = validate(params, 10);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), testing::HasSubstr(name));
  };
  rejects("temperature", [](SamplingParams& p) { p.temperature = -0.1; });
  rejects("temperature", [&](SamplingParams& p) { p.temperature = kDoubleNan; });
  rejects("temperature", [&](SamplingParams& p) { p.temperature = kDoubleInfinity; });
  rejects("top_k", [](SamplingParams& p) { p.top_k = -1; });
  rejects("top_p", [](SamplingParams& p) { p.top_p = 1.1; });
  rejects("top_p", [&](SamplingParams& p) { p.top_p = kDoubleNan; });
  rejects("min_p", [](SamplingParams& p) { p.min_p = -0.5; });
  rejects("repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 0; });
  rejects("frequency_penalty", [&](SamplingParams& p) { p.frequency_penalty = kDoubleInfinity; });
  rejects("presence_penalty", [&](SamplingParams& p) { p.presence_penalty = kDoubleNan; });
  rejects("penalty_window", [](SamplingParams& p) { p.penalty_window = -2; });
  rejects("logprobs", [](SamplingParams& p) { p.logprobs = 11; });
  rejects("logit_bias", [](SamplingParams& p) { p.logit_bias = {{10, 1.0f}}; });
  rejects("logit_bias", [](SamplingParams& p) { p.logit_bias = {{-1, 1.0f}}; });
  rejects("logit_bias", [](SamplingParams& p) { p.logit_bias = {{1, kNan}}; });
  rejects("logit_bias", [](SamplingParams& p) { p.logit_bias = {{1, kInfinity}}; });
  EXPECT_FALSE(validate({}, 0).ok());
}

TEST(Sampler, GreedyTiesGoToTheSmallerId) {
  Sampler sampler(at(0), 5);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, 3, 3}, {}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{kNan, -0.0f, 0.0f, -1, -1}, {}), 1);
}

TEST(Sampler, NothingLeftIsDefined) {
  for (const double temperature : {0.0, 1.0}) {
    for (const float x : {-kInfinity, kNan}) {
      Sampler sampler(at(temperature), 4);
      const std::vector<float> logits(4, x);
      EXPECT_EQ(sampler.sample(logits, {}), 0);
      const SetConstraint constraint({false, false, true, true});
      EXPECT_EQ(sampler.sample(logits, {{}, {}, &constraint}), 2);
      Distribution d;
      sampler.distribution(logits, {{}, {}, &constraint}, d);
      EXPECT_EQ(d.ids, std::vector<int32_t>{2});
      EXPECT_EQ(d.probs, std::vector<double>{1.0});
    }
  }
}

TEST(Sampler, InfinitiesShareTheMass) {
  Sampler sampler(at(1), 4);
  Distribution d;
  sampler.distribution(std::vector<float>{kInfinity, 5, kInfinity, kNan}, {}, d);
  EXPECT_EQ(d.ids, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(d.probs, (std::vector<double>{0.5, 0.5}));
}

TEST(Sampler, DependsOnSeedChoiceAndPosition) {
  const std::vector<float> logits(1000, 0.0f);
  const auto draw = [&](uint64_t seed, uint32_t choice, size_t position) {
    SamplingParams params = at(1);
    params.seed = seed;
    params.choice = choice;
    Sampler sampler(params, 1000);
    return sampler.sample(logits, {std::vector<int32_t>(position, 0), {}, nullptr});
  };
  const int32_t token = draw(1, 0, 10);
  EXPECT_EQ(draw(1, 0, 10), token);
  EXPECT_NE(draw(2, 0, 10), token);
  EXPECT_NE(draw(1, 1, 10), token);
  EXPECT_NE(draw(1, 0, 11), token);
}

// A moved sampler goes on as before.
TEST(Sampler, Moves) {
  SamplingParams params = at(0.7);
  params.top_p = 0.9;
  params.frequency_penalty = 0.3;
  const std::vector<float> logits = {1, 2, 3, 2, 1};
  const std::vector<int32_t> history = {2, 2, 1};
  Sampler a(params, 5);
  const int32_t token = a.sample(logits, {history, {}, nullptr});
  Sampler b = std::move(a);
  EXPECT_EQ(b.sample(logits, {history, {}, nullptr}), token);
}

// Frequencies over positions against distribution(), with and without filters.
TEST(Sampler, DrawsFromItsDistribution) {
  std::vector<float> logits(40);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = 2.0f * std::sin(static_cast<float>(7 * i));
  }
  for (int variant = 0; variant < 4; ++variant) {
    SamplingParams params = at(variant == 3 ? 1.5 : 0.9);
    params.seed = 77;
    params.top_k = variant == 1 ? 12 : 0;
    params.top_p = variant == 2 ? 0.8 : 1.0;
    params.min_p = variant == 3 ? 0.05 : 0.0;
    Sampler sampler(params, 40);
    Distribution d;
    sampler.distribution(logits, {}, d);
    std::vector<double> cells(40);
    for (size_t i = 0; i < d.size(); ++i) cells[static_cast<size_t>(d.ids[i])] = d.probs[i];
    stats::ChiSquareTest test(cells);
    const std::vector<int32_t> history(static_cast<size_t>(test.samples()), 0);
    for (size_t i = 0; i < history.size(); ++i) {
      const SamplingContext context{std::span(history).first(i), {}, nullptr};
      test.add(static_cast<size_t>(sampler.sample(logits, context)));
    }
    EXPECT_FALSE(test.result().rejected) << variant << " p = " << test.result().p_value;
  }
}

TEST(Ranking, BeginsWithWhatIsSampledAndGoesOnWithoutIt) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (const double temperature : {0.0, 0.8, 5.0}) {
    for (const bool filtered : {false, true}) {
      SamplingParams params = at(temperature);
      if (filtered) params.top_k = 7, params.top_p = 0.95, params.repetition_penalty = 1.3;
      for (params.seed = 0; params.seed < 30; ++params.seed) {
        std::vector<float> logits(200);
        for (float& x : logits) x = normal(random);
        const int32_t committed[] = {1, 2, 3}, path[] = {4};
        Sampler sampler(params, 200);
        std::vector<ScoredToken> ranking;
        sampler.ranking(logits, {committed, path, nullptr}, 4, ranking);
        ASSERT_TRUE(!ranking.empty() && ranking.size() <= 4u);
        EXPECT_EQ(ranking[0].id, sampler.sample(logits, {committed, path, nullptr}));
        if (filtered) continue;  // without the first, a filter lets others in
        params.logit_bias = {{ranking[0].id, -kInfinity}};
        Sampler without(params, 200);
        EXPECT_EQ(ranking[1].id, without.sample(logits, {committed, path, nullptr}));
        params.logit_bias.clear();
      }
    }
  }
}

// Of one that knows the target's logits too flat: filters are the target's, noise is what it is.
TEST(Ranking, SharpensLogitsAndLeavesTheNoise) {
  std::mt19937_64 random(6);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  for (const bool filtered : {false, true}) {
    SamplingParams params = at(0.7);
    params.top_k = filtered ? 9 : 0;
    for (params.seed = 0; params.seed < 30; ++params.seed) {
      std::vector<float> logits(200);
      for (float& x : logits) x = normal(random);
      const std::vector<int32_t> committed = {1, 2, 3};
      const SamplingContext context{committed, {}, nullptr};
      Sampler sampler(params, 200);
      std::vector<ScoredToken> ranking;
      sampler.ranking(logits, context, 4, ranking, 1.7);
      std::vector<float> ordered = logits;
      std::ranges::sort(ordered, std::greater<>());
      std::vector<ScoredToken> expected;
      for (int32_t id = 0; id < 200; ++id) {
        const float logit = logits[static_cast<size_t>(id)];
        if (filtered && logit < ordered[8]) continue;
        const double scaled = 1.7 * (double{logit} - double{ordered[0]}) / 0.7;
        expected.push_back({id, scaled + target_gumbel(sampler.noise(), context.position(), id)});
      }
      std::ranges::sort(expected, std::greater<>(), &ScoredToken::score);
      ASSERT_EQ(ranking.size(), 4u);
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(ranking[i].id, expected[i].id);
        EXPECT_NEAR(ranking[i].score, expected[i].score, 1e-9);
      }
    }
  }
}

TEST(Ranking, ScoresAreLogsOfSoftmaxAtTemperatureZero) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f, -kInfinity};
  Sampler sampler(at(0.0), 4);
  std::vector<ScoredToken> ranking;
  sampler.ranking(logits, {}, 9, ranking);
  ASSERT_EQ(ranking.size(), 3u);
  const double total = std::exp(1.0) + std::exp(3.0) + std::exp(2.0);
  for (const ScoredToken& token : ranking) {
    EXPECT_NEAR(std::exp(token.score),
                std::exp(static_cast<double>(logits[static_cast<size_t>(token.id)])) / total,
                1e-12);
  }
  EXPECT_EQ(ranking[0].id, 1);
  EXPECT_EQ(ranking[2].id, 0);
  // Nothing is left: what sample() says.
  sampler.ranking(std::vector<float>(4, -kInfinity), {}, 3, ranking);
  ASSERT_EQ(ranking.size(), 1u);
  EXPECT_EQ(ranking[0].id, 0);
}

TEST(Logprobs, AreOfTheUntouchedLogits) {
  SamplingParams params = at(0.2);
  params.logprobs = 3;
  params.logit_bias = {{0, 50.0f}};
  params.top_k = 1;
  Sampler sampler(params, 5);
  const std::vector<float> logits = {0, 2, 1, 2, -kInfinity};
  const double total = 1 + 2 * std::exp(2.0) + std::exp(1.0);
  std::vector<TokenLogprob> out(7);
  sampler.logprobs(logits, 0, out);
  ASSERT_EQ(out.size(), 4u);
  const int32_t ids[] = {0, 1, 3, 2};
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i].token, ids[i]);
    EXPECT_NEAR(out[i].logprob, logits[static_cast<size_t>(ids[i])] - std::log(total), 1e-6);
  }
  sampler.logprobs(logits, 4, out);
  EXPECT_EQ(out[0].logprob, -kInfinity);
}

TEST(Logprobs, EdgeCases) {
  std::vector<TokenLogprob> out(7);
  Sampler none(at(0), 3);
  none.logprobs(std::vector<float>{1, 2, 3}, 0, out);
  EXPECT_TRUE(out.empty());

  SamplingParams params;
  params.logprobs = 0;
  Sampler zero(params, 3);
  zero.logprobs(std::vector<float>{1, 1, kNan}, 1, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_NEAR(out[0].logprob, -std::log(2.0), 1e-6);

  params.logprobs = 3;
  Sampler three(params, 3);
  three.logprobs(std::vector<float>{kNan, -kInfinity, kNan}, 1, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].logprob, -kInfinity);
  three.logprobs(std::vector<float>{kInfinity, 3, kInfinity}, 1, out);
  ASSERT_EQ(out.size(), 4u);
  EXPECT_LT(out[0].logprob, -1e30f);
  EXPECT_NEAR(out[1].logprob, -std::log(2.0), 1e-6);
}

}  // namespace aerie::sampler_test
