#include "model/llama.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "model/rope_table.h"
#include "model/row_paths.h"
#include "model/weights.h"

namespace aerie {
namespace {

using kernels::Activations;
using kernels::MatmulTarget;
using kernels::PackedMatrix;

struct Layer {
  std::vector<float> attention_norm;
  PackedMatrix q, k, v, o;
  std::vector<float> ffn_norm;
  PackedMatrix gate, up, down;
};

class Llama final : public Model {
 public:
  Llama(ModelConfig config, const ModelOptions& options)
      : config_(std::move(config)),
        options_(options),
        backend_(*options.backend),
        pool_(*options.pool),
        rope_(config_.rope),
        paths_(options.max_rows) {}

  Status load(const ModelFile& file);

  const ModelConfig& config() const override { return config_; }
  int64_t weight_bytes() const override { return weight_bytes_; }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override;

 private:
  Status load_layer(WeightLoader& loader, int index);
  Status allocate();

  void embed(const ForwardBatch& batch);
  void attend(const Layer& layer, int index, KvCache& cache);
  void feed_forward(const Layer& layer);
  void tap(const ForwardBatch& batch, int layer);
  void prepare(Activations& a, int64_t k, std::initializer_list<const PackedMatrix*> readers) const;
  int head(const ForwardBatch& batch);

  ModelConfig config_;
  ModelOptions options_;
  const kernels::Backend& backend_;
  ThreadPool& pool_;
  RopeTable rope_;
  RowPaths paths_;

  TensorData embedding_;
  std::vector<Layer> layers_;
  std::vector<float> output_norm_;
  PackedMatrix output_;
  int64_t weight_bytes_ = 0;

