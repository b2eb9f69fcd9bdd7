// Targets that are trained to be left early: what they learn, and what the engine makes of them.
#include "train/methods/layerskip_method.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "draft/network/early_exit.h"
#include "format/json.h"
#include "model/import/hugging_face_file.h"
#include "tests/testing/decoding.h"
#include "tests/train/fit.h"
#include "tests/train/nn/engine_run.h"
#include "tests/train/text_target.h"

namespace aerie::train::layerskip_test {

namespace fs = std::filesystem;
using test::EngineRun;
using test::figure;
using test::PromptedText;
using test::run_engine;
using test::TemporaryFolder;
using test::TextTarget;

constexpr int kLayers = 4;

test::TinySpec spec() {
  test::TinySpec spec = TextTarget::usual();
  spec.layers = kLayers;
  return spec;
}

std::unique_ptr<Method> make(Target& target, const LayerSkipOptions& options) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  auto method = make_layerskip(target, options, generator);
  EXPECT_TRUE(method.ok()) << method.status().message();
  return method.ok() ? std::move(*method) : nullptr;
}

Figures evaluate(Method& method, const Batch& batch) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  return method.accumulate(batch, 1.0, generator, false).value();
}

// The model that a checkpoint is, in the engine.
struct Written {
  TemporaryFolder folder;
  std::unique_ptr<ModelFile> file;
  std::unique_ptr<Model> model;
};

std::unique_ptr<Written> write(const Method& method) {
  auto out = std::make_unique<Written>();
  const Status written = method.write(out->folder.path());
  EXPECT_TRUE(written.ok()) << written.message();
  std::string path = method.settings().model;
  path.replace(path.find("{}"), 2, out->folder.path());
  auto file = open_model_file(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  out->file = std::move(file).value();
  auto model = load_model(*out->file, test::model_options());
  EXPECT_TRUE(model.ok()) << model.status().message();
  out->model = std::move(model).value();
  return out;
}

class LayerSkipTest : public testing::Test {
 protected:
  LayerSkipTest() : target_(spec()) {}

  // The cross entropy of a text's reply behind each layer, by the engine's own exits.
  static std::vector<double> losses(Model& model, const PromptedText& text) {
    std::vector<double> out;
    for (int layer = 0; layer < kLayers; ++layer) {
      const EngineRun exit = run_engine(model, text.tokens, layer + 1);
      double sum = 0.0;
      for (size_t t = static_cast<size_t>(text.prompt) - 1; t + 1 < text.tokens.size(); ++t) {
        const at::Tensor row = exit.logits[static_cast<int64_t>(t)].log_softmax(-1);
        sum -= row[text.tokens[t + 1]].item<double>();
      }
      out.push_back(sum);
    }
    return out;
  }

  TextTarget target_;
};

TEST_F(LayerSkipTest, LossesAreThoseOfTheEnginesExits) {
  const PromptedText text = target_.say(1, 9, 30);
  const std::vector<PromptedText> texts = {text};
  const Batch batch = target_.batch(texts);
  struct Case {
    ExitCurriculum curriculum;
    double progress;
    std::vector<int> exits;
  };
  const Case cases[] = {
      {ExitCurriculum::kRotational, 0.0, {0, 2, 3}}, {ExitCurriculum::kRotational, 0.1, {1, 3}},
      {ExitCurriculum::kRotational, 0.2, {0, 2, 3}}, {ExitCurriculum::kGradual, 0.0, {3}},
      {ExitCurriculum::kGradual, 0.25, {2, 3}},      {ExitCurriculum::kGradual, 0.4, {1, 2, 3}},
      {ExitCurriculum::kGradual, 0.5, {0, 1, 2, 3}},
  };
  // 0.2 (0), 0.2 (0 + 1), 0.2 (0 + 1 + 2), and 3 + 0.2 (0 + 1 + 2).
  const double weights[kLayers] = {0.0, 0.2, 0.6, 3.6};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.progress);
    LayerSkipOptions options;
    options.curriculum = one.curriculum;
    options.rotation = 2;
    options.steps = 10;
    const std::unique_ptr<Method> method = make(target_.target(), options);
    test::perturb(method->parameters(), 0.02, 9);
    method->set_progress(one.progress);
    const Figures figures = evaluate(*method, batch);
    const std::unique_ptr<Written> written = write(*method);
    const std::vector<double> of = losses(*written->model, text);
    double loss = 0.0, total = 0.0;
    for (const int exit : one.exits) {
      loss += weights[exit] * of[static_cast<size_t>(exit)];
      total += weights[exit];
    }
    EXPECT_EQ(figures.weight, 30.0);
    EXPECT_NEAR(figure(figures, "loss"), loss / total, 2e-3 * loss / total);
    EXPECT_NEAR(figure(figures, "loss_last"), of[kLayers - 1], 2e-3 * of[kLayers - 1]);
  }
}

