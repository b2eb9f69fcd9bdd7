// Medusa's heads trained together with their target: that the model that is written is the one that
// was trained, and what both are held to.
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/draft/heads/head_rows.h"
#include "tests/train/fit.h"
#include "tests/train/methods/method_target.h"
#include "train/methods/offset/medusa_method.h"

namespace aerie::test::medusa2_test {

using ::testing::HasSubstr;
using train::Batch;
using train::make_medusa2;
using train::Medusa2Options;
using train::Method;

constexpr const char* kMethod = "medusa";

MethodTarget& tiny() {
  static MethodTarget target(MethodTarget::usual());
  return target;
}

Medusa2Options small_options() {
  Medusa2Options options;
  options.heads.heads = 3;
  options.rank = 4;
  options.alpha = 4.0;
  return options;
}

std::unique_ptr<Method> make(const Medusa2Options& options) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  auto method = make_medusa2(tiny().target(), options, generator);
  EXPECT_TRUE(method.ok()) << method.status().message();
  return method.ok() ? std::move(*method) : nullptr;
}

std::map<std::string, double> figures_of(Method& method, const Batch& batch) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const auto figures = method.accumulate(batch, 1.0, generator, false);
  EXPECT_TRUE(figures.ok()) << figures.status().message();
  if (!figures.ok()) return {};
  return {figures->sums.begin(), figures->sums.end()};
}

// The model that write() has put into the folder.
MethodTarget written_model(const Method& method, const std::string& folder) {
  const Status status = method.write(folder);
  EXPECT_TRUE(status.ok()) << status.message();
  const std::string model = method.settings().model;
  EXPECT_EQ(model.substr(0, 3), "{}/");
  return MethodTarget(folder + model.substr(2));
}

at::Tensor logits_of(MethodTarget& model, const at::Tensor& last) {
  return target_logits(model.target(), last, *model.target().final_norm(),
                       *model.target().output());
}

// A reference run through everything that is written: adapters, their order in the file, heads.
TEST(Medusa2, WritesTheModelThatItTrained) {
  const PromptedText text = tiny().say(3, 6, 12);
  const Batch batch = tiny().batch({&text, 1});
  const std::unique_ptr<Method> method = make(small_options());
  perturb(method->parameters(), 0.1, 9);
  method->set_progress(1.0);
  const TemporaryFolder folder;
  MethodTarget model = written_model(*method, folder.path());
  const Batch changed = model.batch({&text, 1});
  EXPECT_GT((changed.last - batch.last).norm().item<double>(),
            0.1 * batch.last.norm().item<double>());
  HeadSettings settings;
  settings.depth = 3;
  auto head = model.models().load(kMethod, folder.path(), settings);
  ASSERT_TRUE(head.ok()) << head.status().message();
  constexpr int64_t kRow = 7;
  const at::Tensor features = changed.last[kRow].contiguous();
  const auto* values = features.data_ptr<float>();
  const Floats row(values, values + features.numel());
  const RowOutput drafted = RowRunner(**head).commit({&row, 1}, {&text.tokens[kRow + 1], 1}, 1)[0];
  std::vector<int32_t> labels(static_cast<size_t>(tiny().vocab()));
  std::iota(labels.begin(), labels.end(), 0);
  for (int i = 0; i < 3; ++i) {
    const auto logits =
        std::span(drafted.logits).subspan(static_cast<size_t>(i) * labels.size(), labels.size());
    const auto trained = offset_log_probabilities(*method, batch, kRow, i, labels);
    EXPECT_LT(relative_distance(trained, log_softmax(logits)), 1e-3) << "head " << i;
  }
}

TEST(Medusa2, LeavesTheTargetAsItIsAtFirst) {
  const PromptedText text = tiny().say(3, 6, 12);
  const Batch batch = tiny().batch({&text, 1});
  const std::unique_ptr<Method> joint = make(small_options());
  at::Generator generator = at::detail::createCPUGenerator(1);
  auto alone = train::make_medusa(tiny().target(), small_options().heads, generator);
  ASSERT_TRUE(alone.ok());
  joint->set_progress(0.49);
  EXPECT_EQ(figures_of(*joint, batch), figures_of(**alone, batch));
  joint->set_progress(0.5);
  auto figures = figures_of(*joint, batch);
  // Adapters begin with nothing to add.
  EXPECT_NEAR(figures.at("target"), 0.0, 1e-4);
  EXPECT_NEAR(figures.at("loss"), 0.2 * figures_of(**alone, batch).at("loss"), 1e-3);
  const TemporaryFolder folder;
  MethodTarget model = written_model(*joint, folder.path());
  EXPECT_TRUE(model.batch({&text, 1}).last.equal(batch.last));
}

