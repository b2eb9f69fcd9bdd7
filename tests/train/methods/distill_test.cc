// Draft models that are distilled learn what the target says, and the engine drafts with them.
#include "train/methods/distill_method.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "draft/network/draft_model.h"
#include "draft/network/draft_vocabulary.h"
#include "engine/model_source.h"
#include "model/import/hugging_face_file.h"
#include "tests/testing/decoding.h"
#include "tests/train/fit.h"
#include "tests/train/nn/engine_run.h"
#include "tests/train/text_target.h"

namespace aerie::train::distill_test {

using test::EngineRun;
using test::figure;
using test::PromptedText;
using test::run_engine;
using test::TemporaryFolder;
using test::TextTarget;

class DistillTest : public testing::Test {
 protected:
  DistillTest() : target_(TextTarget::usual()) {}

  // Every third token and those of the text.
  std::vector<int32_t> some_tokens(const PromptedText& text = {}) {
    std::vector<int32_t> ids = text.tokens;
    for (int32_t id = 0; id < target_.vocab(); id += 3) ids.push_back(id);
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }

  std::unique_ptr<Method> make(const DistillOptions& options) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    auto method = make_distill(target_.target(), options, generator);
    EXPECT_TRUE(method.ok()) << method.status().message();
    return method.ok() ? std::move(*method) : nullptr;
  }

  Status refused(const DistillOptions& options) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    return make_distill(target_.target(), options, generator).status();
  }

  static Figures evaluate(Method& method, const Batch& batch) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    return method.accumulate(batch, 1.0, generator, false).value();
  }

  // The model as the engine reads it from a checkpoint, and the target's ids of its rows.
  struct Written {
    TemporaryFolder folder;
    std::unique_ptr<ModelFile> file;
    std::unique_ptr<Model> model;
    std::vector<int32_t> ids;
  };
  std::unique_ptr<Written> write(const Method& method) {
    auto out = std::make_unique<Written>();
    const Status written = method.write(out->folder.path());
    EXPECT_TRUE(written.ok()) << written.message();
    auto file = open_model_file(out->folder.path());
    EXPECT_TRUE(file.ok()) << file.status().message();
    out->file = std::move(file).value();
    auto model = load_model(*out->file, test::model_options());
    EXPECT_TRUE(model.ok()) << model.status().message();
    out->model = std::move(model).value();
    auto ids = read_draft_ids(*out->file, out->model->config().vocab, target_.vocab());
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    out->ids = std::move(ids).value();
    return out;
  }

  // Tokens a round, while the target says the text again from its prompt on.
  double accepted_length(const Method& method, const PromptedText& text, int depth) {
    std::unique_ptr<Written> draft = write(method);
    DraftModelOptions options;
    options.num_tokens = depth;
    options.vocab = target_.vocab();
    options.max_positions = test::HeadModels::kPositions;
    options.max_rows = options.max_logits = 64;
    options.vocabulary = std::make_shared<const VocabularyMap>(
        VocabularyMap::of_ids(draft->ids, target_.vocab(), draft->model->config().vocab));
    const auto drafter = make_draft_model_drafter(std::move(draft->model), options);
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    const auto said = text.tokens.begin() + text.prompt;
    test::Request request;
    request.prompt.assign(text.tokens.begin(), said);
    request.options.sampling.temperature = 0.0f;
    request.options.max_tokens = static_cast<int>(text.tokens.end() - said);
    DecoderOptions decoding;
    decoding.max_positions = options.max_positions;
    decoding.max_nodes = depth;
    decoding.max_rows = decoding.max_logits = 64;
    Model& target = target_.models().target();
    const ModelCache owned_cache = test::cache_for(target, decoding, 1);
    KvCache& cache = *owned_cache;
    const test::Reply reply =
        test::decode(target, cache, drafter->get(), decoding, {&request, 1}).of.at(0);
    EXPECT_TRUE(std::ranges::equal(
        reply.tokens, std::span(text.tokens).subspan(static_cast<size_t>(text.prompt))));
    return reply.stats.mean_accepted_length();
  }

  TextTarget target_;
};

