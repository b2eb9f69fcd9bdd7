#include "tests/testing/allocation_counter.h"

#include <gtest/gtest.h>

#include <random>

#include "sampling/sampler.h"

namespace aerie::sampling_allocation_test {

class AllowEven final : public TokenConstraint {
 public:
  std::unique_ptr<TokenConstraint> fork() const override { return nullptr; }
  void advance(int32_t) override {}
  void mask(std::span<bool> allowed) const override {
    for (size_t i = 0; i < allowed.size(); ++i) allowed[i] = i % 2 == 0;
  }
  bool allows(int32_t token) const override { return token % 2 == 0; }
  std::string forced() const override { return {}; }
};

std::vector<SamplingParams> many_settings() {
  std::vector<SamplingParams> settings(7);
  for (size_t i = 1; i < settings.size(); ++i) settings[i].temperature = 0.8;
  settings[2].top_k = 40;
  settings[2].top_p = 0.95;
  settings[3].top_p = 0.9;
  settings[4].min_p = 0.1;
  settings[5].repetition_penalty = 1.1;
  settings[5].logit_bias = {{3, -5.0f}};
  settings[6].top_k = 300;
  settings[6].logprobs = 5;
  settings[0].logprobs = 20;
  return settings;
}

TEST(Sampler, AllocatesNothingOnceWarm) {
  constexpr int kVocab = 5000;
  const AllowEven constraint;
  std::mt19937_64 random(5);
  std::vector<std::vector<float>> logits;
  // The first is peaked and the last are flat, so that later calls keep more tokens than the first.
  for (const float scale : {20.0f, 5.0f, 1.0f, 0.1f, 0.0f}) {
    std::normal_distribution<float> normal(0, 1);
    logits.emplace_back(kVocab);
    for (float& x : logits.back()) x = scale * normal(random);
  }
  const std::vector<int32_t> history = {1, 2, 3, 2, 1};
  for (const SamplingParams& params : many_settings()) {
    Sampler sampler(params, kVocab);
    Distribution distribution;
    std::vector<TokenLogprob> logprobs;
    const auto use = [&](const std::vector<float>& x) {
      for (const TokenConstraint* c : {static_cast<const TokenConstraint*>(nullptr),
                                       static_cast<const TokenConstraint*>(&constraint)}) {
        sampler.sample(x, {history, {}, c});
        sampler.distribution(x, {history, {}, c}, distribution);
      }
      sampler.logprobs(x, 7, logprobs);
    };
    use(logits[0]);
    const int64_t before = allocations();
    for (const std::vector<float>& x : logits) use(x);
    EXPECT_EQ(allocations(), before);
  }
}

TEST(AllocationCounter, Counts) {
  const int64_t before = allocations();
  const auto p = std::make_unique<int>(1);
  EXPECT_EQ(allocations(), before + 1) << *p;
}

}  // namespace aerie::sampling_allocation_test
