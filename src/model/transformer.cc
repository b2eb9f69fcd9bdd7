#include "model/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "model/row_paths.h"
#include "model/transformer_weights.h"

namespace aerie {
namespace {

using kernels::Activations;
using kernels::MatmulTarget;

class Transformer final : public Model {
 public:
  Transformer(Blueprint blueprint, TransformerWeights weights, const ModelOptions& options)
      : blueprint_(std::move(blueprint)),
        config_(blueprint_.config),
        weights_(std::move(weights)),
        options_(options),
        backend_(*options.backend),
        pool_(*options.pool),
        paths_(options.max_rows) {
    for (const RopeConfig& rope : blueprint_.ropes)
      ropes_.emplace_back(rope, options.max_positions);
  }
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  Status allocate();

  const ModelConfig& config() const override { return config_; }
  int64_t weight_bytes() const override { return weights_.packed_bytes; }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override;

 private:
  // A rotary embedding, and its cosines and sines for the rows of the pass.
  struct Rope {
    Rope(const RopeConfig& config, int max_positions)
        : table(config, max_positions), dimensions(config.dimensions) {}
    RopeTable table;
    int dimensions;
    std::vector<float> cos, sin;  // [rows][pairs]
  };

  void embed(const ForwardBatch& batch);
  void embed_row(const BatchRow& row, float* x);
  void norm(const Norm& norm, const float* x, Activations& out) const;
  void turn(const Rope& rope, std::vector<float>& x, int heads) const;
  void add_to_stream(const Linear& linear, const Activations& x, const Norm& post_norm);
  void attend(const TransformerLayer& layer, int index, std::byte* plane, const KvCache& cache);
  void run_layers(const ForwardBatch& batch, KvCache& cache);
  void feed_forward(const TransformerLayer& layer);
  void tap(const ForwardBatch& batch, int layer);
  void prepare(Activations& a, int64_t k, std::initializer_list<const Linear*> readers) const;
  int head(const ForwardBatch& batch);

  Blueprint blueprint_;
  const ModelConfig& config_;  // the blueprint's
  TransformerWeights weights_;
  ModelOptions options_;
  const kernels::Backend& backend_;
  ThreadPool& pool_;
  RowPaths paths_;
  std::vector<Rope> ropes_;

