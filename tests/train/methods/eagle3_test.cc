// EAGLE-3's training: its steps are what the engine drafts, its attention sees what the definition
// says, its gradients are those of its loss, and a head that knows a text by heart drafts all of
// it.
#include "train/methods/eagle/eagle3_method.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "format/safetensors/safetensors_folder.h"
#include "tests/train/fit.h"
#include "tests/train/text_target.h"

namespace aerie::test::eagle3_test {

using train::Eagle3Head;
using train::Eagle3HeadOptions;
using train::TrainingTimeTest;

constexpr double kParity = 1e-3;
constexpr int kPrompt = 8;

at::Generator generator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

// Every third token of the target's, and all that the texts have.
std::vector<int32_t> some_tokens(int vocab, std::span<const Text> texts) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab; ++id) {
    bool said = id % 3 == 0;
    for (const Text& text : texts) said = said || std::ranges::count(text, id) > 0;
    if (said) ids.push_back(id);
  }
  return ids;
}

Eagle3Head random_head(TextTarget& target, const Eagle3HeadOptions& options = {}) {
  at::Generator random = generator(3);
  auto head = Eagle3Head::create(target.target(), options, random);
  EXPECT_TRUE(head.ok()) << head.status().message();
  perturb(head->parameters(), 0.05, 4);
  return std::move(*head);
}

at::Tensor all_rows(const train::Batch& batch) {
  return at::arange(batch.documents.rows(), at::kLong);
}

// In the engine row t comes after the rows before it, and then its nodes, each fed what the one
// above handed on.
TEST(Eagle3Training, StepsAreWhatTheEngineDrafts) {
  constexpr int kSteps = 4;
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 6), target.say(2, kPrompt, 10)};
  const std::vector<int32_t> pruned = some_tokens(target.target().config().vocab, texts);
  const std::vector<Eagle3HeadOptions> variants = {
      {},
      {.tap_layers = {1, 3}, .vocabulary = pruned, .norm_before_residual = true, .fc_norm = true},
      {.vocabulary = pruned, .intermediate = 24, .heads = 2, .kv_heads = 1, .norm_output = true}};
  for (const Eagle3HeadOptions& options : variants) {
    Eagle3Head head = random_head(target, options);
    const train::Batch batch = target.batch(texts, kPrompt, {head.options().tap_layers, true});
    const TemporaryFolder folder;
    ASSERT_TRUE(head.write(folder.path(), "eagle3", kSteps).ok());
    const auto loaded = target.models().load("eagle3", folder.path());
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    TrainingTimeTest test(head, batch);
    std::vector<at::Tensor> logits;
    for (int step = 0; step < kSteps; ++step)
      logits.push_back(head.logits(test.step(all_rows(batch))));

    const Text& text = texts[1];
    const int64_t begin = batch.documents.start(1);
    const std::vector<Floats> taps =
        rows_of(batch.taps.narrow(0, begin, batch.documents.length(1)));
    for (size_t t = 0; t + kSteps < text.size(); ++t) {
      RowRunner runner(**loaded);
      const auto read = std::span(taps).first(t + 1);
      RowOutput row = runner.commit(read, std::span(text).subspan(1, t + 1), 3).back();
      for (size_t step = 0; step < kSteps; ++step) {
        if (step > 0) row = runner.add_node(row.hidden, text[t + 1 + step]);
        EXPECT_LT(relative_error(row.logits, logits[step][begin + static_cast<int64_t>(t)]),
                  kParity)
            << "row " << t << " step " << step;
      }
    }
  }
}

// Which rows' features change what row t says in step j: a brute-force look at the mask.
TEST(Eagle3Training, RowsSeeThePastAsItWasInTheFirstStepAndThemselves) {
  constexpr int kSteps = 3;
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, 4, 3), target.say(2, 5, 4)};
  Eagle3Head head = random_head(target);
  const train::Batch batch = target.batch(texts, 4, {head.options().tap_layers, true});
  const auto logits_of = [&](const train::Batch& changed) {
    const at::NoGradGuard no_grad;
    TrainingTimeTest test(head, changed);
    std::vector<at::Tensor> logits;
    for (int step = 0; step < kSteps; ++step)
      logits.push_back(head.logits(test.step(all_rows(changed))));
    return logits;
  };
  const std::vector<at::Tensor> before = logits_of(batch);
  const auto document_of = [&](int64_t row) { return row < batch.documents.start(1) ? 0 : 1; };
  const int64_t rows = batch.documents.rows();
  for (int64_t other = 0; other < rows; ++other) {
    train::Batch changed = batch;
    changed.taps = batch.taps.clone();
    changed.taps[other] += 1.0;
    const std::vector<at::Tensor> after = logits_of(changed);
    for (int64_t row = 0; row < rows; ++row) {
      const bool sees = document_of(row) == document_of(other) && other <= row;
      for (size_t step = 0; step < kSteps; ++step) {
        EXPECT_EQ((after[step][row] - before[step][row]).abs().max().item<double>() > 0.0, sees)
            << "row " << row << " step " << step << " features of " << other;
      }
    }
    // A token is given to row t - 1 in step 0, to row t - 2 in step 1, and so on; others see it
    // only as what those rows were in step 0.
    train::Batch said = batch;
    said.tokens = batch.tokens.clone();
    said.tokens[other] = (said.tokens[other] + 1) % target.target().config().vocab;
    const std::vector<at::Tensor> heard = logits_of(said);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t step = 0; step < kSteps; ++step) {
        const bool same = document_of(row) == document_of(other);
        const bool given = other > row && other <= row + 1 + step;
        const bool past = other > batch.documents.start(document_of(row)) && other <= row;
        const bool changes =
            (heard[static_cast<size_t>(step)][row] - before[static_cast<size_t>(step)][row])
                .abs()
                .max()
                .item<double>() > 0.0;
        EXPECT_EQ(changes, same && (given || past))
            << "row " << row << " step " << step << " token " << other;
      }
    }
  }
}

