// Training of modules for multi-token prediction: each step is what the engine computes for the
// nodes of a draft.
#include "train/methods/mtp_method.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/tiny_model.h"
#include "tests/train/fit.h"
#include "tests/train/text_target.h"
#include "train/methods/supervision.h"

namespace aerie::test::methods_mtp_test {

using train::MtpModule;

constexpr double kParity = 1e-3;
constexpr int kPrompt = 8, kSteps = 4;

at::Generator generator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

std::unique_ptr<train::Method> random_method(TextTarget& target,
                                             const train::MtpOptions& options = {}) {
  at::Generator random = generator(3);
  auto method = make_mtp(target.target(), options, random);
  EXPECT_TRUE(method.ok()) << method.status().message();
  return std::move(*method);
}

class MtpParity : public testing::TestWithParam<train::MtpModuleOptions> {};

// Of every row the steps are a chain of nodes behind the rows up to it, fed with the text.
TEST_P(MtpParity, StepsComputeWhatTheEngineDraftsWith) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 5), target.say(2, kPrompt, 10)};
  const train::Batch batch = target.batch(texts, kPrompt, {{}, true});
  at::Generator random = generator(3);
  auto module = MtpModule::create(target.target(), GetParam(), random);
  ASSERT_TRUE(module.ok()) << module.status().message();
  perturb(module->parameters(), 0.05, 4);
  const at::NoGradGuard no_grad;
  MtpModule::State state = module->begin(batch);
  std::vector<at::Tensor> logits, handed;
  for (int step = 0; step < kSteps; ++step) {
    logits.push_back(module->logits(module->step(batch, state)));
    handed.push_back(state.handed);
  }
  const TemporaryFolder folder;
  ASSERT_TRUE(module->write(folder.path()).ok());
  HeadSettings settings;
  settings.switches["feature_normed"] = GetParam().feature_normed;
  settings.switches["handed_normed"] = GetParam().handed_normed;
  const auto loaded = target.models().load("mtp", folder.path(), settings);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const int64_t begin = batch.documents.start(1);
  const std::vector<Floats> read = rows_of(batch.last.narrow(0, begin, batch.documents.length(1)));
  const auto known = std::span(texts[1]).subspan(1);
  for (size_t root = 0; root + kSteps <= known.size(); ++root) {
    RowRunner runner(**loaded);
    const auto rows = static_cast<int>(root) + 1;
    RowOutput row = runner.commit(std::span(read).first(root + 1), known, rows).back();
    for (size_t step = 0; step < kSteps; ++step) {
      if (step > 0) row = runner.add_node(row.hidden, known[root + step]);
      SCOPED_TRACE(testing::Message() << "step " << step << " behind row " << root);
      const int64_t place = begin + static_cast<int64_t>(root);
      EXPECT_LT(relative_error(row.logits, logits[step][place]), kParity);
      EXPECT_LT(relative_error(row.hidden, handed[step][place]), kParity);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Switches, MtpParity,
    testing::Values(train::MtpModuleOptions{}, train::MtpModuleOptions{.feature_normed = false},
                    train::MtpModuleOptions{.handed_normed = false, .intermediate = 24}));

// Rows that are left out change nothing for the others.
TEST(MtpTraining, NarrowedRowsAreAsTheyWere) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 5), target.say(2, kPrompt, 3)};
  const train::Batch batch = target.batch(texts, kPrompt, {{}, true});
  at::Generator random = generator(3);
  auto module = MtpModule::create(target.target(), {}, random);
  ASSERT_TRUE(module.ok());
  const at::NoGradGuard no_grad;
  MtpModule::State all = module->begin(batch), some = all;
  module->step(batch, all);
  module->step(batch, some);
  for (const std::vector<int64_t>& places :
       {std::vector<int64_t>{2, 3, 7, 14, 15}, std::vector<int64_t>{0, 2, 4}}) {
    MtpModule::narrow(some, at::tensor(places, at::kLong));
    const at::Tensor expected = module->step(batch, all).index_select(0, some.rows);
    EXPECT_LT(relative_error(module->step(batch, some), expected), 1e-5);
  }
}

