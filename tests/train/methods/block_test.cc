// The network that drafts blocks and its gradients against a plain computation with a mask of all
// by all, against differences, and against what the engine computes of the checkpoint.
#include "train/methods/block/block_method.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/tiny_model.h"
#include "tests/train/fit.h"
#include "tests/train/methods/masked_attention.h"
#include "tests/train/text_target.h"
#include "train/methods/supervision.h"

namespace aerie::train::block_test {

using test::figure;
using test::TemporaryFolder;
using test::Text;
using test::TextTarget;

constexpr int kDepth = 4, kPrompt = 2;

TextTarget& tiny() {
  static TextTarget target;
  return target;
}

int vocab() {
  return tiny().target().config().vocab;
}

at::Generator seeded(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

BlockOptions small_options() {
  BlockOptions options;
  options.head.layers = 2;
  options.head.depth = kDepth;
  options.head.tap_layers = {1, 2};
  return options;
}

Batch some_batch(const MethodNeeds& needs, const std::vector<int>& lengths = {31, 60, 2, 1, 40}) {
  std::vector<Text> texts;
  for (const int length : lengths) {
    texts.push_back(test::random_tokens(static_cast<uint64_t>(length), length, vocab()));
  }
  return tiny().batch(texts, kPrompt, needs);
}

std::unique_ptr<Method> make(const BlockOptions& options) {
  at::Generator generator = seeded(1);
  auto method = make_block(tiny().target(), options, generator);
  EXPECT_TRUE(method.ok()) << method.status().message();
  return method.ok() ? std::move(*method) : nullptr;
}

BlockHead make_head(const BlockHeadOptions& options) {
  at::Generator generator = seeded(1);
  auto head = BlockHead::create(tiny().target(), options, generator);
  EXPECT_TRUE(head.ok()) << head.status().message();
  test::perturb(head->parameters(), 0.1, 9);
  return std::move(*head);
}

at::Tensor parameter(BlockHead& head, const std::string& name) {
  for (const Parameter& p : head.parameters().list()) {
    if (p.name == name) return p.value;
  }
  ADD_FAILURE() << "there is no " << name;
  return {};
}

// The same of one block in one document, written down again: what is drafted behind row `anchor`.
at::Tensor plain_drafts(BlockHead& head, const Batch& batch, int64_t anchor) {
  const double eps = tiny().target().norm_eps();
  const ModelConfig& config = tiny().target().config();
  const auto weight = [&](const std::string& name) { return parameter(head, name + ".weight"); };
  const int64_t seen = anchor + 1, rows = head.rows_of_block();
  const at::Tensor fused = at::linear(batch.taps.narrow(0, 0, seen), weight("fc"));
  const at::Tensor context = rms_norm(fused, weight("hidden_norm"), eps);
  at::Tensor tokens = at::full({rows}, head.options().mask_token, at::kLong);
  tokens[0] = batch.tokens[anchor + 1];
  at::Tensor x = tiny().target().embedding()->index_select(0, tokens);
  const Rotary rotary =
      make_rotary(at::arange(seen + rows), config.head_dim, tiny().target().rope_base());
  const at::Tensor visible = at::ones({seen + rows, seen + rows}, at::kBool);
  for (int64_t i = 0; i < head.options().layers; ++i) {
    const auto of_layer = [&](const char* name) {
      return weight(fmt::format("layers.{}.{}", i, name));
    };
    // Queries of the context are computed too, and nothing is made of them.
    const at::Tensor all = at::cat({context, rms_norm(x, of_layer("input_layernorm"), eps)});
    const auto heads = [&](const char* name, int64_t count) {
      return at::linear(all, of_layer(name)).view({seen + rows, count, config.head_dim});
    };
    const at::Tensor q =
        rotate(rms_norm(heads("self_attn.q_proj", config.heads), of_layer("self_attn.q_norm"), eps),
               rotary);
    const at::Tensor k = rotate(
        rms_norm(heads("self_attn.k_proj", config.kv_heads), of_layer("self_attn.k_norm"), eps),
        rotary);
    const at::Tensor attended =
        test::attend_masked(q, k, heads("self_attn.v_proj", config.kv_heads), visible);
    const at::Tensor h =
        x + at::linear(attended.narrow(0, seen, rows), of_layer("self_attn.o_proj"));
    const at::Tensor y = rms_norm(h, of_layer("post_attention_layernorm"), eps);
    const at::Tensor gated =
        at::silu(at::linear(y, of_layer("mlp.gate_proj"))) * at::linear(y, of_layer("mlp.up_proj"));
    x = h + at::linear(gated, of_layer("mlp.down_proj"));
  }
  return rms_norm(x.narrow(0, 1, rows - 1), weight("norm"), eps);
}

// Blocks of several documents at once, more rows than attention takes at a time.
TEST(BlockTraining, IsThePlainNetworkBlockByBlock) {
  BlockHead head = make_head(small_options().head);
  const MethodNeeds needs = {head.options().tap_layers, true};
  const std::vector<int> lengths = {31, 60, 40};
  const Batch batch = some_batch(needs, lengths);
  std::vector<int64_t> anchors;
  for (int64_t row = 0; row < batch.documents.rows(); ++row) {
    if (batch.shifted(batch.mask, 1)[row].item<float>() > 0.5f && row % 3 != 0)
      anchors.push_back(row);
  }
  ASSERT_GT(anchors.size(), 60u);
  const at::NoGradGuard no_grad;
  const at::Tensor drafts = head.drafts(batch, at::tensor(at::IntArrayRef(anchors), at::kLong));
  ASSERT_EQ(drafts.size(0), static_cast<int64_t>(anchors.size()) * kDepth);
  size_t block = 0;
  for (size_t d = 0; d < lengths.size(); ++d) {
    const int64_t start = batch.documents.start(static_cast<int64_t>(d));
    const Batch alone = some_batch(needs, {lengths[d]});
    for (; block < anchors.size() && anchors[block] < start + lengths[d]; ++block) {
      const at::Tensor expected = plain_drafts(head, alone, anchors[block] - start);
      const at::Tensor actual = drafts.narrow(0, static_cast<int64_t>(block) * kDepth, kDepth);
      EXPECT_LT(test::relative_error(actual, expected), 1e-5) << "behind row " << anchors[block];
    }
  }
  EXPECT_EQ(block, anchors.size());
}

TEST(BlockTraining, GradientsAreDifferencesOfTheLoss) {
  for (const auto& [soft, spark] : {std::pair{false, false}, {true, false}, {true, true}}) {
    BlockOptions options = small_options();
    options.head.spark = spark;
    options.head.markov_rank = 8;
    if (soft) options.loss = Divergence::kForwardKl;
    const auto method = make(options);
    test::perturb(method->parameters(), 0.1, 9);
    const Batch batch = some_batch(method->needs(), {19, 30});
    test::expect_right_gradients(*method, batch, 2e-2);
  }
}

Figures figures_of(Method& method, const Batch& batch, uint64_t seed = 5) {
  at::Generator generator = seeded(seed);
  auto figures = method.accumulate(batch, 1.0, generator, false);
  EXPECT_TRUE(figures.ok()) << figures.status().message();
  return figures.ok() ? *figures : Figures();
}

TEST(BlockTraining, TokensCountByTheirDepth) {
  BlockOptions options = small_options();
  options.share = 1.0;
  const auto method = make(options);
  const Batch batch = some_batch(method->needs());
  const Figures figures = figures_of(*method, batch);
  EXPECT_EQ(figures.weight, method->weight(batch));
  double loss = 0.0, weights = 0.0;
  for (int d = 0; d < kDepth; ++d) {
    const double weight = std::exp(-d / options.decay);
    loss += weight * figure(figures, fmt::format("loss_{}", d));
    weights += weight * figure(figures, fmt::format("rows_{}", d));
    // Each further token is behind the end of one block more of each text of 31, 60 and 40.
    EXPECT_EQ(figure(figures, fmt::format("rows_{}", d)), figures.weight - 3 * d);
  }
  EXPECT_NEAR(figure(figures, "loss"), loss / weights * figures.weight, 1e-4 * loss);
  options.decay = 0.0;
  const Figures flat = figures_of(*make(options), batch);
  EXPECT_EQ(figure(flat, "loss_1"), figure(figures, "loss_1"));
  EXPECT_NE(figure(flat, "loss"), figure(figures, "loss"));
}

TEST(BlockTraining, BlocksAreDrawnAnew) {
  BlockOptions options = small_options();
  options.share = 0.25;
  const auto method = make(options);
  const Batch batch = some_batch(method->needs());
  const Figures one = figures_of(*method, batch, 5), two = figures_of(*method, batch, 6);
  const double expected = std::round(0.25 * one.weight);
  EXPECT_EQ(figure(one, "rows_0"), expected);
  EXPECT_EQ(figure(two, "rows_0"), expected);
  EXPECT_NE(figure(one, "loss_0"), figure(two, "loss_0"));
  EXPECT_EQ(figure(figures_of(*method, batch, 5), "loss_0"), figure(one, "loss_0"));
  options.share = 0.0;
  EXPECT_EQ(figure(figures_of(*make(options), batch), "rows_0"), 1.0);
}

// A block's tokens count up to the first that the target has not generated.
TEST(BlockTraining, BlocksEndWhereTheTargetDid) {
  BlockOptions options = small_options();
  options.share = 1.0;
  const auto method = make(options);
  Batch batch = some_batch(method->needs(), {30});
  batch.mask.zero_();
  EXPECT_EQ(figures_of(*method, batch).weight, 0.0);
  batch.mask.narrow(0, 10, 4).fill_(1.0f);  // behind 9, 10 and 11 there is something to draft
  batch.mask[15] = 1.0f;
  const Figures figures = figures_of(*method, batch);
  EXPECT_EQ(figures.weight, 3.0);
  for (const auto& [depth, rows] : {std::pair{0, 3.0}, {1, 2.0}, {2, 1.0}, {3, 0.0}}) {
    EXPECT_EQ(figure(figures, fmt::format("rows_{}", depth)), rows) << depth;
  }
}

TEST(BlockTraining, RefusesWhatItCannotTrain) {
  const auto refused = [](const auto& change) {
    BlockOptions options = small_options();
    change(options);
    at::Generator generator = seeded(1);
    const auto method = make_block(tiny().target(), options, generator);
    return !method.ok() && method.status().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](BlockOptions& o) { o.head.depth = 0; }));
  EXPECT_TRUE(refused([](BlockOptions& o) { o.head.depth = 65; }));
  EXPECT_TRUE(refused([](BlockOptions& o) { o.head.layers = 0; }));
  EXPECT_TRUE(refused([](BlockOptions& o) { o.head.mask_token = vocab(); }));
  EXPECT_TRUE(refused([](BlockOptions& o) { o.head.tap_layers = {3}; }));
  EXPECT_TRUE(refused([](BlockOptions& o) { o.share = std::nan(""); }));
  EXPECT_TRUE(refused([](BlockOptions& o) { o.decay = -1.0; }));
}

