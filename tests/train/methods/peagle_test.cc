// P-EAGLE's network and its gradients against a plain computation over all rows at once, against
// differences, and against what the engine computes of the checkpoint.
#include "train/methods/peagle/peagle_method.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/testing/tiny_model.h"
#include "tests/train/fit.h"
#include "tests/train/methods/masked_attention.h"
#include "tests/train/text_target.h"
#include "train/methods/peagle/peagle_step.h"
#include "train/nn/ops.h"

namespace aerie::train::peagle_test {

using test::figure;
using test::TemporaryFolder;
using test::Text;
using test::TextTarget;

constexpr int kDepth = 5;

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

PEagleOptions small_options(int64_t segments = 1) {
  PEagleOptions options;
  options.head.layers = 3;
  options.sampling.depths = kDepth;
  options.segments = segments;
  return options;
}

constexpr int kPrompt = 2;

Batch some_batch(const MethodNeeds& needs, const std::vector<int>& lengths = {31, 60, 2, 1, 40}) {
  std::vector<Text> texts;
  for (const int length : lengths) {
    texts.push_back(test::random_tokens(static_cast<uint64_t>(length), length, vocab()));
  }
  return tiny().batch(texts, kPrompt, needs);
}

at::Tensor supervised(const Batch& batch) {
  return (batch.shifted(batch.mask, 1) * batch.shifted(batch.mask, 2)).gt(0.5);
}

Eagle3Head make_head(const Eagle3HeadOptions& options) {
  at::Generator generator = seeded(1);
  auto head = Eagle3Head::create(tiny().target(), options, generator);
  EXPECT_TRUE(head.ok()) << head.status().message();
  test::perturb(head->parameters(), 0.1, 9);
  return std::move(*head);
}

Eagle3HeadOptions masked_head() {
  Eagle3HeadOptions options = small_options().head;
  options.mask_token = vocab() - 1;
  return options;
}

std::map<std::string, at::Tensor> take_gradients(Parameters& parameters) {
  std::map<std::string, at::Tensor> gradients;
  for (const Parameter& parameter : parameters.list()) {
    gradients[parameter.name] = parameter.value.grad();
    parameter.value.mutable_grad() = at::Tensor();
  }
  return gradients;
}

void expect_same(const std::map<std::string, at::Tensor>& actual,
                 const std::map<std::string, at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, gradient] : expected) {
    ASSERT_TRUE(gradient.defined()) << name;
    ASSERT_TRUE(actual.at(name).defined()) << name;
    const double length = gradient.norm().item<double>();
    EXPECT_GT(length, 0.0) << name;
    EXPECT_LE((actual.at(name) - gradient).norm().item<double>(), tolerance * length) << name;
  }
}

struct Everything {
  Batch batch;
  at::Tensor asked;
  Chains chains;
};

Everything everything(const Eagle3Head& head) {
  Everything all;
  all.batch = some_batch({head.options().tap_layers, true});
  all.asked = supervised(all.batch);
  at::Generator generator = seeded(4);
  all.chains = sample_chains(all.batch.documents, all.asked, small_options().sampling, generator);
  return all;
}

PEagleStep::Settings settings() {
  PEagleStep::Settings settings;
  settings.depths = kDepth;
  settings.scale = 0.25;
  return settings;
}

