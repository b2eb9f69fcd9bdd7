// Medusa's heads as they are trained: that they are those which the engine drafts with, and what
// they are held to.
#include "train/methods/offset/medusa_method.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "tests/draft/heads/head_rows.h"
#include "tests/train/fit.h"
#include "tests/train/methods/method_target.h"

namespace aerie::test::methods_medusa_test {

using ::testing::HasSubstr;
using train::Batch;
using train::Divergence;
using train::make_medusa;
using train::MedusaOptions;
using train::MedusaOutput;
using train::Method;

constexpr const char* kMethod = "medusa";

MethodTarget& tiny() {
  static MethodTarget target(MethodTarget::usual());
  return target;
}

std::unique_ptr<Method> make(const MedusaOptions& options) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  auto method = make_medusa(tiny().target(), options, generator);
  EXPECT_TRUE(method.ok()) << method.status().message();
  return method.ok() ? std::move(*method) : nullptr;
}

std::vector<int32_t> every_third() {
  std::vector<int32_t> ids;
  for (int32_t id = 1; id < tiny().vocab(); id += 3) ids.push_back(id);
  return ids;
}

std::vector<int32_t> all_ids() {
  std::vector<int32_t> ids(static_cast<size_t>(tiny().vocab()));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

MedusaOptions options_of(MedusaOutput output, bool pruned, int heads = 3, int blocks = 1) {
  MedusaOptions options;
  options.heads = heads;
  options.blocks = blocks;
  options.output = output;
  if (pruned) options.vocabulary = every_third();
  return options;
}

struct Case {
  const char* name;
  MedusaOptions options;
  double tolerance = 1e-3;
};

std::vector<Case> cases() {
  std::vector<Case> cases = {{"own", options_of(MedusaOutput::kOwn, false)},
                             {"two_blocks", options_of(MedusaOutput::kOwn, false, 2, 2)},
                             {"pruned", options_of(MedusaOutput::kOwn, true)},
                             {"shared", options_of(MedusaOutput::kShared, false)},
                             {"shared_pruned", options_of(MedusaOutput::kShared, true, 4)},
                             {"target", options_of(MedusaOutput::kTarget, false)}};
  cases.push_back({"narrow", options_of(MedusaOutput::kShared, true), 2e-2});
  cases.back().options.bf16 = true;
  return cases;
}

TEST(Medusa, ComputesWhatTheEngineDraftsWith) {
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
    ASSERT_EQ((*head)->outputs_of_root(), c.options.heads);
    const bool pruned = !c.options.vocabulary.empty();
    const std::vector<int32_t> labels = pruned ? c.options.vocabulary : all_ids();
    ASSERT_EQ((*head)->target_ids().size(), pruned ? labels.size() : 0u);
    const auto vocab = static_cast<size_t>((*head)->vocab());
    constexpr int64_t kRow = 7;
    const at::Tensor features = batch.last[kRow].contiguous();
    const auto* values = features.data_ptr<float>();
    const Floats row(values, values + features.numel());
    const RowOutput drafted =
        RowRunner(**head).commit({&row, 1}, {&text.tokens[kRow + 1], 1}, 1)[0];
    for (int i = 0; i < c.options.heads; ++i) {
      const auto logits = std::span(drafted.logits).subspan(static_cast<size_t>(i) * vocab, vocab);
      const auto trained = offset_log_probabilities(*method, batch, kRow, i, labels);
      EXPECT_LT(relative_distance(trained, log_softmax(logits)), c.tolerance) << "head " << i;
    }
  }
}

TEST(Medusa, BeginsByRepeatingTheTarget) {
  const PromptedText text = tiny().say(3, 6, 12);
  const Batch batch = tiny().batch({&text, 1});
  const std::unique_ptr<Method> method = make(options_of(MedusaOutput::kOwn, false));
  const auto norm = *tiny().target().final_norm();
  const auto output = *tiny().target().output();
  const at::Tensor logits = target_logits(tiny().target(), batch.last, norm, output);
  const at::Tensor wanted = logits[8].log_softmax(-1).contiguous();
  const auto begun = offset_log_probabilities(*method, batch, 8, 2, all_ids());
  EXPECT_LT(relative_distance(begun, {wanted.data_ptr<float>(), begun.size()}), 1e-4);
}

TEST(Medusa, GradientsAreThoseOfTheLoss) {
  const PromptedText texts[] = {tiny().say(3, 4, 8), tiny().say(4, 3, 7)};
  const Batch batch = tiny().batch(texts);
  for (const bool soft : {false, true}) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(fmt::format("{}, {}", c.name, soft ? "soft" : "labels"));
      MedusaOptions options = c.options;
      if (soft) options.soft = Divergence::kForwardKl;
      const std::unique_ptr<Method> method = make(options);
      perturb(method->parameters(), 0.1, 9);
      expect_right_gradients(*method, batch, 0.02);
    }
  }
}

// The loss from the definition: head i in row t, token t + 2 + i, with root and token generated.
double loss_by_hand(Method& method, const Batch& batch, const MedusaOptions& options,
                    const std::vector<int64_t>& starts, double& weight) {
  double loss = 0.0;
  weight = 0.0;
  for (size_t d = 0; d + 1 < starts.size(); ++d) {
    for (int64_t t = starts[d]; t < starts[d + 1]; ++t) {
      for (int i = 0; i < options.heads && t + 2 + i < starts[d + 1]; ++i) {
        const bool root = batch.mask[t + 1].item<float>() > 0.0f;
        if (!root || batch.mask[t + 2 + i].item<float>() == 0.0f) continue;
        weight += i == 0 ? 1.0 : 0.0;
        const int32_t label[] = {batch.tokens[t + 2 + i].item<int32_t>()};
        if (!options.vocabulary.empty() &&
            !std::ranges::binary_search(options.vocabulary, label[0])) {
          continue;
        }
        const double log_q = offset_log_probabilities(method, batch, t, i, label)[0];
        loss -= std::pow(options.decay, i + 1) * log_q;
      }
    }
  }
  return loss;
}