std::span<const float> floats_of(const at::Tensor& x) {
  return {x.data_ptr<float>(), static_cast<size_t>(x.numel())};
}

TEST(BlockTraining, TrainsWhatTheEngineRuns) {
  for (const bool pruned : {false, true}) {
    SCOPED_TRACE(pruned ? "pruned" : "whole");
    BlockHeadOptions options = small_options().head;
    for (int32_t id = 3; pruned && id < vocab(); id += 2) options.vocabulary.push_back(id);
    const BlockHead head = make_head(options);
    const TemporaryFolder folder;
    ASSERT_TRUE(head.write(folder.path()).ok());
    NetworkDrafterOptions drafter;
    drafter.num_tokens = kDepth;
    const auto network = tiny().models().network("dflash", folder.path(), drafter);
    ASSERT_NE(network, nullptr);
    ASSERT_EQ(network->needs().tap_layers, head.options().tap_layers);
    ASSERT_EQ(network->depths(), kDepth);
    const Text text = test::random_tokens(3, 40, vocab());
    const Batch batch = tiny().batch({&text, 1}, kPrompt, {head.options().tap_layers, true});
    const at::NoGradGuard no_grad;
    for (const size_t known : {size_t{3}, size_t{11}, size_t{30}}) {
      const at::Tensor anchor = at::full({1}, static_cast<int64_t>(known) - 2, at::kLong);
      const at::Tensor expected = head.logits(head.drafts(batch, anchor), {}).contiguous();
      const DraftOutputs outputs =
          test::draft_behind(*network, text, known, floats_of(batch.taps), kDepth);
      ASSERT_EQ(static_cast<int64_t>(outputs.logits.size()), expected.numel());
      EXPECT_LT(test::relative_error(outputs.logits, floats_of(expected)), 1e-3) << known;
      network->close(0);
    }
  }
}

