// HASS: its passes are what rows read in the engine behind so many drafted tokens.
#include "train/methods/eagle/hass_method.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "tests/train/fit.h"
#include "tests/train/text_target.h"
#include "train/methods/supervision.h"

namespace aerie::test::hass_test {

using train::EagleHead;

constexpr double kParity = 1e-3;
constexpr int kPrompt = 8, kPasses = 4;

at::Generator generator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

EagleHead random_head(TextTarget& target) {
  at::Generator random = generator(3);
  auto head = EagleHead::create(target.target(), {}, random);
  EXPECT_TRUE(head.ok()) << head.status().message();
  perturb(head->parameters(), 0.05, 4);
  return std::move(*head);
}

struct Passes {
  std::vector<at::Tensor> features, outputs;
};

Passes run_passes(const EagleHead& head, const train::Batch& batch, int count) {
  const at::NoGradGuard no_grad;
  Passes passes;
  passes.features = {head.true_features(batch)};
  for (int pass = 0; pass < count; ++pass) {
    passes.outputs.push_back(head.forward(batch, passes.features));
    passes.features.push_back(
        train::next_features(batch, passes.outputs.back(), passes.features[0]));
  }
  passes.features.pop_back();
  return passes;
}

// Each row by itself, in plain attention over features that are chosen column by column.
TEST(HassTraining, ReadsEachColumnAsThePassesBeforeMadeIt) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 3), {5}, {7, 9}};
  const EagleHead head = random_head(target);
  const train::Batch batch = target.batch(texts, kPrompt, {{}, true});
  const Passes passes = run_passes(head, batch, kPasses);
  const at::NoGradGuard no_grad;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (int64_t d = 0; d < batch.documents.count(); ++d) {
      const int64_t begin = batch.documents.start(d);
      for (int64_t r = begin; r < begin + batch.documents.length(d); ++r) {
        at::Tensor mixed = passes.features[0].clone();
        for (int64_t c = begin; c <= r; ++c) {
          const int64_t of = std::max<int64_t>(pass - (r - c), 0);
          mixed[c] = passes.features[static_cast<size_t>(of)][c];
        }
        const at::Tensor expected = head.forward(batch, {&mixed, 1})[r];
        EXPECT_LT(relative_error(passes.outputs[static_cast<size_t>(pass)][r], expected), 1e-5)
            << "pass " << pass << " row " << r;
      }
    }
  }
}

TEST(HassTraining, NoiseIsLargerInShorterTexts) {
  constexpr int64_t kWidth = 400;
  train::Documents documents;
  documents.starts = {0, 512, 512, 576};
  at::Generator random = generator(1);
  const at::Tensor noise = train::feature_noise(documents, kWidth, 0.1, random);
  ASSERT_EQ(noise.sizes(), (std::vector<int64_t>{576, kWidth}));
  for (const auto& [document, half] : {std::pair(0, 0.1), std::pair(2, 0.8)}) {
    const at::Tensor part = noise.narrow(0, documents.start(document), documents.length(document));
    EXPECT_LE(part.abs().max().item<double>(), 1.0001 * half);
    EXPECT_NEAR(part.std().item<double>(), half / std::sqrt(3.0), 0.02 * half);
    EXPECT_NEAR(part.mean().item<double>(), 0.0, 0.02 * half);
  }
}

TEST(HassTraining, FeaturesOfAPassAreTheOutputsOfTheRowAbove) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 3), {5}, {7, 9}};
  const train::Batch batch = target.batch(texts, kPrompt, {{}, true});
  const at::Tensor outputs = at::rand_like(batch.last), features = at::rand_like(batch.last);
  const at::Tensor next = train::next_features(batch, outputs, features);
  for (int64_t d = 0; d < batch.documents.count(); ++d) {
    const int64_t begin = batch.documents.start(d);
    EXPECT_TRUE(next[begin].equal(features[begin]));
    for (int64_t r = begin + 1; r < begin + batch.documents.length(d); ++r) {
      EXPECT_TRUE(next[r].equal(outputs[r - 1])) << "row " << r;
    }
  }
}

// Row r of pass j is the node that the engine drafts at depth j, with all rows up to r - j known.
TEST(HassTraining, ComputesWhatTheEngineDraftsWith) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(2, kPrompt, 10)};
  const EagleHead head = random_head(target);
  const train::Batch batch = target.batch(texts, kPrompt, {{}, true});
  const Passes passes = run_passes(head, batch, kPasses);
  const TemporaryFolder folder;
  ASSERT_TRUE(head.write(folder.path()).ok());
  const auto loaded = target.models().load("eagle", folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const std::vector<Floats> read = rows_of(batch.last);
  const auto known = std::span(texts[0]).subspan(1);
  for (size_t root = 0; root + kPasses < known.size(); ++root) {
    RowRunner runner(**loaded);
    const auto rows = static_cast<int>(root) + 1;
    RowOutput row = runner.commit(std::span(read).first(root + 1), known, rows).back();
    for (size_t pass = 0; pass < kPasses; ++pass) {
      if (pass > 0) row = runner.add_node(row.hidden, known[root + pass]);
      const at::Tensor expected = passes.outputs[pass][static_cast<int64_t>(root + pass)];
      EXPECT_LT(relative_error(row.hidden, expected), kParity)
          << "pass " << pass << " behind row " << root;
    }
  }
}

