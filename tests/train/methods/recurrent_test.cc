// ReDrafter and MLPSpeculator as they are trained: that they are those which the engine drafts
// with, and what they are held to.
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "tests/train/fit.h"
#include "tests/train/methods/offset_rows.h"
#include "tests/train/text_target.h"
#include "train/methods/offset/mlp_speculator_method.h"
#include "train/methods/offset/redrafter_method.h"

namespace aerie::test::methods_recurrent_test {

using ::testing::HasSubstr;
using train::Batch;
using train::make_mlp_speculator;
using train::make_redrafter;
using train::Method;
using train::MlpSpeculatorOptions;
using train::OffsetLoss;
using train::RedrafterOptions;

constexpr int kDepth = 3;

TextTarget& tiny() {
  static TextTarget target(TextTarget::usual());
  return target;
}

std::vector<int32_t> every_third() {
  std::vector<int32_t> ids;
  for (int32_t id = 1; id < tiny().vocab(); id += 3) ids.push_back(id);
  return ids;
}

using Make = std::function<Expected<std::unique_ptr<Method>>(TextTarget& target, OffsetLoss loss)>;

Make made(RedrafterOptions options) {
  options.depth = kDepth;
  return [options](TextTarget& target, OffsetLoss loss) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    RedrafterOptions own = options;
    own.loss = loss;
    return make_redrafter(target.target(), own, generator);
  };
}

Make made(MlpSpeculatorOptions options) {
  options.steps = kDepth;
  return [options](TextTarget& target, OffsetLoss loss) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    MlpSpeculatorOptions own = options;
    own.loss = loss;
    return make_mlp_speculator(target.target(), own, generator);
  };
}

struct Case {
  const char* name;
  const char* drafter;
  Make make;
  std::vector<int32_t> vocabulary = {};

  std::unique_ptr<Method> operator()(OffsetLoss loss = {}, TextTarget& target = tiny()) const {
    auto method = make(target, loss);
    EXPECT_TRUE(method.ok()) << method.status().message();
    return method.ok() ? std::move(*method) : nullptr;
  }
  std::vector<int32_t> labels() const {
    if (!vocabulary.empty()) return vocabulary;
    std::vector<int32_t> ids(static_cast<size_t>(tiny().vocab()));
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
  }
};

std::vector<Case> cases() {
  const auto pruned = every_third();
  return {
      {"redrafter", "redrafter", made(RedrafterOptions{})},
      {"redrafter_narrow", "redrafter", made(RedrafterOptions{.blocks = 1, .exit = 80})},
      {"redrafter_sum", "redrafter", made(RedrafterOptions{.rnn = false})},
      {"redrafter_pruned", "redrafter", made(RedrafterOptions{.vocabulary = pruned}), pruned},
      {"mlp", "mlp_speculator", made(MlpSpeculatorOptions{})},
      {"mlp_wide", "mlp_speculator", made(MlpSpeculatorOptions{.inner = 96, .scales_input = true})},
      {"mlp_tied", "mlp_speculator", made(MlpSpeculatorOptions{.inner = 48, .tied = true})},
      {"mlp_pruned", "mlp_speculator", made(MlpSpeculatorOptions{.vocabulary = pruned}), pruned}};
}

TEST(Recurrent, ComputesWhatTheEngineDraftsWith) {
  const PromptedText text = tiny().say(3, 6, 12);
  const Batch batch = tiny().batch({&text, 1});
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const std::unique_ptr<Method> method = c();
    perturb(method->parameters(), 0.2, 9);
    const TemporaryFolder folder;
    ASSERT_TRUE(method->write(folder.path()).ok());
    HeadSettings settings;
    settings.depth = kDepth;
    auto head = tiny().models().load(c.drafter, folder.path(), settings);
    ASSERT_TRUE(head.ok()) << head.status().message();
    constexpr int64_t kRow = 7;
    const std::vector<RowOutput> outputs = drafted_down(**head, batch, text, kRow, kDepth);
    for (int i = 0; i < kDepth; ++i) {
      const auto trained = offset_log_probabilities(*method, batch, kRow, i, c.labels());
      EXPECT_LT(relative_error(trained, log_softmax(outputs[static_cast<size_t>(i)].logits)), 2e-3)
          << "depth " << i;
    }
  }
}