TEST(MtpTraining, GradientsAreThoseOfTheLoss) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 6), target.say(2, kPrompt, 9)};
  for (const bool hard : {true, false}) {
    SCOPED_TRACE(hard ? "of tokens" : "of distributions");
    train::MtpOptions options;
    if (!hard) options.loss = train::Divergence::kForwardKl;
    const std::unique_ptr<train::Method> method = random_method(target, options);
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
}

// Cross entropy with the token so many places on, by hand, and the weights of the steps.
TEST(MtpTraining, StepsLearnTheTokensOfTheText) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 5), target.say(2, kPrompt, 2)};
  const std::unique_ptr<train::Method> method = random_method(target);
  const train::Batch batch = target.batch(texts, kPrompt, method->needs());
  at::Generator random = generator(3);
  auto module = MtpModule::create(target.target(), {}, random);  // of the same numbers
  ASSERT_TRUE(module.ok());
  const auto figures = method->accumulate(batch, 1.0, random, false);
  ASSERT_TRUE(figures.ok()) << figures.status().message();
  const at::NoGradGuard no_grad;
  MtpModule::State state = module->begin(batch);
  double total = 0.0;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor log_q = module->logits(module->step(batch, state)).log_softmax(-1);
    double sum = 0.0, rows = 0.0;
    for (int64_t d = 0; d < batch.documents.count(); ++d) {
      const int64_t begin = batch.documents.start(d), end = begin + batch.documents.length(d);
      for (int64_t t = begin + kPrompt - 1 - step; t + step + 2 < end; ++t) {
        if (t < begin + kPrompt - 1) continue;  // not asked in the step before
        sum -= log_q[t][batch.tokens[t + step + 2].item<int64_t>()].item<double>();
        rows += 1.0;
      }
    }
    EXPECT_EQ(figure(*figures, "rows_" + std::to_string(step)), rows);
    EXPECT_NEAR(figure(*figures, "loss_" + std::to_string(step)), sum, 1e-4 * sum);
    total += sum * std::pow(0.6, step) / (1.0 + 0.6 + 0.36);
  }
  EXPECT_NEAR(figure(*figures, "loss"), total, 1e-4 * total);
}

TEST(MtpTraining, SettingsThatMakeNoSenseAreRefused) {
  TextTarget target;
  at::Generator random = generator(1);
  const auto refused = [&](const train::MtpOptions& options) {
    const auto method = make_mtp(target.target(), options, random);
    return method.status().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({.steps = 0}));
  EXPECT_TRUE(refused({.steps = 65}));
  EXPECT_TRUE(refused({.step_decay = 0.0}));
  EXPECT_TRUE(refused({.module = {.intermediate = -1}}));
}

TEST(MtpTraining, NamesTheSwitchesThatItWasTrainedWith) {
  TextTarget target;
  EXPECT_EQ(random_method(target)->settings().speculate, "mtp:model={},num_speculative_tokens=3");
  EXPECT_EQ(random_method(target, {.module = {.feature_normed = false, .handed_normed = false}})
                ->settings()
                .speculate,
            "mtp:model={},num_speculative_tokens=3,feature_normed=false,handed_normed=false");
}

// From the features alone: tokens say nothing, so that those of the neighbour are of no use.
TEST(MtpTraining, AModuleThatKnowsTheTextDraftsAllOfIt) {
  constexpr int kDepth = 3, kTokens = 48;
  TextTarget target;
  target.target().embedding()->zero_();
  const std::vector<Text> texts = {random_tokens(1, kTokens, target.target().config().vocab)};
  const std::unique_ptr<train::Method> method =
      random_method(target, {.module = {.store_tables = true}});
  const train::Batch batch = target.batch(texts, kPrompt, method->needs());
  const std::vector<double> losses = fit(*method, {&batch, 1}, {.steps = 300, .rate = 5e-3});
  EXPECT_LT(losses.back(), 0.05 * losses.front());
  const TemporaryFolder folder;
  ASSERT_TRUE(method->write(folder.path()).ok());
  const TextTarget::Round round = target.draft("mtp", folder.path(), texts[0], kPrompt, kDepth);
  EXPECT_EQ(round.tokens, round.most);
  EXPECT_LT(target.draft("mtp", folder.path(), texts[0], kPrompt, kDepth, 1).tokens, 1.5);
}

}  // namespace aerie::test::methods_mtp_test