TEST(BlockTraining, TrainsWhatTheEngineMakesOfDrafts) {
  BlockHeadOptions options = small_options().head;
  options.spark = true;
  options.markov_rank = 8;
  const BlockHead head = make_head(options);
  const TemporaryFolder folder;
  ASSERT_TRUE(head.write(folder.path()).ok());
  NetworkDrafterOptions drafter;
  drafter.num_tokens = kDepth;
  const auto network = tiny().models().network("dspark", folder.path(), drafter);
  ASSERT_NE(network, nullptr);
  ASSERT_TRUE(network->follows());
  const Text text = test::random_tokens(3, 40, vocab());
  const Batch batch = tiny().batch({&text, 1}, kPrompt, {head.options().tap_layers, true});
  const at::NoGradGuard no_grad;
  for (const size_t known : {size_t{3}, size_t{30}}) {
    const auto anchor = static_cast<int64_t>(known) - 2;
    const at::Tensor drafts = head.drafts(batch, at::full({1}, anchor, at::kLong));
    // The text itself stands in for a draft.
    const at::Tensor before = batch.tokens.narrow(0, anchor + 1, kDepth);
    const at::Tensor expected = head.logits(drafts, before).contiguous();
    const at::Tensor sure = head.confidence(drafts, before).sigmoid();
    const DraftOutputs outputs =
        test::draft_behind(*network, text, known, floats_of(batch.taps), kDepth);
    for (int depth = 0; depth < kDepth; ++depth) {
      const std::span<const float> base = outputs.logits_of(depth);
      std::vector<float> actual(base.begin(), base.end());
      const auto tokens = std::span(text).subspan(known - 1, static_cast<size_t>(depth) + 1);
      const float promised = network->follow(outputs, depth, tokens, actual);
      EXPECT_LT(test::relative_error(actual, expected[depth]), 1e-3) << depth;
      EXPECT_NEAR(promised, sure[depth].item<float>(), 1e-3) << depth;
    }
    network->close(0);
  }
}

