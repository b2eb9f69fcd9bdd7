// Hydra's heads as they are trained: that they are those which the engine drafts with, and what
// they are held to.
#include "train/methods/offset/hydra_method.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/train/fit.h"
#include "tests/train/methods/offset_rows.h"
#include "tests/train/text_target.h"
#include "train/nn/ops.h"

namespace aerie::test::methods_hydra_test {

using ::testing::HasSubstr;
using train::Batch;
using train::Figures;
using train::HydraOptions;
using train::make_hydra;
using train::Method;

constexpr const char* kMethod = "hydra";

TextTarget& tiny() {
  static TextTarget target(TextTarget::usual());
  return target;
}

std::unique_ptr<Method> make(const HydraOptions& options, TextTarget& target = tiny()) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  auto method = make_hydra(target.target(), options, generator);
  EXPECT_TRUE(method.ok()) << method.status().message();
  return method.ok() ? std::move(*method) : nullptr;
}

struct Case {
  const char* name;
  HydraOptions options;
};

std::vector<Case> cases() {
  std::vector<Case> cases = {{"plain", {}}, {"two_blocks", {}}, {"pruned", {}}, {"prefix", {}}};
  for (Case& c : cases) c.options.heads = 3;
  cases[1].options.blocks = 2;
  for (int32_t id = 1; id < tiny().vocab(); id += 3) cases[2].options.vocabulary.push_back(id);
  cases[3].options = HydraOptions::plus_plus();
  cases[3].options.loss.labels = 1.0;  // probabilities are read off it
  cases[3].options.loss.teacher = 0.0;
  cases[3].options.heads = 3;
  cases[3].options.blocks = 2;
  return cases;
}

std::vector<int32_t> labels_of(const HydraOptions& options) {
  if (!options.vocabulary.empty()) return options.vocabulary;
  std::vector<int32_t> ids(static_cast<size_t>(tiny().vocab()));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Figures figures_of(Method& method, const Batch& batch, uint64_t seed, bool train) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  auto figures = method.accumulate(batch, 1.0, generator, train);
  EXPECT_TRUE(figures.ok()) << figures.status().message();
  return figures.ok() ? *figures : Figures();
}

TEST(Hydra, ComputesWhatTheEngineDraftsWith) {
  const PromptedText text = tiny().say(3, 6, 12);
  const Batch batch = tiny().batch({&text, 1});
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const std::unique_ptr<Method> method = make(c.options);
    perturb(method->parameters(), 0.2, 9);
    const TemporaryFolder folder;
    ASSERT_TRUE(method->write(folder.path()).ok());
    HeadSettings settings;
    settings.depth = c.options.heads;
    auto head = tiny().models().load(kMethod, folder.path(), settings);
    ASSERT_TRUE(head.ok()) << head.status().message();
    ASSERT_EQ((*head)->max_depth(), c.options.heads);
    ASSERT_EQ((*head)->cache_config().layers, c.options.prefix ? 1 : 0);
    constexpr int64_t kRow = 7;
    const std::vector<RowOutput> outputs = drafted_down(**head, batch, text, kRow, c.options.heads);
    for (int i = 0; i < c.options.heads; ++i) {
      const auto trained = offset_log_probabilities(*method, batch, kRow, i, labels_of(c.options));
      EXPECT_LT(relative_error(trained, log_softmax(outputs[static_cast<size_t>(i)].logits)), 1e-3)
          << "head " << i;
    }
  }
}

TEST(Hydra, BeginsByRepeatingTheTarget) {
  const PromptedText text = tiny().say(3, 6, 12);
  const Batch batch = tiny().batch({&text, 1});
  const at::Tensor logits = target_logits(tiny().target(), batch.last,
                                          *tiny().target().final_norm(), *tiny().target().output());
  const at::Tensor wanted = logits[8].log_softmax(-1).contiguous();
  const auto begun = offset_log_probabilities(*make({}), batch, 8, 2, labels_of({}));
  EXPECT_LT(relative_error(begun, {wanted.data_ptr<float>(), begun.size()}), 1e-4);
}

TEST(Hydra, GradientsAreThoseOfTheLoss) {
  const PromptedText texts[] = {tiny().say(3, 4, 8), tiny().say(4, 3, 7)};
  const Batch batch = tiny().batch(texts);
  for (const double teacher : {0.0, 1.0}) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(fmt::format("{}, teacher {}", c.name, teacher));
      HydraOptions options = c.options;
      options.dropout = 0.0;
      options.loss.labels = 1.0 - teacher;
      options.loss.teacher = teacher;
      options.loss.features = 0.3;
      options.loss.decay = 0.8;
      const std::unique_ptr<Method> method = make(options);
      perturb(method->parameters(), 0.1, 9);
      expect_right_gradients(*method, batch, 0.02);
    }
  }
}