  // The pass under way.
  int64_t rows_ = 0;
  std::span<const kernels::AttentionRow> attention_rows_;
  std::vector<int32_t> slots_;
  std::vector<float> x_, q_, k_, v_, gate_, up_, cos_, sin_, wanted_, logits_, taps_;
  Activations normed_, attended_, gated_;
  kernels::AttentionWorkspace attention_;
};

Status Llama::load_layer(WeightLoader& loader, int index) {
  const auto name = [index](const char* part) {
    return fmt::format("blk.{}.{}.weight", index, part);
  };
  const int hidden = config_.hidden;
  Layer layer;
  AERIE_ASSIGN_OR_RETURN(layer.attention_norm, loader.vector(name("attn_norm"), hidden));
  AERIE_ASSIGN_OR_RETURN(layer.q, loader.matrix(name("attn_q"), hidden, config_.q_width()));
  AERIE_ASSIGN_OR_RETURN(layer.k, loader.matrix(name("attn_k"), hidden, config_.kv_width()));
  AERIE_ASSIGN_OR_RETURN(layer.v, loader.matrix(name("attn_v"), hidden, config_.kv_width()));
  AERIE_ASSIGN_OR_RETURN(layer.o, loader.matrix(name("attn_output"), config_.q_width(), hidden));
  AERIE_ASSIGN_OR_RETURN(layer.ffn_norm, loader.vector(name("ffn_norm"), hidden));
  AERIE_ASSIGN_OR_RETURN(layer.gate, loader.matrix(name("ffn_gate"), hidden, config_.ffn));
  AERIE_ASSIGN_OR_RETURN(layer.up, loader.matrix(name("ffn_up"), hidden, config_.ffn));
  AERIE_ASSIGN_OR_RETURN(layer.down, loader.matrix(name("ffn_down"), config_.ffn, hidden));
  // Old converters wrote the rotary frequencies, which the metadata already give.
  loader.ignore(fmt::format("blk.{}.attn_rot_embd", index));
  layers_.push_back(std::move(layer));
  return {};
}

Status Llama::load(const ModelFile& file) {
  WeightLoader loader(file, options_);
  AERIE_ASSIGN_OR_RETURN(embedding_,
                         loader.read("token_embd.weight", config_.hidden, config_.vocab));
  for (int i = 0; i < config_.layers; ++i) AERIE_RETURN_IF_ERROR(load_layer(loader, i));
  AERIE_ASSIGN_OR_RETURN(output_norm_, loader.vector("output_norm.weight", config_.hidden));
  const char* output = loader.has("output.weight") ? "output.weight" : "token_embd.weight";
  AERIE_ASSIGN_OR_RETURN(output_, loader.matrix(output, config_.hidden, config_.vocab));
  loader.ignore("rope_freqs.weight");  // read with the configuration
  AERIE_RETURN_IF_ERROR(loader.check_all_used(config_.family));
  weight_bytes_ = loader.packed_bytes();
  return allocate();
}

Status Llama::allocate() {
  const auto rows = static_cast<size_t>(options_.max_rows);
  const auto hidden = static_cast<size_t>(config_.hidden);
  x_.resize(rows * hidden);
  q_.resize(rows * static_cast<size_t>(config_.q_width()));
  k_.resize(rows * static_cast<size_t>(config_.kv_width()));
  v_.resize(k_.size());
  gate_.resize(rows * static_cast<size_t>(config_.ffn));
  up_.resize(gate_.size());
  cos_.resize(rows * static_cast<size_t>(rope_.pairs()));
  sin_.resize(cos_.size());
  wanted_.resize(static_cast<size_t>(options_.max_logits) * hidden);
  logits_.resize(static_cast<size_t>(options_.max_logits) * static_cast<size_t>(config_.vocab));
  taps_.reserve(rows * static_cast<size_t>(options_.max_taps) * hidden);
  slots_.reserve(rows);
  AERIE_ASSIGN_OR_RETURN(normed_, Activations::allocate(options_.max_rows, config_.hidden));
  AERIE_ASSIGN_OR_RETURN(attended_, Activations::allocate(options_.max_rows, config_.q_width()));
  AERIE_ASSIGN_OR_RETURN(gated_, Activations::allocate(options_.max_rows, config_.ffn));
  AERIE_ASSIGN_OR_RETURN(
      attention_, kernels::AttentionWorkspace::allocate({config_.kv_heads, config_.head_dim},
                                                        config_.heads, options_.max_rows,
                                                        options_.max_positions, pool_.threads()));
  return {};
}

void Llama::prepare(Activations& a, int64_t k,
                    std::initializer_list<const PackedMatrix*> readers) const {
  a.k = k;
  a.rows = rows_;
  a.has_int8 = false;
  for (const PackedMatrix* reader : readers) a.has_int8 |= backend_.wants_int8(reader->dtype);
}

void Llama::embed(const ForwardBatch& batch) {
  const auto pairs = static_cast<size_t>(rope_.pairs());
  slots_.clear();
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const BatchRow& row = batch.rows[r];
    dequantize(embedding_.view.dtype, embedding_.view.row(row.token), config_.hidden,
               x_.data() + r * static_cast<size_t>(config_.hidden));
    rope_.fill(row.position, cos_.data() + r * pairs, sin_.data() + r * pairs);
    slots_.push_back(row.slot);
  }
}

void Llama::attend(const Layer& layer, int index, KvCache& cache) {
  prepare(normed_, config_.hidden, {&layer.q, &layer.k, &layer.v});
  backend_.rms_norm(pool_, x_.data(), config_.hidden, layer.attention_norm.data(), config_.norm_eps,
                    normed_);
  const MatmulTarget projections[] = {{&layer.q, q_.data(), config_.q_width()},
                                      {&layer.k, k_.data(), config_.kv_width()},
                                      {&layer.v, v_.data(), config_.kv_width()}};
  backend_.matmul(pool_, normed_, projections);
  backend_.rope(pool_, q_.data(), rows_, config_.heads, config_.head_dim, config_.rope.dimensions,
                kernels::RopeStyle::kPairs, cos_.data(), sin_.data());
  backend_.rope(pool_, k_.data(), rows_, config_.kv_heads, config_.head_dim,
                config_.rope.dimensions, kernels::RopeStyle::kPairs, cos_.data(), sin_.data());
  backend_.store_kv(pool_, cache.layout(), k_.data(), v_.data(), slots_, cache.plane(index));

  prepare(attended_, config_.q_width(), {&layer.o});
  kernels::AttentionArgs args;
  args.q = q_.data();
  args.out = attended_.row(0);
  args.heads = config_.heads;
  args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
  args.layout = cache.layout();
  args.kv = cache.plane(index);
  args.rows = attention_rows_;
  args.workspace = &attention_;
  backend_.attention(pool_, args);
  backend_.quantize(pool_, attended_);
  const MatmulTarget output[] = {{&layer.o, x_.data(), config_.hidden, true}};
  backend_.matmul(pool_, attended_, output);
}

void Llama::feed_forward(const Layer& layer) {
  prepare(normed_, config_.hidden, {&layer.gate, &layer.up});
  backend_.rms_norm(pool_, x_.data(), config_.hidden, layer.ffn_norm.data(), config_.norm_eps,
                    normed_);
  const MatmulTarget projections[] = {{&layer.gate, gate_.data(), config_.ffn},
                                      {&layer.up, up_.data(), config_.ffn}};
  backend_.matmul(pool_, normed_, projections);
  prepare(gated_, config_.ffn, {&layer.down});
  backend_.gated(pool_, kernels::Activation::kSilu, gate_.data(), up_.data(), gated_);
  const MatmulTarget output[] = {{&layer.down, x_.data(), config_.hidden, true}};
  backend_.matmul(pool_, gated_, output);
}

void Llama::tap(const ForwardBatch& batch, int layer) {
  const auto hidden = static_cast<size_t>(config_.hidden);
  const size_t width = batch.tap_layers.size() * hidden;
  for (size_t t = 0; t < batch.tap_layers.size(); ++t) {
    if (batch.tap_layers[t] != layer) continue;
    size_t out = 0;
    for (size_t r = 0; r < batch.rows.size(); ++r) {
      if (!batch.rows[r].wants_taps) continue;
      std::memcpy(taps_.data() + out++ * width + t * hidden, x_.data() + r * hidden,
                  hidden * sizeof(float));
    }
  }
}

int Llama::head(const ForwardBatch& batch) {
  const auto hidden = static_cast<size_t>(config_.hidden);
  int wanted = 0;
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    if (!batch.rows[r].wants_logits) continue;
    std::memcpy(wanted_.data() + static_cast<size_t>(wanted++) * hidden, x_.data() + r * hidden,
                hidden * sizeof(float));
  }
  if (wanted == 0) return 0;
  prepare(normed_, config_.hidden, {&output_});
  normed_.rows = wanted;
  backend_.rms_norm(pool_, wanted_.data(), config_.hidden, output_norm_.data(), config_.norm_eps,
                    normed_);
  const MatmulTarget output[] = {{&output_, logits_.data(), config_.vocab}};
  backend_.matmul(pool_, normed_, output);
  return wanted;
}

