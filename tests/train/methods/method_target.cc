#include "tests/train/methods/method_target.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "draft/network/network_drafter.h"
#include "tests/testing/decoding.h"
#include "tests/train/fit.h"

namespace aerie::test {
namespace {

constexpr int kLimit = 64;  // rows and logits of HeadModels

train::Figures accumulate(train::Method& method, const train::Batch& batch, double scale,
                          bool train) {
  at::Generator generator = at::detail::createCPUGenerator(5);
  auto figures = method.accumulate(batch, scale, generator, train);
  EXPECT_TRUE(figures.ok()) << figures.status().message();
  return figures.ok() ? *figures : train::Figures();
}

DecoderOptions decoder_options(int depth) {
  DecoderOptions options;
  options.prefill_chunk = kLimit;
  options.max_positions = HeadModels::kPositions;
  options.max_nodes = depth;
  options.max_rows = options.max_logits = kLimit;
  return options;
}

Reply reply_to(HeadModels& models, Drafter* drafter, const PromptedText& text, int tokens,
               int depth) {
  Request request;
  request.prompt.assign(text.tokens.begin(), text.tokens.begin() + text.prompt);
  request.options.sampling.temperature = 0.0f;
  request.options.max_tokens = tokens;
  const DecoderOptions options = decoder_options(depth);
  KvCache cache = cache_for(models.target(), options, 1);
  return decode(models.target(), cache, drafter, options, {&request, 1}).of.at(0);
}

}  // namespace

TinySpec MethodTarget::usual() {
  TinySpec spec;
  spec.vocab = 272;
  spec.hidden = 32;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.ffn = 48;
  spec.tokenizer = true;
  return spec;
}

MethodTarget::MethodTarget(const TinySpec& spec) : folder_(std::make_unique<TemporaryFolder>()) {
  const std::string path = folder_->path() + "/target.gguf";
  const Status written = tiny_gguf(spec).write(path);
  EXPECT_TRUE(written.ok()) << written.message();
  open(path);
}

void MethodTarget::open(const std::string& path) {
  auto target = train::Target::open(path, pool_of(2));
  EXPECT_TRUE(target.ok()) << target.status().message();
  if (target.ok()) target_ = std::move(*target);
  models_ = std::make_unique<HeadModels>(path);
}

PromptedText MethodTarget::say(uint64_t seed, int prompt, int tokens) {
  PromptedText text = {random_tokens(seed, prompt, vocab()), prompt};
  const Reply reply = reply_to(*models_, nullptr, text, tokens, 0);
  text.tokens.insert(text.tokens.end(), reply.tokens.begin(), reply.tokens.end());
  return text;
}

train::Batch MethodTarget::batch(std::span<const PromptedText> texts) {
  train::Batch batch;
  std::vector<at::Tensor> tokens, positions, mask, last;
  for (const PromptedText& text : texts) {
    const auto rows = static_cast<int64_t>(text.tokens.size());
    batch.documents.starts.push_back(batch.documents.rows() + rows);
    tokens.push_back(at::tensor(at::ArrayRef<int32_t>(text.tokens), at::kLong));
    positions.push_back(at::arange(rows, at::kLong));
    mask.push_back((positions.back() >= text.prompt).to(at::kFloat));
    std::vector<float> taps = models_->taps(text.tokens, {target_->config().layers});
    last.push_back(
        at::from_blob(taps.data(), {rows, target_->config().hidden}, at::kFloat).clone());
  }
  batch.tokens = at::cat(tokens, 0);
  batch.positions = at::cat(positions, 0);
  batch.mask = at::cat(mask, 0);
  batch.last = at::cat(last, 0);
  return batch;
}

double MethodTarget::accepted_length(const std::string& method, const std::string& folder,
                                     const PromptedText& text, int depth) {
  NetworkDrafterOptions options;
  options.method = method;
  options.vocab = vocab();
  options.num_tokens = depth;
  options.max_rows = options.max_logits = kLimit;
  std::unique_ptr<DraftNetwork> network = models_->network(method, folder, options);
  if (network == nullptr) return 0.0;
  const std::unique_ptr<Drafter> drafter = make_network_drafter(std::move(network), options);
  const auto said = static_cast<int>(text.tokens.size()) - text.prompt;
  const Reply reply = reply_to(*models_, drafter.get(), text, said, depth);
  EXPECT_TRUE(std::ranges::equal(reply.tokens,
                                 std::span(text.tokens).subspan(static_cast<size_t>(text.prompt))));
  return reply.stats.mean_accepted_length();
}

std::vector<float> offset_log_probabilities(train::Method& method, const train::Batch& batch,
                                            int64_t row, int head,
                                            std::span<const int32_t> labels) {
  train::Batch asked = batch;
  asked.tokens = batch.tokens.clone();
  asked.mask = at::zeros_like(batch.mask);
  const int64_t place = row + 2 + head;
  asked.mask[row + 1] = 1.0f;
  asked.mask[place] = 1.0f;
  std::vector<float> values;
  for (const int32_t label : labels) {
    asked.tokens[place] = label;
    const train::Figures figures = accumulate(method, asked, 1.0, false);
    values.push_back(static_cast<float>(-figure(figures, fmt::format("loss_{}", head + 1))));
  }
  return values;
}

std::vector<float> log_softmax(std::span<const float> logits) {
  const float most = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float value : logits) sum += std::exp(static_cast<double>(value - most));
  std::vector<float> out;
  for (const float value : logits) out.push_back(value - most - static_cast<float>(std::log(sum)));
  return out;
}

double relative_distance(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

void expect_right_gradients(train::Method& method, const train::Batch& batch, double tolerance) {
  constexpr double kScale = 0.5;
  const auto loss = [&](bool train) {
    return kScale * figure(accumulate(method, batch, kScale, train), "loss");
  };
  expect_gradients(method.parameters(), loss, tolerance);
}

}  // namespace aerie::test