  // The pass under way.
  int64_t rows_ = 0;
  std::span<const kernels::AttentionRow> attention_rows_;
  std::vector<int32_t> slots_;
  std::vector<float> x_, branch_, q_, k_, v_, gate_, up_, position_, wanted_, logits_, taps_;
  Activations normed_, attended_, gated_;
  kernels::AttentionWorkspace attention_;
};

Status Transformer::allocate() {
  const auto rows = static_cast<size_t>(options_.max_rows);
  const auto hidden = static_cast<size_t>(config_.hidden);
  x_.resize(rows * hidden);
  if (blueprint_.post_norms) branch_.resize(x_.size());
  if (blueprint_.learned_positions) position_.resize(hidden);
  q_.resize(rows * static_cast<size_t>(config_.q_width()));
  k_.resize(rows * static_cast<size_t>(config_.kv_width()));
  v_.resize(k_.size());
  up_.resize(rows * static_cast<size_t>(config_.ffn));
  if (blueprint_.gated) gate_.resize(up_.size());
  for (Rope& rope : ropes_) {
    rope.cos.resize(rows * static_cast<size_t>(rope.table.pairs()));
    rope.sin.resize(rope.cos.size());
  }
  wanted_.resize(static_cast<size_t>(options_.max_logits) * hidden);
  logits_.resize(static_cast<size_t>(options_.max_logits) * static_cast<size_t>(config_.vocab));
  taps_.reserve(rows * static_cast<size_t>(options_.max_taps) * hidden);
  slots_.reserve(rows);
  AERIE_ASSIGN_OR_RETURN(normed_, Activations::allocate(options_.max_rows, config_.hidden));
  AERIE_ASSIGN_OR_RETURN(attended_, Activations::allocate(options_.max_rows, config_.q_width()));
  AERIE_ASSIGN_OR_RETURN(gated_, Activations::allocate(options_.max_rows, config_.ffn));
  AERIE_ASSIGN_OR_RETURN(attention_, kernels::AttentionWorkspace::allocate(
                                         {config_.kv_heads, config_.head_dim}, config_.heads,
                                         options_.max_rows, options_.max_positions));
  return {};
}

void Transformer::prepare(Activations& a, int64_t k,
                          std::initializer_list<const Linear*> readers) const {
  a.k = k;
  a.rows = rows_;
  a.has_int8 = a.has_ordered = false;
  for (const Linear* reader : readers) {
    (backend_.wants_int8(reader->weight.dtype) ? a.has_int8 : a.has_ordered) = true;
  }
}

void Transformer::embed_row(const BatchRow& row, float* x) {
  dequantize(weights_.embedding.view.dtype, weights_.embedding.view.row(row.token), config_.hidden,
             x);
  if (blueprint_.embedding_scale != 1.0) {
    const auto scale = static_cast<float>(blueprint_.embedding_scale);
    for (int i = 0; i < config_.hidden; ++i) x[i] *= scale;
  }
  if (blueprint_.learned_positions) {
    dequantize(weights_.positions.view.dtype, weights_.positions.view.row(row.position),
               config_.hidden, position_.data());
    for (int i = 0; i < config_.hidden; ++i) x[i] += position_[static_cast<size_t>(i)];
  }
}

void Transformer::embed(const ForwardBatch& batch) {
  slots_.clear();
  std::ranges::copy(batch.hidden, x_.begin());
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const BatchRow& row = batch.rows[r];
    if (batch.first_layer == 0) {
      embed_row(row, x_.data() + r * static_cast<size_t>(config_.hidden));
    }
    for (Rope& rope : ropes_) {
      const auto at = r * static_cast<size_t>(rope.table.pairs());
      rope.table.fill(row.position, rope.cos.data() + at, rope.sin.data() + at);
    }
    slots_.push_back(row.slot);
  }
}

void Transformer::norm(const Norm& norm, const float* x, Activations& out) const {
  if (blueprint_.norm == NormKind::kLayer) {
    backend_.layer_norm(pool_, x, config_.hidden, norm.weight.data(), norm.bias.data(),
                        blueprint_.norm_eps, out);
  } else {
    backend_.rms_norm(pool_, x, config_.hidden, norm.weight.data(), blueprint_.norm_eps, out);
  }
}

void Transformer::turn(const Rope& rope, std::vector<float>& x, int heads) const {
  backend_.rope(pool_, x.data(), rows_, heads, config_.head_dim, rope.dimensions,
                blueprint_.rope_style, rope.cos.data(), rope.sin.data());
}

// The residual stream += norm(linear x), or linear x where there is no norm after it.
void Transformer::add_to_stream(const Linear& linear, const Activations& x, const Norm& post_norm) {
  if (!blueprint_.post_norms) {
    const MatmulTarget output[] = {linear.to(x_.data(), true)};
    backend_.matmul(pool_, x, output);
    return;
  }
  const MatmulTarget output[] = {linear.to(branch_.data())};
  backend_.matmul(pool_, x, output);
  backend_.add_rms_norm(pool_, branch_.data(), rows_, config_.hidden, post_norm.weight.data(),
                        blueprint_.norm_eps, x_.data());
}

void Transformer::attend(const TransformerLayer& layer, int index, std::byte* plane,
                         const KvCache& cache) {
  const LayerPlan& plan = blueprint_.layers[static_cast<size_t>(index)];
  prepare(normed_, config_.hidden, {&layer.q, &layer.k, &layer.v});
  norm(layer.attention_norm, x_.data(), normed_);
  const MatmulTarget projections[] = {layer.q.to(q_.data()), layer.k.to(k_.data()),
                                      layer.v.to(v_.data())};
  backend_.matmul(pool_, normed_, projections);
  if (blueprint_.query_key_norm) {
    backend_.rms_norm_heads(pool_, q_.data(), rows_, config_.heads, config_.head_dim,
                            layer.query_norm.data(), blueprint_.norm_eps);
    backend_.rms_norm_heads(pool_, k_.data(), rows_, config_.kv_heads, config_.head_dim,
                            layer.key_norm.data(), blueprint_.norm_eps);
  }
  if (plan.rope != LayerPlan::kNoRope) {
    const Rope& rope = ropes_[static_cast<size_t>(plan.rope)];
    turn(rope, q_, config_.heads);
    turn(rope, k_, config_.kv_heads);
  }
  backend_.store_kv(pool_, cache.layout(), k_.data(), v_.data(), slots_, plane);

  prepare(attended_, config_.q_width(), {&layer.o});
  kernels::AttentionArgs args;
  args.q = q_.data();
  args.out = attended_.row(0);
  args.heads = config_.heads;
  args.scale = static_cast<float>(blueprint_.attention_scale != 0.0
                                      ? blueprint_.attention_scale
                                      : 1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
  args.window = plan.window;
  args.soft_cap = static_cast<float>(blueprint_.attention_soft_cap);
  args.layout = cache.layout();
  args.kv = plane;
  args.rows = attention_rows_;
  args.workspace = &attention_;
  backend_.attention(pool_, args);
  backend_.quantize(pool_, attended_);
  add_to_stream(layer.o, attended_, layer.attention_post_norm);
}

void Transformer::feed_forward(const TransformerLayer& layer) {
  prepare(gated_, config_.ffn, {&layer.down});
  if (blueprint_.gated) {
    prepare(normed_, config_.hidden, {&layer.gate, &layer.up});
    norm(layer.ffn_norm, x_.data(), normed_);
    const MatmulTarget projections[] = {layer.gate.to(gate_.data()), layer.up.to(up_.data())};
    backend_.matmul(pool_, normed_, projections);
    backend_.gated(pool_, blueprint_.activation, gate_.data(), up_.data(), gated_);
  } else {
    prepare(normed_, config_.hidden, {&layer.up});
    norm(layer.ffn_norm, x_.data(), normed_);
    const MatmulTarget projection[] = {layer.up.to(up_.data())};
    backend_.matmul(pool_, normed_, projection);
    backend_.activate(pool_, blueprint_.activation, up_.data(), gated_);
  }
  add_to_stream(layer.down, gated_, layer.ffn_post_norm);
}

void Transformer::tap(const ForwardBatch& batch, int layer) {
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

int Transformer::head(const ForwardBatch& batch) {
  const auto hidden = static_cast<size_t>(config_.hidden);
  int wanted = 0;
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    if (!batch.rows[r].wants_logits) continue;
    std::memcpy(wanted_.data() + static_cast<size_t>(wanted++) * hidden, x_.data() + r * hidden,
                hidden * sizeof(float));
  }
  if (wanted == 0) return 0;
  prepare(normed_, config_.hidden, {&weights_.output});
  normed_.rows = wanted;
  norm(weights_.output_norm, wanted_.data(), normed_);
  const MatmulTarget output[] = {weights_.output.to(logits_.data())};
  backend_.matmul(pool_, normed_, output);
  if (blueprint_.logit_soft_cap != 0.0) {
    backend_.soft_cap(pool_, logits_.data(), int64_t{wanted} * config_.vocab,
                      static_cast<float>(blueprint_.logit_soft_cap));
  }
  return wanted;
}

void Transformer::run_layers(const ForwardBatch& batch, KvCache& cache) {
  const int end = batch.end_of(config_.layers);
  int skipped = 0;
  for (int i = batch.first_layer; i < end; ++i) {
    tap(batch, i);
    if (std::ranges::binary_search(batch.skipped_layers, i)) {
      ++skipped;
      continue;
    }
    const TransformerLayer& layer = weights_.layers[static_cast<size_t>(i)];
    attend(layer, i, cache.plane(i - skipped), cache);
    feed_forward(layer);
  }
  tap(batch, end);
}

ForwardOutputs Transformer::forward(const ForwardBatch& batch, KvCache& cache) {
  const ThreadPool::Round round(pool_);
  rows_ = batch.size();
  size_t tapped = 0;
  for (const BatchRow& row : batch.rows) tapped += row.wants_taps ? 1 : 0;
  taps_.resize(tapped * batch.tap_layers.size() * static_cast<size_t>(config_.hidden));
  embed(batch);
  attention_rows_ = paths_.build(batch);
  run_layers(batch, cache);
  const int wanted = head(batch);

  ForwardOutputs out;
  out.vocab = config_.vocab;
  out.tap_width = static_cast<int>(batch.tap_layers.size()) * config_.hidden;
  out.logits = {logits_.data(), static_cast<size_t>(wanted) * static_cast<size_t>(config_.vocab)};
  out.taps = taps_;
  return out;
}

}  // namespace

Expected<std::unique_ptr<Model>> load_transformer(const ModelFile& file, Blueprint blueprint,
                                                  const ModelOptions& options) {
  AERIE_ASSIGN_OR_RETURN(TransformerWeights weights,
                         TransformerWeights::load(file, blueprint, options));
  auto model = std::make_unique<Transformer>(std::move(blueprint), std::move(weights), options);
  AERIE_RETURN_IF_ERROR(model->allocate());
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace aerie