// The figures by the letter, of logits that the engine gives.
struct Sums {
  double rows = 0.0, loss = 0.0, hits = 0.0, acceptance = 0.0;
};

Sums by_the_letter(const std::vector<int32_t>& ids, Model& target, Model& draft,
                   std::span<const PromptedText> texts) {
  Sums sums;
  for (const PromptedText& text : texts) {
    const EngineRun p_run = run_engine(target, text.tokens);
    std::vector<int32_t> read;
    for (const int32_t token : text.tokens) {
      const auto found = std::ranges::find(ids, token);
      read.push_back(static_cast<int32_t>(found - ids.begin()));
    }
    const EngineRun q_run = run_engine(draft, read);
    for (int64_t t = 0; t + 1 < static_cast<int64_t>(text.tokens.size()); ++t) {
      if (t + 1 < text.prompt) continue;
      ++sums.rows;
      const at::Tensor p = p_run.logits[t].to(at::kDouble);
      const at::Tensor q = q_run.logits[t].to(at::kDouble);
      double p_sum = 0.0, p_drafted = 0.0, q_sum = 0.0, best = -1e9;
      int32_t likeliest = -1;
      const auto exp_of = [](const at::Tensor& logits, int64_t i) {
        return std::exp(logits[i].item<double>());
      };
      for (int64_t i = 0; i < p.size(0); ++i) p_sum += exp_of(p, i);
      for (size_t i = 0; i < ids.size(); ++i) {
        const auto row = static_cast<int64_t>(i);
        p_drafted += exp_of(p, ids[i]);
        q_sum += exp_of(q, row);
        if (q[row].item<double>() > best) {
          best = q[row].item<double>();
          likeliest = ids[i];
        }
      }
      for (size_t i = 0; i < ids.size(); ++i) {
        const double p_i = exp_of(p, ids[i]), q_i = exp_of(q, static_cast<int64_t>(i)) / q_sum;
        sums.loss += p_i / p_drafted * std::log(p_i / p_drafted / q_i);
        sums.acceptance += std::min(p_i / p_sum, q_i);
      }
      sums.hits += likeliest == text.tokens[static_cast<size_t>(t) + 1];
    }
  }
  return sums;
}

TEST_F(DistillTest, FiguresAreThoseOfTheEnginesModels) {
  const std::vector<PromptedText> texts = {target_.say(1, 9, 21), target_.say(2, 14, 17)};
  const Batch batch = target_.batch(texts);
  for (const bool pruned : {true, false}) {
    SCOPED_TRACE(pruned);
    DistillOptions options;
    options.layers = "1,0";
    options.tied = pruned;
    if (pruned) options.vocabulary = some_tokens();
    const std::unique_ptr<Method> method = make(options);
    test::perturb(method->parameters(), 0.02, 9);
    const Figures figures = evaluate(*method, batch);
    std::unique_ptr<Written> draft = write(*method);
    EXPECT_EQ(draft->ids.size(), pruned ? options.vocabulary.size() : 272u);
    const Sums sums = by_the_letter(draft->ids, target_.models().target(), *draft->model, texts);
    EXPECT_EQ(sums.rows, 38.0);
    EXPECT_EQ(figures.weight, sums.rows);
    EXPECT_EQ(method->weight(batch), sums.rows);
    EXPECT_NEAR(figure(figures, "loss"), sums.loss, 2e-3 * sums.loss);
    EXPECT_NEAR(figure(figures, "acceptance"), sums.acceptance, 2e-3 * sums.acceptance);
    EXPECT_EQ(figure(figures, "hits"), sums.hits);
  }
}

TEST_F(DistillTest, TheTargetItselfIsItsOwnDraft) {
  const std::vector<PromptedText> texts = {target_.say(1, 9, 40)};
  const std::unique_ptr<Method> method = make({});
  const Figures figures = evaluate(*method, target_.batch(texts));
  EXPECT_LT(figure(figures, "loss") / figures.weight, 1e-4);
  EXPECT_GT(figure(figures, "acceptance") / figures.weight, 0.99);
  EXPECT_EQ(figure(figures, "hits"), 40.0);
  EXPECT_GT(accepted_length(*method, texts[0], 4), 4.8);
}

