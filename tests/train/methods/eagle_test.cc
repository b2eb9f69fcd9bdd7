// EAGLE's training: its forward pass is the engine's, its gradients are those of its loss, and a
// head that knows a text by heart drafts all of it.
#include "train/methods/eagle/eagle_method.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "format/json.h"
#include "format/safetensors/safetensors_folder.h"
#include "tests/train/fit.h"
#include "tests/train/text_target.h"
#include "train/methods/supervision.h"

namespace aerie::test::methods_eagle_test {

using train::EagleHead;

constexpr double kParity = 1e-3;
constexpr int kPrompt = 8;

at::Generator generator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

EagleHead random_head(TextTarget& target, const train::EagleHeadOptions& options = {}) {
  at::Generator random = generator(3);
  auto head = EagleHead::create(target.target(), options, random);
  EXPECT_TRUE(head.ok()) << head.status().message();
  perturb(head->parameters(), 0.05, 4);
  return std::move(*head);
}

std::unique_ptr<train::Method> random_method(TextTarget& target,
                                             const train::EagleOptions& options = {}) {
  at::Generator random = generator(3);
  auto method = make_eagle(target.target(), options, random);
  EXPECT_TRUE(method.ok()) << method.status().message();
  return std::move(*method);
}

// Rows of two texts, of which the second stands alone in the engine.
TEST(EagleTraining, ComputesWhatTheEngineDoes) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 6), target.say(2, kPrompt, 16)};
  const train::Batch batch = target.batch(texts, kPrompt, {{}, true});
  for (const bool bias : {true, false}) {
    SCOPED_TRACE(bias ? "with a bias" : "without a bias");
    EagleHead head = random_head(target, {.bias = bias, .intermediate = 24});
    const at::Tensor features = head.true_features(batch);
    const at::Tensor outputs = head.forward(batch, {&features, 1});
    const at::Tensor logits = at::linear(outputs, *target.target().output());
    const TemporaryFolder folder;
    ASSERT_TRUE(head.write(folder.path()).ok());
    const auto loaded = target.models().load("eagle", folder.path());
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();

    const int64_t begin = batch.documents.start(1), rows = batch.documents.length(1) - 1;
    const std::vector<Floats> read = rows_of(batch.last.narrow(0, begin, rows));
    const auto known = std::span(texts[1]).subspan(1);
    const std::vector<RowOutput> engine = RowRunner(**loaded).commit(read, known, 1);
    for (int64_t r = 0; r < rows; ++r) {
      const RowOutput& row = engine[static_cast<size_t>(r)];
      EXPECT_LT(relative_error(row.hidden, outputs[begin + r]), kParity) << "row " << r;
      EXPECT_LT(relative_error(row.logits, logits[begin + r]), kParity) << "row " << r;
    }
  }
}

TEST(EagleTraining, WritesWhatEagleRepositoriesHold) {
  TextTarget target;
  const TemporaryFolder folder;
  EagleHead head = random_head(target, {.bias = false, .store_embedding = true});
  ASSERT_TRUE(head.write(folder.path()).ok());
  const auto config = read_json(folder.path() + "/config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)["bias"], false);
  EXPECT_EQ((*config)["num_hidden_layers"], 1);
  const auto files = SafetensorsFolder::open(folder.path());
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->tensors().size(), 10u);
  EXPECT_NE(files->find("embed_tokens.weight"), nullptr);
  EXPECT_EQ(files->find("fc.bias"), nullptr);
  EXPECT_EQ(files->find("layers.0.input_layernorm.weight"), nullptr);
  const auto loaded = target.models().load("eagle", folder.path());
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
}

TEST(EagleTraining, GradientsAreThoseOfTheLoss) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 6), target.say(2, kPrompt, 9)};
  const std::unique_ptr<train::Method> method =
      random_method(target, {.noise = 0.0, .loss = {.token = 0.5}});
  perturb(method->parameters(), 0.05, 4);
  const train::Batch batch = target.batch(texts, kPrompt, method->needs());
  at::Generator unused = generator(1);
  constexpr double kScale = 0.25;
  const auto loss = [&](bool train) {
    const auto figures = method->accumulate(batch, kScale, unused, train);
    EXPECT_TRUE(figures.ok()) << figures.status().message();
    return kScale * figure(*figures, "loss");
  };
  expect_gradients(method->parameters(), loss);
}