TEST(Medusa2, TheTargetIsHeldToWhatItWas) {
  const PromptedText texts[] = {tiny().say(3, 6, 9), tiny().say(4, 2, 5)};
  const Batch batch = tiny().batch(texts);
  for (const bool distill : {true, false}) {
    Medusa2Options options = small_options();
    options.distill = distill;
    const std::unique_ptr<Method> method = make(options);
    perturb(method->parameters(), 0.1, 9);
    method->set_progress(1.0);
    const TemporaryFolder folder;
    MethodTarget model = written_model(*method, folder.path());
    const at::Tensor log_p = logits_of(tiny(), batch.last).log_softmax(-1);
    const at::Tensor log_q = logits_of(model, model.batch(texts).last).log_softmax(-1);
    double expected = 0.0;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{5, 14}, {16, 21}}) {
      for (int64_t t = begin; t < end; ++t) {
        const at::Tensor kl = (log_p[t].exp() * (log_p[t] - log_q[t])).sum();
        const auto next = batch.tokens[t + 1].item<int64_t>();
        expected += distill ? kl.item<double>() : -log_q[t][next].item<double>();
      }
    }
    EXPECT_NEAR(figures_of(*method, batch).at("target"), expected, 2e-3 * expected);
  }
}

TEST(Medusa2, GradientsAreThoseOfTheLoss) {
  const PromptedText texts[] = {tiny().say(3, 4, 8), tiny().say(4, 3, 7)};
  const Batch batch = tiny().batch(texts);
  for (const bool distill : {true, false}) {
    Medusa2Options options = small_options();
    options.distill = distill;
    const std::unique_ptr<Method> method = make(options);
    perturb(method->parameters(), 0.05, 9);
    method->set_progress(1.0);
    expect_right_gradients(*method, batch, 0.03);
  }
}

TEST(Medusa2, LearnsATextByHeart) {
  const PromptedText text = tiny().say(5, 6, 49);
  const Batch batch = tiny().batch({&text, 1});
  const std::unique_ptr<Method> method = make(small_options());
  fit(*method, {&batch, 1}, {.steps = 160, .rate = 0.01});
  const TemporaryFolder folder;
  MethodTarget model = written_model(*method, folder.path());
  const PromptedText said = model.say(5, 6, 49);
  EXPECT_EQ(said.tokens, text.tokens);  // it is held to what it was
  EXPECT_FALSE(model.batch({&text, 1}).last.equal(batch.last));
  EXPECT_EQ(model.accepted_length(kMethod, folder.path(), said, 3), 4.0);
}

TEST(Medusa2, OptionsOutOfRangeAreRefused) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const auto expect_refused = [&](const Medusa2Options& options, const std::string& part) {
    const Status status = make_medusa2(tiny().target(), options, generator).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  Medusa2Options options;
  options.rank = 0;
  expect_refused(options, "rank 0");
  options = {};
  options.alpha = -1.0;
  expect_refused(options, "alpha is -1");
  options = {};
  options.heads_alone = 1.5;
  expect_refused(options, "heads_alone is 1.5");
  options = {};
  options.heads.heads = 0;
  expect_refused(options, "0 heads");
}

// What is not trained keeps its type.
TEST(Medusa2, AFileOfQuantisedWeightsIsAdaptedToo) {
  TinySpec spec = MethodTarget::usual();
  spec.dtype = DType::kQ8_0;
  spec.ffn = 64;
  MethodTarget quantised(spec);
  at::Generator generator = at::detail::createCPUGenerator(1);
  auto method = make_medusa2(quantised.target(), small_options(), generator);
  ASSERT_TRUE(method.ok()) << method.status().message();
  const TemporaryFolder folder;
  MethodTarget model = written_model(**method, folder.path());
  const ModelFile& file = *model.target().source().file;
  EXPECT_EQ(file.find_tensor("blk.1.attn_q.weight")->dtype, DType::kF16);
  EXPECT_EQ(file.find_tensor("output.weight")->dtype, DType::kQ8_0);
  for (const char* name : {"blk.0.attn_k.weight", "blk.1.ffn_down.weight"}) {
    const at::Tensor before = *quantised.target().tensor(name);
    const at::Tensor after = *model.target().tensor(name);
    EXPECT_LT((before - after).norm().item<double>(), 1e-3 * before.norm().item<double>()) << name;
  }
}

}  // namespace aerie::test::medusa2_test
