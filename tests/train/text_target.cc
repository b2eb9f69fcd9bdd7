#include "tests/train/text_target.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/testing/decoding.h"
#include "tests/testing/tiny_model.h"

namespace aerie::test {
namespace {

// With a tokenizer, which a target has to have.
std::string write_target(const std::string& folder) {
  TinySpec spec;
  spec.layers = 3;
  spec.hidden = 32;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.ffn = 64;
  spec.vocab = kByteVocab;
  spec.tokenizer = true;
  const std::string path = folder + "/target.gguf";
  EXPECT_TRUE(tiny_gguf(spec).write(path).ok());
  return path;
}

// The target, but for its logits, which say a text whatever was read, and for its taps, which are
// those of the position `late` before each row's own. Of one sequence.
class Reciter final : public Model {
 public:
  Reciter(Model& model, Text text, int late) : model_(model), text_(std::move(text)), late_(late) {}

  const ModelConfig& config() const override { return model_.config(); }
  int64_t weight_bytes() const override { return model_.weight_bytes(); }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override {
    ForwardOutputs outputs = model_.forward(batch, cache);
    const size_t width = batch.tap_layers.size() * static_cast<size_t>(config().hidden);
    size_t wanted = 0, tapped = 0;
    logits_.assign(outputs.logits.size(), 0.0f);
    late_taps_.clear();
    for (const BatchRow& row : batch.rows) {
      const auto position = static_cast<size_t>(row.position);
      if (row.wants_logits) {
        const auto next = static_cast<size_t>(text_[std::min(position + 1, text_.size() - 1)]);
        logits_[wanted++ * static_cast<size_t>(outputs.vocab) + next] = 1.0f;
      }
      if (!row.wants_taps) continue;
      if (by_position_.size() <= position) by_position_.resize(position + 1);
      const auto own = outputs.taps.subspan(tapped++ * width, width);
      by_position_[position].assign(own.begin(), own.end());
      const std::vector<float>& given =
          by_position_[static_cast<size_t>(std::max(row.position - late_, 0))];
      late_taps_.insert(late_taps_.end(), given.begin(), given.end());
    }
    outputs.logits = logits_;
    outputs.taps = late_taps_;
    return outputs;
  }

 private:
  Model& model_;
  Text text_;
  int late_;
  std::vector<std::vector<float>> by_position_;
  std::vector<float> logits_, late_taps_;
};

DecoderOptions decoder_options(int nodes) {
  DecoderOptions options;
  options.max_positions = HeadModels::kPositions;
  options.max_rows = options.max_logits = 64;
  options.max_nodes = nodes;
  return options;
}

Reply decode_one(Model& model, Drafter* drafter, int nodes, const Text& prompt, int tokens) {
  const DecoderOptions options = decoder_options(nodes);
  std::vector<Request> requests(1);
  requests[0].prompt = prompt;
  requests[0].options.max_tokens = tokens;
  requests[0].options.sampling.temperature = 0.0;
  KvCache cache = cache_for(model, options, 1);
  return decode(model, cache, drafter, options, requests).of[0];
}

}  // namespace

TextTarget::TextTarget() : path_(write_target(folder_.path())), pool_(2), models_(path_) {
  auto target = train::Target::open(path_, pool_);
  EXPECT_TRUE(target.ok()) << target.status().message();
  target_ = std::move(*target);
}

Text TextTarget::say(uint64_t seed, int prompt, int tokens) {
  Text text = random_tokens(seed, prompt, target_->config().vocab);
  const Reply reply = decode_one(models_.target(), nullptr, 0, text, tokens);
  text.insert(text.end(), reply.tokens.begin(), reply.tokens.end());
  return text;
}

train::Batch TextTarget::batch(std::span<const Text> texts, int prompt,
                               const train::MethodNeeds& needs) {
  train::Batch batch;
  batch.documents.starts = {0};
  std::vector<at::Tensor> tokens, positions, masks, taps, lasts;
  const int64_t hidden = target_->config().hidden;
  const auto values = [&](const Text& text, const std::vector<int32_t>& layers) {
    std::vector<float> x = models_.taps(text, layers);
    return at::from_blob(x.data(), {static_cast<int64_t>(text.size()),
                                    static_cast<int64_t>(layers.size()) * hidden})
        .clone();
  };
  for (const Text& text : texts) {
    const auto rows = static_cast<int64_t>(text.size());
    batch.documents.starts.push_back(batch.documents.rows() + rows);
    tokens.push_back(at::empty({rows}, at::kLong));
    std::ranges::copy(text, tokens.back().data_ptr<int64_t>());
    positions.push_back(at::arange(rows, at::kLong));
    masks.push_back(positions.back().ge(prompt).to(at::kFloat));
    if (!needs.tap_layers.empty()) taps.push_back(values(text, needs.tap_layers));
    lasts.push_back(values(text, {target_->config().layers}));
  }
  batch.tokens = at::cat(tokens);
  batch.positions = at::cat(positions);
  batch.mask = at::cat(masks);
  if (!taps.empty()) batch.taps = at::cat(taps);
  if (needs.last) batch.last = at::cat(lasts);
  return batch;
}

TextTarget::Round TextTarget::draft(const std::string& method, const std::string& folder,
                                    const Text& text, int prompt, int depth, int late,
                                    HeadSettings settings) {
  NetworkDrafterOptions options;
  options.method = method;
  options.vocab = target_->config().vocab;
  options.num_tokens = options.num_steps = depth;
  options.max_rows = options.max_logits = 64;
  std::unique_ptr<DraftNetwork> network =
      models_.network(method, folder, options, std::move(settings));
  if (network == nullptr) return {};
  const std::unique_ptr<Drafter> drafter = make_network_drafter(std::move(network), options);
  Reciter model(models_.target(), text, late);
  const Text start(text.begin(), text.begin() + prompt);
  const Text rest(text.begin() + prompt, text.end());
  const Reply reply = decode_one(model, drafter.get(), depth, start, static_cast<int>(rest.size()));
  EXPECT_EQ(reply.tokens, rest);
  // The prompt's pass emits the first token; the last round may be cut.
  const auto emitted = static_cast<double>(rest.size() - 1);
  return {emitted / static_cast<double>(reply.stats.rounds),
          emitted / std::ceil(emitted / (depth + 1))};
}

std::vector<Floats> rows_of(const at::Tensor& x) {
  const at::Tensor plain = x.detach().to(at::kFloat).contiguous();
  std::vector<Floats> rows;
  for (int64_t r = 0; r < plain.size(0); ++r) {
    const float* row = plain.data_ptr<float>() + r * plain.size(1);
    rows.emplace_back(row, row + plain.size(1));
  }
  return rows;
}

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  return ((actual - expected).norm() / expected.norm()).item<double>();
}

double relative_error(const Floats& actual, const at::Tensor& expected) {
  EXPECT_EQ(static_cast<int64_t>(actual.size()), expected.numel());
  const at::Tensor values = at::tensor(at::ArrayRef<float>(actual));
  return relative_error(values, expected.detach().flatten());
}

}  // namespace aerie::test