TEST_F(LayerSkipTest, GradientsAreThoseOfTheLoss) {
  const std::vector<PromptedText> texts = {target_.say(1, 5, 9), target_.say(2, 6, 7)};
  LayerSkipOptions options;
  options.dropout = 0.0;
  options.rotation = 2;
  const std::unique_ptr<Method> method = make(target_.target(), options);
  test::expect_right_gradients(*method, target_.batch(texts), 0.05);
}

// A layer that all samples leave out gets no gradient.
TEST_F(LayerSkipTest, LeavesOutLaterLayersMoreOften) {
  const std::vector<PromptedText> texts = {target_.say(1, 3, 3)};
  const Batch batch = target_.batch(texts);
  for (const bool from_scratch : {false, true}) {
    SCOPED_TRACE(from_scratch);
    LayerSkipOptions options;
    options.dropout = 0.5;
    options.from_scratch = from_scratch;
    const std::unique_ptr<Method> method = make(target_.target(), options);
    method->set_progress(0.5);
    constexpr int kTimes = 250;
    int left[kLayers] = {};
    for (int i = 0; i < kTimes; ++i) {
      at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(i));
      for (const Parameter& parameter : method->parameters().list()) {
        parameter.value.mutable_grad() = at::Tensor();
      }
      ASSERT_TRUE(method->accumulate(batch, 1.0, generator, true).ok());
      for (const Parameter& parameter : method->parameters().list()) {
        if (!parameter.name.ends_with("mlp.down_proj.weight")) continue;
        const int layer = parameter.name[std::string("model.layers.").size()] - '0';
        left[layer] += parameter.value.grad().norm().item<double>() == 0.0;
      }
    }
    const double grown = from_scratch ? std::sqrt(2.0) - 1.0 : 1.0;
    for (int layer = 0; layer < kLayers; ++layer) {
      const double chance = 0.5 * grown * (std::pow(2.0, layer / 3.0) - 1.0);
      const double deviation = std::sqrt(kTimes * chance * (1.0 - chance));
      EXPECT_NEAR(left[layer], kTimes * chance, 4.0 * deviation) << layer;
    }
  }
}

// Tokens a round of the model that was written, drafting by itself what it says.
double accepted_length(Written& written, const PromptedText& text, int exit_layer, int depth,
                       std::vector<int32_t>& said) {
  const auto drafter =
      make_early_exit_drafter({.exit_layer = exit_layer, .num_tokens = depth}).value();
  test::Request request;
  request.prompt.assign(text.tokens.begin(), text.tokens.begin() + text.prompt);
  request.options.sampling.temperature = 0.0f;
  request.options.max_tokens = static_cast<int>(text.tokens.size()) - text.prompt;
  DecoderOptions decoding;
  decoding.max_positions = test::HeadModels::kPositions;
  decoding.max_nodes = depth;
  decoding.max_rows = decoding.max_logits = 64;
  const ModelCache owned_cache = test::cache_for(*written.model, decoding, 1);
  KvCache& cache = *owned_cache;
  const test::Reply reply =
      test::decode(*written.model, cache, drafter.get(), decoding, {&request, 1}).of.at(0);
  said = reply.tokens;
  return reply.stats.mean_accepted_length();
}