// The loss of all rows at once, one below the other, with a mask of all by all.
double plain_loss(const Eagle3Head& head, const Everything& all) {
  const Documents& documents = all.batch.documents;
  const ElementRows masked = chain_rows(documents, all.chains, 0, all.chains.count(), at::kCPU);
  const at::Tensor anchors = at::cat({at::arange(documents.rows()), masked.anchors});
  const at::Tensor depths = at::cat({at::zeros({documents.rows()}, at::kLong), masked.depths});
  at::Tensor document = at::empty({documents.rows()}, at::kLong);
  for (int64_t d = 0; d < documents.count(); ++d) {
    document.narrow(0, documents.start(d), documents.length(d)).fill_(d);
  }
  document = document.index_select(0, anchors);
  const auto column = [](const at::Tensor& x) { return x.unsqueeze(1); };
  const at::Tensor visible =
      document.eq(column(document))
          .logical_and(
              depths.eq(0)
                  .logical_and(anchors.le(column(anchors)))
                  .logical_or(anchors.eq(column(anchors)).logical_and(depths.le(column(depths)))));
  const int64_t count = masked.rows();
  const at::Tensor tokens = at::cat({all.batch.shifted(all.batch.tokens, 1),
                                     at::full({count}, head.options().mask_token, at::kLong)});
  const at::Tensor features =
      at::cat({all.batch.taps, head.mask_hidden().view({1, -1}).expand({count, -1})});
  const at::Tensor positions = all.batch.positions.index_select(0, anchors) + depths;
  Eagle3Head::Entry entry = head.enter(head.embed(tokens), head.fuse(features));
  at::Tensor x;
  for (size_t i = 0; i < head.layers().size(); ++i) {
    const LlamaLayer& layer = head.layers()[i];
    if (i > 0) entry = {rms_norm(x, layer.input_norm, layer.shape.norm_eps), x};
    const Projections p = layer.project(entry.input, head.rotary(positions));
    x = layer.feed_forward(entry.stream +
                           layer.output(test::attend_masked(p.q, p.k, p.v, visible)));
  }
  const at::Tensor places = at::cat({all.asked, at::ones({count}, at::kBool)}).nonzero().squeeze(1);
  const at::Tensor references = (anchors + depths).index_select(0, places);
  const at::Tensor wanted =
      head.wanted_logits(all.batch.last.index_select(0, references + 1)).detach();
  const at::Tensor loss =
      divergence(Divergence::kForwardKl, wanted, head.logits(x.index_select(0, places))).sum();
  (loss * settings().scale).backward();
  return loss.item<double>();
}

TEST(PEagle, IsThePlainNetworkOverAllRows) {
  for (const bool train_embedding : {false, true}) {
    Eagle3HeadOptions options = masked_head();
    options.train_embedding = train_embedding;
    Eagle3Head head = make_head(options);
    const Everything all = everything(head);
    ASSERT_GT(all.chains.rows(), 100);
    const double expected = plain_loss(head, all);
    const auto gradients = take_gradients(head.parameters());
    PEagleStep step(head, all.batch, all.asked, settings());
    step.run_whole(all.chains);
    EXPECT_NEAR(step.sums()[0].sum().item<double>(), expected, 1e-5 * expected);
    expect_same(take_gradients(head.parameters()), gradients, 1e-5);
    EXPECT_EQ(step.sums()[2][0].item<double>(), all.asked.sum().item<double>());
    EXPECT_EQ(step.sums()[2].sum().item<double>(),
              all.asked.sum().item<double>() + static_cast<double>(all.chains.rows()));
  }
}

TEST(PEagle, PartsHaveTheGradientsOfTheWhole) {
  Eagle3Head head = make_head(masked_head());
  const Everything all = everything(head);
  PEagleStep whole(head, all.batch, all.asked, settings());
  whole.run_whole(all.chains);
  const auto gradients = take_gradients(head.parameters());
  const int64_t rows = all.batch.documents.rows();
  for (const int64_t segments : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, rows}) {
    for (const int64_t logits : {int64_t{1}, settings().logits}) {
      SCOPED_TRACE(fmt::format("{} segments, {} logits at once", segments, logits));
      PEagleStep::Settings parts = settings();
      parts.logits = logits;
      PEagleStep step(head, all.batch, all.asked, parts);
      step.run_in_parts(all.chains, cut_chains(all.chains, rows, segments));
      EXPECT_TRUE(at::allclose(step.sums(), whole.sums(), 1e-5, 1e-6));
      expect_same(take_gradients(head.parameters()), gradients, 1e-5);
    }
  }
}

std::unique_ptr<Method> make(const PEagleOptions& options) {
  at::Generator generator = seeded(1);
  auto method = make_peagle(tiny().target(), options, generator);
  EXPECT_TRUE(method.ok()) << method.status().message();
  return method.ok() ? std::move(*method) : nullptr;
}

Figures figures_of(Method& method, const Batch& batch, double scale, bool train) {
  at::Generator generator = seeded(5);
  auto figures = method.accumulate(batch, scale, generator, train);
  EXPECT_TRUE(figures.ok()) << figures.status().message();
  return figures.ok() ? *figures : Figures();
}