// Rows that are not asked for may be left out: the others say the same.
TEST(Eagle3Training, RowsDoNotDependOnWhichOthersAreAsked) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 6), target.say(2, kPrompt, 10)};
  Eagle3Head head = random_head(target);
  const train::Batch batch = target.batch(texts, kPrompt, {head.options().tap_layers, true});
  TrainingTimeTest all(head, batch), some(head, batch);
  std::vector<at::Tensor> asked = {at::tensor({3, 4, 9, 15, 20}, at::kLong),
                                   at::tensor({4, 9, 20}, at::kLong), at::tensor({20}, at::kLong)};
  for (const at::Tensor& rows : asked) {
    const at::Tensor expected = all.step(all_rows(batch)).index_select(0, rows);
    EXPECT_LT(relative_error(some.step(rows), expected), 1e-5);
  }
}

TEST(Eagle3Training, GradientsAreThoseOfTheLoss) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 5), target.say(2, kPrompt, 7)};
  at::Generator random = generator(3);
  for (const train::Divergence loss_kind :
       {train::Divergence::kForwardKl, train::Divergence::kReverseKl,
        train::Divergence::kJensenShannon}) {
    auto made =
        make_eagle3(target.target(),
                    {.head = {.vocabulary = some_tokens(target.target().config().vocab, texts)},
                     .steps = 3,
                     .loss = loss_kind},
                    random);
    ASSERT_TRUE(made.ok()) << made.status().message();
    train::Method& method = **made;
    perturb(method.parameters(), 0.05, 4);
    const train::Batch batch = target.batch(texts, kPrompt, method.needs());
    constexpr double kScale = 0.25;
    expect_gradients(method.parameters(), [&](bool train) {
      const auto figures = method.accumulate(batch, kScale, random, train);
      EXPECT_TRUE(figures.ok()) << figures.status().message();
      return kScale * figure(*figures, "loss");
    });
  }
}

TEST(Eagle3Training, TheTestOfItsOwnOutputsBeginsWhereItIsToldTo) {
  TextTarget target;
  const std::vector<Text> texts = {target.say(1, kPrompt, 9)};
  at::Generator random = generator(3);
  auto made = make_eagle3(target.target(), {.steps = 3, .test_from = 0.5}, random);
  ASSERT_TRUE(made.ok()) << made.status().message();
  train::Method& method = **made;
  const train::Batch batch = target.batch(texts, kPrompt, method.needs());
  const auto steps = [&](double share, bool train) {
    method.set_progress(share);
    const auto figures = method.accumulate(batch, 1.0, random, train);
    EXPECT_TRUE(figures.ok()) << figures.status().message();
    return std::ranges::count_if(figures->sums,
                                 [](const auto& sum) { return sum.first.starts_with("loss_"); });
  };
  EXPECT_EQ(steps(0.0, true), 1);
  EXPECT_EQ(steps(0.49, true), 1);
  EXPECT_EQ(steps(0.5, true), 3);
  EXPECT_EQ(steps(1.0, true), 3);
  EXPECT_EQ(steps(0.0, false), 3);
}

TEST(Eagle3Training, SettingsThatMakeNoSenseAreRefused) {
  TextTarget target;
  at::Generator random = generator(1);
  const auto refused = [&](const train::Eagle3Options& options) {
    return make_eagle3(target.target(), options, random).status().code() ==
           StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({.steps = 0}));
  EXPECT_TRUE(refused({.head = {.tap_layers = {99}}}));
  EXPECT_TRUE(refused({.head = {.vocabulary = {3, 2}}}));
  EXPECT_TRUE(refused({.head = {.vocabulary = {1 << 20}}}));
}

TEST(Eagle3Training, AHeadThatKnowsTheTextDraftsAllOfIt) {
  constexpr int kDepth = 4;
  TextTarget target;
  const std::vector<Text> texts = {target.say(2, kPrompt, 40)};
  const auto trained = [&](int late) {
    at::Generator random = generator(3);
    auto method =
        std::move(make_eagle3(target.target(), {.head = {.tap_layers = {1, 2, 3}}, .steps = kDepth},
                              random))
            .value();
    train::Batch batch = target.batch(texts, kPrompt, method->needs());
    batch.taps = at::roll(batch.taps, late, 0);
    const std::vector<double> losses = fit(*method, {&batch, 1}, {.steps = 400, .rate = 4e-3});
    EXPECT_LT(losses.back(), 0.05 * losses.front());
    const TemporaryFolder folder;
    EXPECT_TRUE(method->write(folder.path()).ok());
    return target.draft("eagle3", folder.path(), texts[0], kPrompt, kDepth);
  };
  const TextTarget::Round round = trained(0);
  EXPECT_EQ(round.tokens, round.most);
  EXPECT_GT(round.most, 4.0);
  for (const int late : {-1, 1}) {
    EXPECT_LT(trained(late).tokens, 1.5) << "late " << late;
  }
}

}  // namespace aerie::test::eagle3_test