TEST(Recurrent, GradientsAreThoseOfTheLoss) {
  const PromptedText texts[] = {tiny().say(3, 4, 8), tiny().say(4, 3, 7)};
  const Batch batch = tiny().batch(texts);
  for (const double teacher : {0.0, 1.0}) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(fmt::format("{}, teacher {}", c.name, teacher));
      const std::unique_ptr<Method> method =
          c({.labels = 1.0 - teacher, .teacher = teacher, .decay = 0.8});
      perturb(method->parameters(), 0.1, 9);
      expect_right_gradients(*method, batch, 0.02);
    }
  }
}

// A token is drafted behind those before it: its loss hangs on them, and on no later one.
TEST(Recurrent, DepthsSeeTheTokensBeforeTheirOwn) {
  const PromptedText text = tiny().say(3, 6, 12);
  const Batch batch = tiny().batch({&text, 1});
  for (const Case& c : cases()) {
    if (!c.vocabulary.empty()) continue;
    SCOPED_TRACE(c.name);
    const std::unique_ptr<Method> method = c();
    perturb(method->parameters(), 0.2, 9);
    constexpr int64_t kRow = 7;
    for (int depth = 0; depth < kDepth; ++depth) {
      const int32_t label[] = {5};
      const float before = offset_log_probabilities(*method, batch, kRow, depth, label)[0];
      for (int64_t place = kRow - 1; place <= kRow + 2 + kDepth; ++place) {
        if (place == kRow + 2 + depth) continue;  // its label
        Batch changed = batch;
        changed.tokens = batch.tokens.clone();
        changed.tokens[place] = 100;
        const float after = offset_log_probabilities(*method, changed, kRow, depth, label)[0];
        const bool seen = place > kRow && place < kRow + 2 + depth;
        EXPECT_EQ(before != after, seen) << "depth " << depth << ", place " << place;
      }
    }
  }
}

TEST(Recurrent, LearnsATextByHeart) {
  const PromptedText text = tiny().say(5, 6, 49);
  const Batch batch = tiny().batch({&text, 1});
  for (const Case& c : cases()) {
    if (!c.vocabulary.empty()) continue;
    SCOPED_TRACE(c.name);
    const std::unique_ptr<Method> method = c();
    fit(*method, {&batch, 1}, {.steps = 150, .rate = 0.01});
    const TemporaryFolder folder;
    EXPECT_TRUE(method->write(folder.path()).ok());
    EXPECT_EQ(tiny().accepted_length(c.drafter, folder.path(), text, kDepth), kDepth + 1.0);
  }
}

TEST(Recurrent, OptionsOutOfRangeAreRefused) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const auto expect_refused = [](const Status& status, const std::string& part) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  const auto redrafter = [&](const RedrafterOptions& options) {
    return make_redrafter(tiny().target(), options, generator).status();
  };
  const auto mlp = [&](const MlpSpeculatorOptions& options) {
    return make_mlp_speculator(tiny().target(), options, generator).status();
  };
  expect_refused(redrafter({.depth = 65}), "65 heads");
  expect_refused(redrafter({.blocks = 65}), "65 blocks");
  expect_refused(redrafter({.exit = -1}), "an exit of -1");
  expect_refused(redrafter({.loss = {.labels = 0.0}}), "weights of losses");
  expect_refused(redrafter({.loss = {.features = 0.1}}), "no weight for features");
  expect_refused(mlp({.steps = 0}), "0 heads");
  expect_refused(mlp({.inner = int64_t{1} << 21}), "an inner width of 2097152");
  expect_refused(mlp({.vocabulary = {3, 2}}), "ascending");
}

}  // namespace aerie::test::methods_recurrent_test
