#include "tests/train/text_target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "draft/network/network_drafter.h"
#include "tests/testing/decoding.h"

namespace aerie::test {
namespace {

constexpr int kLimit = 64;  // rows and logits of HeadModels

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

// Of the text's prompt, as many tokens as the text goes on for.
Reply decode_one(Model& model, Drafter* drafter, int nodes, const PromptedText& text,
                 size_t tokens) {
  DecoderOptions options;
  options.prefill_chunk = kLimit;
  options.max_positions = HeadModels::kPositions;
  options.max_rows = options.max_logits = kLimit;
  options.max_nodes = nodes;
  Request request;
  request.prompt.assign(text.tokens.begin(), text.tokens.begin() + text.prompt);
  request.options.max_tokens = static_cast<int>(tokens);
  request.options.sampling.temperature = 0.0;
  const ModelCache owned_cache = cache_for(model, options, 1);
  KvCache& cache = *owned_cache;
  return decode(model, cache, drafter, options, {&request, 1}).of.at(0);
}

// What comes behind the prompt.
std::span<const int32_t> said(const PromptedText& text) {
  return std::span(text.tokens).subspan(static_cast<size_t>(text.prompt));
}

}  // namespace

TinySpec TextTarget::usual() {
  TinySpec spec;
  spec.vocab = 272;
  spec.hidden = 32;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.ffn = 48;
  spec.tokenizer = true;
  return spec;
}

TinySpec TextTarget::three_layers() {
  TinySpec spec = usual();
  spec.layers = 3;
  spec.ffn = 64;
  spec.vocab = kByteVocab;
  return spec;
}

TextTarget::TextTarget(const TinySpec& spec) : folder_(std::make_unique<TemporaryFolder>()) {
  const std::string path = folder_->path() + "/target.gguf";
  const Status written = tiny_gguf(spec).write(path);
  EXPECT_TRUE(written.ok()) << written.message();
  open(path);
}

void TextTarget::open(const std::string& path) {
  auto target = train::Target::open(path, pool_of(2));
  EXPECT_TRUE(target.ok()) << target.status().message();
  if (target.ok()) target_ = std::move(*target);
  models_ = std::make_unique<HeadModels>(path);
}

PromptedText TextTarget::say(uint64_t seed, int prompt, int tokens) {
  PromptedText text = {random_tokens(seed, prompt, vocab()), prompt};
  const Reply reply = decode_one(models_->target(), nullptr, 0, text, static_cast<size_t>(tokens));
  text.tokens.insert(text.tokens.end(), reply.tokens.begin(), reply.tokens.end());
  return text;
}

train::Batch TextTarget::batch(std::span<const Text> texts, int prompt,
                               const train::MethodNeeds& needs) {
  std::vector<PromptedText> prompted;
  for (const Text& text : texts) prompted.push_back({text, prompt});
  return batch(prompted, needs);
}

train::Batch TextTarget::batch(std::span<const PromptedText> texts,
                               const train::MethodNeeds& needs) {
  train::Batch batch;
  std::vector<at::Tensor> tokens, positions, masks, taps, lasts;
  const int64_t hidden = target_->config().hidden;
  const auto values = [&](const Text& text, const std::vector<int32_t>& layers) {
    std::vector<float> x = models_->taps(text, layers);
    return at::from_blob(x.data(), {static_cast<int64_t>(text.size()),
                                    static_cast<int64_t>(layers.size()) * hidden})
        .clone();
  };
  for (const PromptedText& text : texts) {
    const auto rows = static_cast<int64_t>(text.tokens.size());
    batch.documents.starts.push_back(batch.documents.rows() + rows);
    tokens.push_back(at::tensor(at::ArrayRef<int32_t>(text.tokens), at::kLong));
    positions.push_back(at::arange(rows, at::kLong));
    masks.push_back(positions.back().ge(text.prompt).to(at::kFloat));
    if (!needs.tap_layers.empty()) taps.push_back(values(text, needs.tap_layers));
    if (needs.last) lasts.push_back(values(text, {target_->config().layers}));
  }
  batch.tokens = at::cat(tokens);
  batch.positions = at::cat(positions);
  batch.mask = at::cat(masks);
  if (!taps.empty()) batch.taps = at::cat(taps);
  if (needs.last) batch.last = at::cat(lasts);
  return batch;
}

std::unique_ptr<Drafter> TextTarget::drafter(const std::string& method, const std::string& folder,
                                             int depth, HeadSettings settings) {
  NetworkDrafterOptions options;
  options.method = method;
  options.vocab = vocab();
  options.num_tokens = depth;
  options.max_rows = options.max_logits = kLimit;
  std::unique_ptr<DraftNetwork> network =
      models_->network(method, folder, options, std::move(settings));
  return network == nullptr ? nullptr : make_network_drafter(std::move(network), options);
}

double TextTarget::accepted_length(const std::string& method, const std::string& folder,
                                   const PromptedText& text, int depth) {
  const std::unique_ptr<Drafter> head = drafter(method, folder, depth, {});
  if (head == nullptr) return 0.0;
  const Reply reply = decode_one(models_->target(), head.get(), depth, text, said(text).size());
  EXPECT_TRUE(std::ranges::equal(reply.tokens, said(text)));
  return reply.stats.mean_accepted_length();
}

TextTarget::Round TextTarget::draft(const std::string& method, const std::string& folder,
                                    const Text& text, int prompt, int depth, int late,
                                    HeadSettings settings) {
  const std::unique_ptr<Drafter> head = drafter(method, folder, depth, std::move(settings));
  if (head == nullptr) return {};
  Reciter model(models_->target(), text, late);
  const PromptedText prompted = {text, prompt};
  const Reply reply = decode_one(model, head.get(), depth, prompted, said(prompted).size());
  EXPECT_TRUE(std::ranges::equal(reply.tokens, said(prompted)));
  // The prompt's pass emits the first token; the last round may be cut.
  const auto emitted = static_cast<double>(said(prompted).size() - 1);
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

double relative_error(std::span<const float> actual, std::span<const float> expected) {
  return relative_error(Floats(actual.begin(), actual.end()),
                        at::tensor(at::ArrayRef<float>(expected.data(), expected.size())));
}

DraftOutputs draft_behind(DraftNetwork& network, const Text& text, size_t known,
                          std::span<const float> taps, int depth) {
  const std::span<const int32_t> tokens = std::span(text).first(known);
  const size_t width = taps.size() / text.size();
  DraftSequence sequence;
  sequence.id = 1;
  sequence.max_tokens = HeadModels::kPositions;
  EXPECT_TRUE(network.open(0, sequence).ok());
  // Of two passes, so that rows are read in several.
  for (const auto& [first, rows] :
       {std::pair{size_t{0}, known / 2}, {known / 2, known - 1 - known / 2}}) {
    DraftCommit commit;
    commit.id = 1;
    commit.tokens = tokens.first(first + rows + 1);
    commit.first = static_cast<int>(first);
    commit.rows = static_cast<int>(rows);
    commit.taps = taps.subspan(first * width, rows * width);
    network.observe(0, commit, {});
  }
  EXPECT_EQ(network.start(0, tokens, depth, depth), depth);
  network.add_root(0);
  return network.run();
}

}  // namespace aerie::test