TEST(PEagle, GradientsAreDifferencesOfTheLoss) {
  for (const int64_t segments : {1, 3}) {
    PEagleOptions options = small_options(segments);
    options.head.layers = 2;
    const auto method = make(options);
    test::perturb(method->parameters(), 0.1, 9);
    const Batch batch = some_batch(method->needs(), {9, 8});
    test::expect_gradients(method->parameters(), [&](bool train) {
      return 0.5 * figure(figures_of(*method, batch, 0.5, train), "loss");
    });
  }
}

TEST(PEagle, LossIsTheMeanOverAllRowsThatAreAsked) {
  const auto whole = make(small_options(1)), parts = make(small_options(4));
  const Batch batch = some_batch(whole->needs());
  const double weight = whole->weight(batch);
  EXPECT_EQ(weight, supervised(batch).sum().item<double>());
  const Figures figures = figures_of(*whole, batch, 0.5, true);
  EXPECT_EQ(figures.weight, weight);
  double loss = 0.0, rows = 0.0;
  for (int d = 0; d < kDepth; ++d) {
    loss += figure(figures, fmt::format("loss_{}", d));
    rows += figure(figures, fmt::format("rows_{}", d));
  }
  EXPECT_EQ(figure(figures, "rows_0"), weight);
  EXPECT_GT(rows, 2.0 * weight);
  EXPECT_NEAR(figure(figures, "loss"), loss / rows * weight, 1e-9 * loss);
  figures_of(*parts, batch, 0.5, true);
  expect_same(take_gradients(parts->parameters()), take_gradients(whole->parameters()), 1e-5);
  for (Method* method : {whole.get(), parts.get()}) {
    const Figures judged = figures_of(*method, batch, 1.0, false);
    EXPECT_NEAR(figure(judged, "loss"), figure(figures, "loss"), 1e-5 * loss);
    EXPECT_FALSE(method->parameters().list().front().value.grad().defined());
  }
}

// A batch may have a text that is a prompt alone.
TEST(PEagle, NothingSupervisedIsNoStep) {
  const auto method = make(small_options(2));
  Batch batch = some_batch(method->needs());
  batch.mask.zero_();
  EXPECT_EQ(figures_of(*method, batch, 1.0, true).weight, 0.0);
  batch.mask[50] = 1.0f;
  batch.mask[51] = 1.0f;  // one row, and n - 1 = 0 places at depth 1
  const Figures figures = figures_of(*method, batch, 1.0, true);
  EXPECT_EQ(figures.weight, 1.0);
  EXPECT_EQ(figure(figures, "rows_1"), 0.0);
  EXPECT_TRUE(method->parameters().list().front().value.grad().defined());
}

TEST(PEagle, RefusesWhatItCannotTrain) {
  const auto refused = [](const PEagleOptions& options) {
    at::Generator generator = seeded(1);
    const auto method = make_peagle(tiny().target(), options, generator);
    return !method.ok() && method.status().code() == StatusCode::kInvalidArgument;
  };
  PEagleOptions options = small_options();
  options.sampling.depths = 0;
  EXPECT_TRUE(refused(options));
  options = small_options();
  options.sampling.kept = std::nan("");
  EXPECT_TRUE(refused(options));
  options = small_options();
  options.segments = -1;
  EXPECT_TRUE(refused(options));
  options = small_options();
  options.head.layers = 0;
  EXPECT_TRUE(refused(options));
  options = small_options();
  options.head.mask_token = vocab();
  EXPECT_TRUE(refused(options));
}

// What the engine drafts behind the first `known` tokens: the logits of all depths.
std::vector<float> drafted(DraftNetwork& network, const Text& text, size_t known,
                           std::span<const float> taps) {
  const DraftOutputs outputs = test::draft_behind(network, text, known, taps, kDepth);
  std::vector<float> logits(outputs.logits.begin(), outputs.logits.end());
  network.close(0);
  return logits;
}

struct Variant {
  const char* name;
  bool fc_norm = false, norm_before_residual = false, pruned = false, train_embedding = false;
  int64_t layers = 2;
};

class PEagleParity : public testing::TestWithParam<Variant> {};