TEST(Medusa, RowsAreThoseThatDraftsBeginWith) {
  const PromptedText texts[] = {tiny().say(3, 5, 9),
                                {random_tokens(8, 2, tiny().vocab()), 1},
                                tiny().say(4, 3, 2),
                                tiny().say(5, 1, 11)};
  Batch batch = tiny().batch(texts);
  batch.mask[12] = 0.0f;  // a gap in the first reply
  for (const bool pruned : {false, true}) {
    const MedusaOptions options = options_of(MedusaOutput::kOwn, pruned);
    const std::unique_ptr<Method> method = make(options);
    perturb(method->parameters(), 0.2, 9);
    double weight = 0.0;
    const double expected = loss_by_hand(*method, batch, options, batch.documents.starts, weight);
    at::Generator generator = at::detail::createCPUGenerator(1);
    const auto figures = method->accumulate(batch, 1.0, generator, false);
    ASSERT_TRUE(figures.ok());
    EXPECT_EQ(figures->sums[0].first, "loss");
    EXPECT_NEAR(figures->sums[0].second, expected, 1e-3 * expected);
    EXPECT_GT(weight, 10.0);
    EXPECT_EQ(figures->weight, weight);
    EXPECT_EQ(method->weight(batch), weight);
  }
}

// The target's distribution where a head's token stands is that of the row before it.
TEST(Medusa, SoftTargetsAreTheTargetsOwn) {
  const PromptedText text = tiny().say(3, 5, 9);
  const Batch batch = tiny().batch({&text, 1});
  const auto norm = *tiny().target().final_norm();
  for (const bool pruned : {false, true}) {
    MedusaOptions options = options_of(MedusaOutput::kOwn, pruned, 2);
    const std::unique_ptr<Method> hard = make(options);
    options.soft = Divergence::kForwardKl;
    const std::unique_ptr<Method> soft = make(options);
    perturb(hard->parameters(), 0.2, 9);
    perturb(soft->parameters(), 0.2, 9);
    at::Tensor output = *tiny().target().output();
    const std::vector<int32_t> ids = pruned ? options.vocabulary : all_ids();
    output = output.index_select(0, at::tensor(at::ArrayRef<int32_t>(ids), at::kLong));
    const at::Tensor p =
        target_logits(tiny().target(), batch.last, norm, output).softmax(-1).contiguous();
    double expected = 0.0;
    for (int64_t t = 4; t < 12; ++t) {
      for (int i = 0; i < 2 && t + 2 + i < 14; ++i) {
        const auto log_q = offset_log_probabilities(*hard, batch, t, i, ids);
        for (size_t v = 0; v < ids.size(); ++v) {
          const double share = p[t + 1 + i][static_cast<int64_t>(v)].item<float>();
          expected += std::pow(0.8, i + 1) * share * (std::log(share) - log_q[v]);
        }
      }
    }
    at::Generator generator = at::detail::createCPUGenerator(1);
    const auto figures = soft->accumulate(batch, 1.0, generator, false);
    ASSERT_TRUE(figures.ok());
    EXPECT_NEAR(figures->sums[0].second, expected, 1e-3 * expected);
  }
}

double trained_length(const MedusaOptions& options, const Batch& batch, const PromptedText& text) {
  const std::unique_ptr<Method> method = make(options);
  fit(*method, {&batch, 1}, {.steps = 150, .rate = 0.01});
  const TemporaryFolder folder;
  EXPECT_TRUE(method->write(folder.path()).ok());
  return tiny().accepted_length(kMethod, folder.path(), text, options.heads);
}

TEST(Medusa, LearnsATextByHeart) {
  const PromptedText text = tiny().say(5, 6, 49);
  const std::set<int32_t> different(text.tokens.begin() + text.prompt, text.tokens.end());
  ASSERT_GT(different.size(), 24u);  // no loop
  const Batch batch = tiny().batch({&text, 1});
  const MedusaOptions options = options_of(MedusaOutput::kOwn, false);
  EXPECT_EQ(trained_length(options, batch, text), options.heads + 1.0);
  // All else alike, with features or tokens of the neighbour it learns something else.
  Batch shifted = batch;
  shifted.last = batch.shifted(batch.last, 1);
  EXPECT_LT(trained_length(options, shifted, text), 1.5);
  shifted = batch;
  shifted.tokens = batch.shifted(batch.tokens, 1);
  EXPECT_LT(trained_length(options, shifted, text), 1.5);
}

TEST(Medusa, OptionsOutOfRangeAreRefused) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const auto expect_refused = [&](const MedusaOptions& options, const std::string& part) {
    const Status status = make_medusa(tiny().target(), options, generator).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  MedusaOptions options;
  options.heads = 0;
  expect_refused(options, "0 heads");
  options.heads = 65;
  expect_refused(options, "65 heads");
  options = {};
  options.blocks = 0;
  expect_refused(options, "0 blocks");
  options = {};
  options.decay = 1.5;
  expect_refused(options, "a decay of 1.5");
  options = {};
  options.vocabulary = {3, 2};
  expect_refused(options, "not ascending ids of the target's 272 tokens");
  options.vocabulary = {3, 272};
  expect_refused(options, "not ascending ids");
  options.vocabulary = {-1, 3};
  expect_refused(options, "not ascending ids");
  options.vocabulary = {1, 3};
  options.output = MedusaOutput::kTarget;
  expect_refused(options, "draft_vocab");
}

}  // namespace aerie::test::methods_medusa_test