TEST_F(LayerSkipTest, LearnsToSayItEarly) {
  constexpr int kDepth = 4;
  const PromptedText text = target_.say(3, 8, 51);
  const std::vector<int32_t> reply(text.tokens.begin() + text.prompt, text.tokens.end());
  const std::vector<PromptedText> texts = {text};
  const Batch batch = target_.batch(texts);
  LayerSkipOptions options;
  options.exit_scale = 1.0;
  options.exit_layer = 2;
  options.rotation = 1;
  const std::unique_ptr<Method> method = make(target_.target(), options);
  std::vector<int32_t> said;
  EXPECT_LT(accepted_length(*write(*method), text, options.exit_layer, kDepth, said), 2.0);
  test::fit(*method, {&batch, 1}, {.steps = 150, .rate = 5e-3});
  EXPECT_GT(accepted_length(*write(*method), text, options.exit_layer, kDepth, said), 4.9);
  EXPECT_EQ(said, reply);
  const Figures figures = evaluate(*method, batch);
  EXPECT_EQ(figure(figures, "hits"), 51.0);
  EXPECT_EQ(figure(figures, "hits_exit"), 51.0);
  EXPECT_EQ(figure(figures, "agreement"), 51.0);
  EXPECT_EQ(method->settings().speculate, "early_exit:exit_layer=2,num_speculative_tokens=4");
}

// A tokenizer that knows some letters.
void write_tokenizer(const fs::path& folder) {
  Json vocab = Json::object();
  for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = c - 'a';
  const Json json = {
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}},
  };
  std::ofstream(folder / "tokenizer.json") << json.dump();
}

TEST_F(LayerSkipTest, WritesAFileWhereTheTargetIsAFolder) {
  const TemporaryFolder source;
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy_file(fs::path("tests/golden/families/llama") / name, fs::path(source.path()) / name);
  }
  write_tokenizer(source.path());
  auto target = Target::open(source.path(), test::pool_of(1));
  ASSERT_TRUE(target.ok()) << target.status().message();
  const std::unique_ptr<Method> method = make(**target, {});
  EXPECT_EQ(method->settings().model, "{}/model.gguf");
  test::perturb(method->parameters(), 0.02, 9);
  const std::unique_ptr<Written> written = write(*method);
  const std::vector<int32_t> tokens = test::random_tokens(1, 20, 100);
  Batch batch;
  batch.documents.starts = {0, 20};
  batch.tokens = test::tensor_of(tokens);
  batch.positions = at::arange(20, at::kLong);
  batch.mask = at::ones({20});
  const EngineRun run = run_engine(*written->model, tokens);
  const double loss = at::cross_entropy_loss(run.logits.narrow(0, 0, 19),
                                             batch.tokens.narrow(0, 1, 19), {}, at::Reduction::Sum)
                          .item<double>();
  EXPECT_NEAR(figure(evaluate(*method, batch), "loss_last"), loss, 1e-3 * loss);
}

TEST_F(LayerSkipTest, RefusesWhatMakesNoSense) {
  const auto refused = [&](auto change) {
    LayerSkipOptions options;
    change(options);
    at::Generator generator = at::detail::createCPUGenerator(1);
    return make_layerskip(target_.target(), options, generator).status().code();
  };
  const auto kInvalid = StatusCode::kInvalidArgument;
  EXPECT_EQ(refused([](LayerSkipOptions& o) { o.dropout = 1.0; }), kInvalid);
  EXPECT_EQ(refused([](LayerSkipOptions& o) { o.dropout = -0.1; }), kInvalid);
  EXPECT_EQ(refused([](LayerSkipOptions& o) { o.exit_scale = 2.0; }), kInvalid);
  EXPECT_EQ(refused([](LayerSkipOptions& o) { o.rotation = 0; }), kInvalid);
  EXPECT_EQ(refused([](LayerSkipOptions& o) { o.steps = 0; }), kInvalid);
  EXPECT_EQ(refused([](LayerSkipOptions& o) { o.exit_layer = kLayers; }), kInvalid);
  EXPECT_EQ(refused([](LayerSkipOptions& o) { o.exit_layer = -1; }), kInvalid);
  EXPECT_EQ(refused([](LayerSkipOptions&) {}), StatusCode::kOk);
  EXPECT_EQ(parse_exit_curriculum("gradual").value(), ExitCurriculum::kGradual);
  EXPECT_EQ(parse_exit_curriculum("sudden").status().code(), kInvalid);
}

}  // namespace aerie::train::layerskip_test