ForwardOutputs Llama::forward(const ForwardBatch& batch, KvCache& cache) {
  const ThreadPool::Round round(pool_);
  rows_ = batch.size();
  size_t tapped = 0;
  for (const BatchRow& row : batch.rows) tapped += row.wants_taps ? 1 : 0;
  taps_.resize(tapped * batch.tap_layers.size() * static_cast<size_t>(config_.hidden));
  embed(batch);
  attention_rows_ = paths_.build(batch);
  for (int i = 0; i < config_.layers; ++i) {
    tap(batch, i);
    attend(layers_[static_cast<size_t>(i)], i, cache);
    feed_forward(layers_[static_cast<size_t>(i)]);
  }
  tap(batch, config_.layers);
  const int wanted = head(batch);

  ForwardOutputs out;
  out.vocab = config_.vocab;
  out.tap_width = static_cast<int>(batch.tap_layers.size()) * config_.hidden;
  out.logits = {logits_.data(), static_cast<size_t>(wanted) * static_cast<size_t>(config_.vocab)};
  out.taps = taps_;
  return out;
}

}  // namespace

Expected<std::unique_ptr<Model>> load_llama(const ModelFile& file, const ModelOptions& options) {
  AERIE_ASSIGN_OR_RETURN(ModelConfig config, read_llama_config(file));
  auto model = std::make_unique<Llama>(std::move(config), options);
  AERIE_RETURN_IF_ERROR(model->load(file));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace aerie