// In the engine drafting goes on from a text's token, in training its row is an anchor.
TEST_P(PEagleParity, TrainsWhatTheEngineRuns) {
  const Variant variant = GetParam();
  Eagle3HeadOptions options = masked_head();
  options.layers = variant.layers;
  options.fc_norm = variant.fc_norm;
  options.norm_before_residual = variant.norm_before_residual;
  options.train_embedding = variant.train_embedding;
  if (variant.pruned) {
    for (int32_t id = 3; id < vocab(); id += 2) options.vocabulary.push_back(id);
  }
  const Eagle3Head head = make_head(options);
  const TemporaryFolder folder;
  ASSERT_TRUE(head.write(folder.path(), "peagle", kDepth).ok());
  NetworkDrafterOptions drafter;
  drafter.num_tokens = kDepth;
  const auto network = tiny().models().network("eagle3", folder.path(), drafter);
  ASSERT_NE(network, nullptr);
  ASSERT_EQ(network->needs().tap_layers, head.options().tap_layers);
  ASSERT_EQ(network->depths(), kDepth);

  const Text text = test::random_tokens(3, 40, vocab());
  const Batch batch = tiny().batch({&text, 1}, kPrompt, {head.options().tap_layers, true});
  const at::NoGradGuard no_grad;
  for (const size_t known : {size_t{3}, size_t{11}, size_t{30}}) {
    const auto anchor = static_cast<int64_t>(known) - 2;
    const Chains chains = {{anchor}, {kDepth - 1}};
    PEagleStep step(head, batch, supervised(batch), settings());
    const PEagleStep::Streams streams = step.streams(chains);
    const at::Tensor expected =
        head.logits(at::cat({streams.context.narrow(0, anchor, 1), streams.chains})).contiguous();
    const std::vector<float> actual =
        drafted(*network, text, known,
                {batch.taps.data_ptr<float>(), static_cast<size_t>(batch.taps.numel())});
    ASSERT_EQ(static_cast<int64_t>(actual.size()), expected.numel());
    const auto width = static_cast<size_t>(expected.size(1));
    for (size_t depth = 0; depth < kDepth; ++depth) {
      const auto of_depth = std::span(actual).subspan(depth * width, width);
      EXPECT_LT(test::relative_error({of_depth.begin(), of_depth.end()},
                                     expected[static_cast<int64_t>(depth)]),
                1e-3)
          << "depth " << depth << " behind " << known << " tokens";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, PEagleParity,
                         testing::Values(Variant{"usual"},
                                         Variant{"one_layer", false, false, false, false, 1},
                                         Variant{"four_layers", false, false, false, false, 4},
                                         Variant{"fc_norm", true}, Variant{"residual", false, true},
                                         Variant{"pruned", false, false, true},
                                         Variant{"own_embedding", false, false, false, true}),
                         [](const auto& variant) { return std::string(variant.param.name); });

TEST(PEagle, LearnsATextByHeart) {
  PEagleOptions options = small_options(2);
  options.head.layers = 2;
  options.sampling.kept = 1.0;
  const auto method = make(options);
  const Text text = tiny().say(21, 8, 1 + 7 * (kDepth + 1));
  const Batch batch = tiny().batch({&text, 1}, 8, method->needs());
  test::fit(*method, {&batch, 1}, {.steps = 250, .rate = 0.01});
  const TemporaryFolder folder;
  ASSERT_TRUE(method->write(folder.path()).ok());
  const auto tokens_a_round = [&](int late) {
    return tiny().draft("eagle3", folder.path(), text, 8, kDepth, late);
  };
  const TextTarget::Round round = tokens_a_round(0);
  EXPECT_GT(round.most, kDepth + 0.9);
  EXPECT_DOUBLE_EQ(round.tokens, round.most);
  EXPECT_LT(tokens_a_round(1).tokens, 1.5);
}

// Asked for what the target says one place before or behind, it learns that: nothing in the rows
// keeps it from knowing, and in the engine it is wrong.
TEST(PEagle, IsLostIfTheTargetsWordsAreOfTheNeighbour) {
  PEagleOptions options = small_options(2);
  options.head.layers = 1;
  const auto method = make(options);
  const Text text = tiny().say(21, 8, 1 + 7 * (kDepth + 1));
  Batch batch = tiny().batch({&text, 1}, 8, method->needs());
  batch.last = batch.last.roll(1, 0);
  const std::vector<double> losses = test::fit(*method, {&batch, 1}, {.steps = 80, .rate = 0.01});
  EXPECT_LT(losses.back(), 0.2 * losses.front());
  const TemporaryFolder folder;
  ASSERT_TRUE(method->write(folder.path()).ok());
  EXPECT_LT(tiny().draft("eagle3", folder.path(), text, 8, kDepth).tokens, 1.5);
}

}  // namespace aerie::train::peagle_test