// Features of passes have no gradient, so the loss of a pass is differentiated with them fixed.
TEST(HassTraining, GradientsAreThoseOfEachPass) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 6), target.say(2, kPrompt, 9)};
  EagleHead head = random_head(target);
  const train::Batch batch = target.batch(texts, kPrompt, {{}, true});
  const at::Tensor places = train::places_of(supervised_rows(batch, 0));
  const Passes passes = run_passes(head, batch, 3);
  const train::EagleLoss weights = {.token = 0.5, .top = 0.5, .top_tokens = 3};
  for (size_t pass = 0; pass < 3; ++pass) {
    SCOPED_TRACE(testing::Message() << "pass " << pass);
    const auto loss = [&](bool train) {
      const at::AutoGradMode gradients(train);
      train::Figures figures;
      const at::Tensor outputs = head.forward(batch, std::span(passes.features).first(pass + 1));
      return head.learn(batch, outputs, places, weights, 1.0, static_cast<int>(pass), figures);
    };
    expect_gradients(head.parameters(), loss);
  }
}

TEST(HassTraining, AddsUpThePasses) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 9)};
  at::Generator random = generator(3);
  auto method = make_hass(target.target(), {.passes = 3, .noise = 0.0}, random);
  ASSERT_TRUE(method.ok()) << method.status().message();
  perturb((*method)->parameters(), 0.05, 4);
  EagleHead head = random_head(target);  // of the same numbers
  const train::Batch batch = target.batch(texts, kPrompt, (*method)->needs());
  const at::Tensor places = train::places_of(supervised_rows(batch, 0));
  const Passes passes = run_passes(head, batch, 3);
  for (const double share : {0.0, 0.9}) {
    train::EagleLoss weights;
    weights.top = share < 0.8 ? 0.0 : 1.0;
    clear_gradients(head.parameters());
    clear_gradients((*method)->parameters());
    train::Figures of_passes;
    double sum = 0.0;
    for (size_t pass = 0; pass < 3; ++pass) {
      const at::Tensor outputs = head.forward(batch, std::span(passes.features).first(pass + 1));
      sum += head.learn(batch, outputs, places, weights, 0.5, static_cast<int>(pass), of_passes);
    }
    (*method)->set_progress(share);
    const auto figures = (*method)->accumulate(batch, 0.5, random, true);
    ASSERT_TRUE(figures.ok()) << figures.status().message();
    EXPECT_NEAR(figure(*figures, "loss"), sum, 1e-5 * sum);
    EXPECT_EQ(figure(*figures, "hits_2"), figure(of_passes, "hits_2"));
    for (size_t i = 0; i < head.parameters().list().size(); ++i) {
      EXPECT_LT(relative_error((*method)->parameters().list()[i].value.grad(),
                               head.parameters().list()[i].value.grad()),
                1e-4)
          << head.parameters().list()[i].name;
    }
  }
}

// - sum p log q over the likeliest tokens alone, the last pass's.
TEST(HassTraining, TopLossIsOfTheLikeliestTokens) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 6)};
  const EagleHead head = random_head(target);
  const train::Batch batch = target.batch(texts, kPrompt, {{}, true});
  const Passes passes = run_passes(head, batch, 2);
  const at::NoGradGuard no_grad;
  const at::Tensor output = *target.target().output();
  double expected = 0.0;
  for (int64_t t = kPrompt - 1; t + 2 < batch.documents.rows(); ++t) {
    const at::Tensor p = at::mv(output, passes.features[0][t + 1]).softmax(0);
    const at::Tensor log_q = at::mv(output, passes.outputs[1][t]).log_softmax(0);
    std::vector<std::pair<float, float>> pairs;
    for (int64_t v = 0; v < p.size(0); ++v) {
      pairs.emplace_back(p[v].item<float>(), log_q[v].item<float>());
    }
    std::ranges::sort(pairs, std::greater<>());
    for (size_t i = 0; i < 10; ++i) expected -= double{pairs[i].first} * double{pairs[i].second};
  }
  train::Figures figures;
  const double loss =
      head.learn(batch, passes.outputs[1], train::places_of(supervised_rows(batch, 0)),
                 {.feature = 0.0, .token = 0.0, .top = 2.0}, 1.0, 1, figures);
  EXPECT_NEAR(figure(figures, "top_1"), expected, 1e-4 * expected);
  EXPECT_NEAR(loss, 2.0 * expected, 2e-4 * expected);
}

TEST(HassTraining, SettingsThatMakeNoSenseAreRefused) {
  TextTarget target;
  at::Generator random = generator(1);
  for (const int passes : {0, 17}) {
    const auto method = make_hass(target.target(), {.passes = passes}, random);
    EXPECT_EQ(method.status().code(), StatusCode::kInvalidArgument) << passes;
  }
}

TEST(HassTraining, AHeadThatKnowsTheTextDraftsAllOfIt) {
  constexpr int kDepth = 4;
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 40)};
  const auto trained = [&](int late) {
    at::Generator random = generator(3);
    auto method = make_hass(target.target(), {.noise = 0.0, .loss = {.token = 1.0}}, random);
    EXPECT_TRUE(method.ok()) << method.status().message();
    train::Batch batch = target.batch(texts, kPrompt, (*method)->needs());
    batch.last = at::roll(batch.last, late, 0);
    fit(**method, {&batch, 1}, {.steps = late == 0 ? 400 : 200, .rate = 5e-3});
    const TemporaryFolder folder;
    EXPECT_TRUE((*method)->write(folder.path()).ok());
    return target.draft("eagle", folder.path(), texts[0], kPrompt, kDepth);
  };
  const TextTarget::Round round = trained(0);
  EXPECT_EQ(round.tokens, round.most);
  EXPECT_LT(trained(1).tokens, 1.5);
}

}  // namespace aerie::test::hass_test