// A head's token is drafted behind those before it: its loss hangs on them, and on no later one.
TEST(Hydra, HeadsSeeTheTokensBeforeTheirOwn) {
  const PromptedText text = tiny().say(3, 6, 12);
  const Batch batch = tiny().batch({&text, 1});
  HydraOptions options;
  options.heads = 3;
  const std::unique_ptr<Method> method = make(options);
  perturb(method->parameters(), 0.2, 9);
  constexpr int64_t kRow = 7;
  for (int head = 0; head < options.heads; ++head) {
    const int32_t label[] = {5};
    const float before = offset_log_probabilities(*method, batch, kRow, head, label)[0];
    for (int64_t place = kRow - 1; place <= kRow + 2 + options.heads; ++place) {
      if (place == kRow + 2 + head) continue;  // its label
      Batch changed = batch;
      changed.tokens = batch.tokens.clone();
      changed.tokens[place] = 100;
      const float after = offset_log_probabilities(*method, changed, kRow, head, label)[0];
      const bool seen = place > kRow && place < kRow + 2 + head;
      EXPECT_EQ(before != after, seen) << "head " << head << ", place " << place;
    }
  }
}

// At the head's own place.
TEST(Hydra, StatesAreHeldAgainstTheTargets) {
  const PromptedText text = tiny().say(3, 5, 9);
  const Batch batch = tiny().batch({&text, 1});
  HydraOptions options;
  options.heads = 2;
  options.loss.labels = 0.0;
  options.loss.features = 2.0;
  // Untrained, a head hands on the state at its row.
  const std::unique_ptr<Method> method = make(options);
  const at::Tensor states =
      train::rms_norm(batch.last, *tiny().target().final_norm(), tiny().target().norm_eps());
  double expected = 0.0;
  for (int64_t t = 4; t < 12; ++t) {
    for (int i = 0; i < 2 && t + 2 + i < 14; ++i) {
      const at::Tensor d = (states[t] - states[t + 1 + i]).abs();
      const at::Tensor parts = at::where(d < 1.0, 0.5 * d * d, d - 0.5);
      expected += 2.0 * parts.mean().item<double>();
    }
  }
  EXPECT_NEAR(figures_of(*method, batch, 1, false).sums[0].second, expected, 1e-4 * expected);
}

TEST(Hydra, DropoutIsForTrainingAndComesOfTheSeed) {
  const PromptedText text = tiny().say(3, 5, 9);
  const Batch batch = tiny().batch({&text, 1});
  HydraOptions options = HydraOptions::plus_plus();
  const std::unique_ptr<Method> method = make(options);
  const auto loss = [&](uint64_t seed, bool train) {
    return figures_of(*method, batch, seed, train).sums[0].second;
  };
  EXPECT_EQ(loss(1, true), loss(1, true));
  EXPECT_NE(loss(1, true), loss(2, true));
  EXPECT_EQ(loss(1, false), loss(2, false));
}

double trained_length(TextTarget& target, const HydraOptions& options, const Batch& batch,
                      const PromptedText& text) {
  const std::unique_ptr<Method> method = make(options, target);
  fit(*method, {&batch, 1}, {.steps = 150, .rate = 0.01});
  const TemporaryFolder folder;
  EXPECT_TRUE(method->write(folder.path()).ok());
  return target.accepted_length(kMethod, folder.path(), text, options.heads);
}

// From the target's states alone: tokens, of which each says the next one, would hide what is
// misaligned. Without an embedding nothing is learned of them, and nothing used when drafting.
TEST(Hydra, LearnsATextByHeart) {
  TextTarget blind(TextTarget::usual());
  blind.target().embedding()->zero_();
  const PromptedText text = blind.say(5, 6, 49);
  const Batch batch = blind.batch({&text, 1});
  for (const bool prefix : {false, true}) {
    SCOPED_TRACE(prefix);
    HydraOptions options;
    options.heads = 3;
    options.prefix = prefix;
    EXPECT_EQ(trained_length(blind, options, batch, text), options.heads + 1.0);
    Batch shifted = batch;
    shifted.tokens = batch.shifted(batch.tokens, 1);
    EXPECT_LT(trained_length(blind, options, shifted, text), 1.5);
  }
}

TEST(Hydra, OptionsOutOfRangeAreRefused) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const auto expect_refused = [&](const HydraOptions& options, const std::string& part) {
    const Status status = make_hydra(tiny().target(), options, generator).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  HydraOptions options;
  options.heads = 65;
  expect_refused(options, "65 heads");
  options = {};
  options.blocks = 65;
  expect_refused(options, "65 blocks");
  options = {};
  options.dropout = 1.0;
  expect_refused(options, "a dropout of 1");
  options = {};
  options.loss.labels = 0.0;
  expect_refused(options, "weights of losses");
  options.loss.labels = -1.0;
  expect_refused(options, "weights of losses");
}

}  // namespace aerie::test::methods_hydra_test