// Row by row, from the words of the definition.
TEST(EagleTraining, LearnsFromRowsWhoseTokensTheTargetGenerated) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, 5, 7), target.say(2, 3, 1), target.say(3, 9, 4)};
  const std::unique_ptr<train::Method> method = random_method(target, {.noise = 0.0});
  train::Batch batch = target.batch(texts, 4, method->needs());
  batch.mask[8] = 0.0;  // another's turn within the first text
  batch.mask[9] = 0.0;
  for (int step = 0; step < 4; ++step) {
    const at::Tensor asked = supervised_rows(batch, step);
    for (int64_t d = 0; d < batch.documents.count(); ++d) {
      const int64_t begin = batch.documents.start(d), end = begin + batch.documents.length(d);
      for (int64_t t = begin; t < end; ++t) {
        const auto generated = [&](int64_t at) {
          return at < end && batch.mask[at].item<float>() == 1.0f;
        };
        const bool expected = generated(t + step + 1) && generated(t + step + 2);
        EXPECT_EQ(asked[t].item<float>(), expected ? 1.0f : 0.0f) << "row " << t;
      }
    }
  }
  at::Generator unused = generator(1);
  const auto figures = method->accumulate(batch, 1.0, unused, false);
  ASSERT_TRUE(figures.ok());
  EXPECT_EQ(figures->weight, supervised_rows(batch, 0).sum().item<double>());
  EXPECT_EQ(figure(*figures, "rows_0"), figures->weight);
  EXPECT_EQ(method->weight(batch), figures->weight);
}

TEST(EagleTraining, LossIsSmoothL1AndATenthOfTheDivergence) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 6)};
  EagleHead head = random_head(target);
  const train::Batch batch = target.batch(texts, kPrompt, {{}, true});
  const at::Tensor features = head.true_features(batch);
  const at::NoGradGuard no_grad;
  const at::Tensor outputs = head.forward(batch, {&features, 1});
  double feature = 0.0, token = 0.0;
  const at::Tensor head_of_target = *target.target().output();
  for (int64_t t = kPrompt - 1; t + 2 < batch.documents.rows(); ++t) {
    const at::Tensor off = (outputs[t] - features[t + 1]).abs();
    feature += at::where(off < 1.0, off * off * 0.5, off - 0.5).mean().item<double>();
    const at::Tensor p = at::mv(head_of_target, features[t + 1]).softmax(0);
    const at::Tensor q = at::mv(head_of_target, outputs[t]).softmax(0);
    token += (p * (p.log() - q.log())).sum().item<double>();
  }
  train::Figures figures;
  const double loss =
      head.learn(batch, outputs, train::places_of(supervised_rows(batch, 0)), {}, 1.0, 0, figures);
  EXPECT_NEAR(figure(figures, "feature_0"), feature, 1e-4 * feature);
  EXPECT_NEAR(figure(figures, "token_0"), token, 1e-4 * token);
  EXPECT_NEAR(loss, feature + 0.1 * token, 1e-4 * loss);
}

TEST(EagleTraining, NoiseComesOfTheGeneratorAndInTrainingAlone) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 12)};
  const std::unique_ptr<train::Method> method = random_method(target, {.noise = 0.01});
  const train::Batch batch = target.batch(texts, kPrompt, method->needs());
  const auto loss = [&](uint64_t seed, bool train) {
    at::Generator random = generator(seed);
    return figure(*method->accumulate(batch, 1.0, random, train), "loss");
  };
  EXPECT_EQ(loss(1, true), loss(1, true));
  EXPECT_NE(loss(1, true), loss(2, true));
  EXPECT_EQ(loss(1, false), loss(2, false));
}

TEST(EagleTraining, SettingsThatMakeNoSenseAreRefused) {
  TextTarget target;
  at::Generator random = generator(1);
  const auto refused = [&](const train::EagleOptions& options) {
    const auto method = make_eagle(target.target(), options, random);
    return method.status().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({.noise = -1.0}));
  EXPECT_TRUE(refused({.head = {.intermediate = -1}}));
  EXPECT_TRUE(refused({.head = {.context = 0}}));
}

TEST(EagleTraining, AHeadThatKnowsTheTextDraftsAllOfIt) {
  constexpr int kDepth = 4;
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 40)};
  const auto trained = [&](int late) {
    std::unique_ptr<train::Method> method = random_method(target, {.noise = 0.0});
    train::Batch batch = target.batch(texts, kPrompt, method->needs());
    batch.last = at::roll(batch.last, late, 0);
    const std::vector<double> losses = fit(*method, {&batch, 1}, {.steps = 400, .rate = 5e-3});
    EXPECT_LT(losses.back(), 0.05 * losses.front());
    const TemporaryFolder folder;
    EXPECT_TRUE(method->write(folder.path()).ok());
    EXPECT_EQ(method->settings().speculate, "eagle:model={},num_speculative_tokens=5");
    return target.draft("eagle", folder.path(), texts[0], kPrompt, kDepth);
  };
  const TextTarget::Round round = trained(0);
  EXPECT_EQ(round.tokens, round.most);
  EXPECT_GT(round.most, 4.0);
  // With the features of the neighbour.
  for (const int late : {-1, 1}) {
    EXPECT_LT(trained(late).tokens, 1.5) << "late " << late;
  }
}

}  // namespace aerie::test::methods_eagle_test