// With nothing else to learn from, DSpark's confidence ends as what the target accepts.
TEST(BlockTraining, ConfidenceIsTheChanceOfAcceptance) {
  BlockOptions options = small_options();
  options.head.spark = true;
  options.head.depth = 2;
  options.share = 1.0;
  const auto method = make(options);
  const Text text = tiny().say(21, 8, 40);
  const Batch batch = tiny().batch({&text, 1}, 8, method->needs());
  const std::vector<double> losses = test::fit(*method, {&batch, 1}, {.steps = 200, .rate = 0.01});
  EXPECT_LT(losses.back(), 0.2 * losses.front());
  const TemporaryFolder folder;
  ASSERT_TRUE(method->write(folder.path()).ok());
  NetworkDrafterOptions drafter;
  drafter.num_tokens = 2;
  const auto network = tiny().models().network("dspark", folder.path(), drafter);
  ASSERT_NE(network, nullptr);
  const DraftOutputs outputs = test::draft_behind(*network, text, 20, floats_of(batch.taps), 2);
  const std::span<const float> base = outputs.logits_of(0);
  std::vector<float> logits(base.begin(), base.end());
  const float sure = network->follow(outputs, 0, std::span(text).subspan(19, 1), logits);
  const at::Tensor output = *tiny().target().output(), norm = *tiny().target().final_norm();
  const at::Tensor wanted =
      target_logits(tiny().target(), batch.last.narrow(0, 19, 1), norm, output);
  const at::Tensor drafts = at::from_blob(logits.data(), {1, vocab()});
  EXPECT_NEAR(sure, acceptance(wanted, drafts).item<float>(), 0.1);
}

TEST(BlockTraining, LearnsATextByHeart) {
  BlockOptions options = small_options();
  options.share = 0.5;
  const auto method = make(options);
  const Text text = tiny().say(21, 8, 1 + 7 * (kDepth + 1));
  const Batch batch = tiny().batch({&text, 1}, 8, method->needs());
  test::fit(*method, {&batch, 1}, {.steps = 250, .rate = 0.01});
  const TemporaryFolder folder;
  ASSERT_TRUE(method->write(folder.path()).ok());
  const TextTarget::Round round = tiny().draft("dflash", folder.path(), text, 8, kDepth);
  EXPECT_GT(round.most, kDepth + 0.9);
  EXPECT_DOUBLE_EQ(round.tokens, round.most);
}

}  // namespace aerie::train::block_test