TEST_F(DistillTest, GradientsAreThoseOfTheLoss) {
  const std::vector<PromptedText> texts = {target_.say(1, 5, 9), target_.say(2, 6, 7)};
  DistillOptions options;
  options.layers = "1";
  options.vocabulary = some_tokens();
  LlamaShape shape;
  shape.layer = {.hidden = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .intermediate = 12};
  shape.layers = 1;
  for (const bool random : {false, true}) {
    SCOPED_TRACE(random);
    if (random) options.shape = shape;
    const std::unique_ptr<Method> method = make(options);
    test::perturb(method->parameters(), 0.05, 9);
    test::expect_right_gradients(*method, target_.batch(texts), 0.03);
  }
}

// One layer at random knows a text by heart, drafts it in the engine, and does not if what it was
// taught lies one token off.
TEST_F(DistillTest, LearnsATextByHeart) {
  constexpr int kDepth = 4;
  const PromptedText text = target_.say(3, 8, 51);
  const std::vector<PromptedText> texts = {text};
  DistillOptions options;
  options.shape.emplace();
  options.shape->layer = {
      .hidden = 32, .heads = 2, .kv_heads = 2, .head_dim = 16, .intermediate = 64};
  options.shape->layers = 1;
  options.vocabulary =
      some_tokens({{text.tokens.begin() + text.prompt, text.tokens.end()}, text.prompt});
  const Batch batch = target_.batch(texts);
  Batch late = batch;
  late.last = batch.shifted(batch.last, 1);
  const std::unique_ptr<Method> method = make(options), misled = make(options);
  EXPECT_LT(accepted_length(*method, text, kDepth), 1.5);
  test::fit(*method, {&batch, 1}, {.steps = 400, .rate = 1e-2});
  EXPECT_GT(accepted_length(*method, text, kDepth), 4.9);
  test::fit(*misled, {&late, 1}, {.steps = 400, .rate = 1e-2});
  EXPECT_LT(accepted_length(*misled, text, kDepth), 1.5);
}

TEST_F(DistillTest, BecomesAFile) {
  DistillOptions options;
  options.layers = "1";
  options.vocabulary = some_tokens();
  const std::unique_ptr<Method> method = make(options);
  const std::unique_ptr<Written> draft = write(*method);
  ConvertOptions convert;
  convert.input = draft->folder.path();
  convert.output = draft->folder.path() + "/draft.gguf";
  convert.threads = 1;
  const auto report = convert_model(convert);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ThreadPool& pool = test::pool_of(1);
  const ModelSource source = open_draft_source(convert.output, std::nullopt, pool).value();
  EXPECT_EQ(source.tokenizer, nullptr);
  EXPECT_EQ(read_draft_ids(*source.file, draft->model->config().vocab, target_.vocab()).value(),
            options.vocabulary);
  const auto model = load_model(*source.file, test::model_options()).value();
  const std::vector<int32_t> tokens = test::random_tokens(1, 20, draft->model->config().vocab);
  EXPECT_TRUE(
      at::equal(run_engine(*model, tokens).logits, run_engine(*draft->model, tokens).logits));
  // For this target alone.
  EXPECT_EQ(read_draft_ids(*source.file, draft->model->config().vocab, 400).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(DistillTest, RefusesWhatIsNotThere) {
  DistillOptions options;
  options.vocabulary = {5, 3};
  EXPECT_EQ(refused(options).code(), StatusCode::kInvalidArgument);
  options.vocabulary = {3, 272};
  EXPECT_EQ(refused(options).code(), StatusCode::kInvalidArgument);
  options.vocabulary = {-1, 2};
  EXPECT_EQ(refused(options).code(), StatusCode::kInvalidArgument);
  options.vocabulary = {};
  options.layers = "0,2";
  EXPECT_EQ(refused(options).code(), StatusCode::kInvalidArgument);
  options.shape.emplace();
  EXPECT_EQ(refused(options).code(), StatusCode::kInvalidArgument);
}

}  // namespace aerie::train::distill_test
