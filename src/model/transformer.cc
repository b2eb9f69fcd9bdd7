#include "model/transformer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "model/inputs/per_layer_inputs.h"
#include "model/layer_runner.h"
#include "model/transformer_weights.h"

namespace aerie {
namespace {

using kernels::Activations;
using kernels::MatmulTarget;

class Transformer final : public Model {
 public:
  Transformer(Blueprint blueprint, TransformerWeights weights, LayerRunner runner,
              const ModelOptions& options)
      : blueprint_(std::move(blueprint)),
        config_(blueprint_.config),
        weights_(std::move(weights)),
        runner_(std::move(runner)),
        options_(options),
        backend_(*options.backend),
        pool_(*options.pool) {}
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  Status allocate();

  const ModelConfig& config() const override { return config_; }
  int64_t weight_bytes() const override { return weights_.packed_bytes; }
  ModelParts parts() const override { return {&blueprint_, &weights_}; }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override;

 private:
  void embed(const ForwardBatch& batch);
  void run_layers(const ForwardBatch& batch, KvCache& cache);
  void finish_layer(const TransformerLayer& layer, int index, int64_t rows);
  void tap(const ForwardBatch& batch, int layer);
  int gather(const ForwardBatch& batch, bool BatchRow::*wants);
  int head(const ForwardBatch& batch);
  int states(const ForwardBatch& batch);
  int logit_width() const {
    return options_.logit_tokens.empty() ? config_.vocab
                                         : static_cast<int>(options_.logit_tokens.size());
  }

  Blueprint blueprint_;
  const ModelConfig& config_;  // the blueprint's
  TransformerWeights weights_;
  LayerRunner runner_;
  std::unique_ptr<PerLayerInputs> per_layer_;  // null: there are none
  ModelOptions options_;
  const kernels::Backend& backend_;
  ThreadPool& pool_;

  // The pass under way.
  std::vector<float> position_, wanted_, logits_, taps_, embedded_;
  Activations normed_, states_;
};

Status Transformer::allocate() {
  const auto rows = static_cast<size_t>(options_.max_rows);
  const auto logits = static_cast<size_t>(options_.max_logits);
  const auto hidden = static_cast<size_t>(config_.hidden);
  if (blueprint_.learned_positions) position_.resize(hidden);
  wanted_.resize(logits * hidden);
  logits_.resize(logits * static_cast<size_t>(logit_width()));
  taps_.reserve(rows * static_cast<size_t>(options_.max_taps) * hidden);
  AERIE_ASSIGN_OR_RETURN(normed_, Activations::allocate(options_.max_logits, config_.hidden));
  AERIE_ASSIGN_OR_RETURN(states_, Activations::allocate(options_.max_logits, config_.hidden));
  AERIE_ASSIGN_OR_RETURN(per_layer_, PerLayerInputs::create(blueprint_, options_));
  if (per_layer_) embedded_.resize(rows * hidden);
  return {};
}

void Transformer::embed(const ForwardBatch& batch) {
  std::ranges::copy(batch.hidden, runner_.stream());
  const bool begins = batch.first_layer == 0;
  if (!begins && !per_layer_) return;
  // Rows that go on from a later layer have inputs of their tokens there, too.
  float* embedded = begins ? runner_.stream() : embedded_.data();
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    embed_row(weights_, blueprint_, batch.rows[r], position_,
              embedded + r * static_cast<size_t>(config_.hidden));
  }
  if (per_layer_) per_layer_->start(weights_, batch, embedded);
}

// What a layer adds behind its feed-forward, and its scale.
void Transformer::finish_layer(const TransformerLayer& layer, int index, int64_t rows) {
  if (per_layer_) per_layer_->add(layer.per_layer, index, runner_.stream());
  if (layer.output_scale == 1.0f) return;
  float* x = runner_.stream();
  for (int64_t i = 0; i < rows * config_.hidden; ++i) x[i] *= layer.output_scale;
}

void Transformer::tap(const ForwardBatch& batch, int layer) {
  const auto hidden = static_cast<size_t>(config_.hidden);
  const size_t width = batch.tap_layers.size() * hidden;
  for (size_t t = 0; t < batch.tap_layers.size(); ++t) {
    if (batch.tap_layers[t] != layer) continue;
    size_t out = 0;
    for (size_t r = 0; r < batch.rows.size(); ++r) {
      if (!batch.rows[r].wants_taps) continue;
      std::memcpy(taps_.data() + out++ * width + t * hidden, runner_.stream() + r * hidden,
                  hidden * sizeof(float));
    }
  }
}

// The stream of the rows that want something, in wanted_; how many they are.
int Transformer::gather(const ForwardBatch& batch, bool BatchRow::*wants) {
  const auto hidden = static_cast<size_t>(config_.hidden);
  int wanted = 0;
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    if (!(batch.rows[r].*wants)) continue;
    std::memcpy(wanted_.data() + static_cast<size_t>(wanted++) * hidden,
                runner_.stream() + r * hidden, hidden * sizeof(float));
  }
  return wanted;
}

// In floats, whatever the head takes.
int Transformer::states(const ForwardBatch& batch) {
  const int wanted = gather(batch, &BatchRow::wants_state);
  if (wanted == 0) return 0;
  runner_.prepare(states_, wanted, config_.hidden, {});
  runner_.normalize(weights_.output_norm, wanted_.data(), config_.hidden, states_);
  return wanted;
}

int Transformer::head(const ForwardBatch& batch) {
  const int wanted = gather(batch, &BatchRow::wants_logits);
  if (wanted == 0) return 0;
  runner_.prepare(normed_, wanted, config_.hidden, {&weights_.output});
  runner_.normalize(weights_.output_norm, wanted_.data(), config_.hidden, normed_);
  const MatmulTarget output[] = {weights_.output.to(logits_.data())};
  backend_.matmul(pool_, normed_, output);
  if (blueprint_.logit_soft_cap != 0.0) {
    backend_.soft_cap(pool_, logits_.data(), int64_t{wanted} * logit_width(),
                      static_cast<float>(blueprint_.logit_soft_cap));
  }
  if (blueprint_.logit_divisor != 1.0) {
    const auto divisor = static_cast<float>(blueprint_.logit_divisor);
    const size_t end = static_cast<size_t>(wanted) * static_cast<size_t>(logit_width());
    for (size_t i = 0; i < end; ++i) logits_[i] /= divisor;
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
    const auto at = static_cast<size_t>(i);
    LayerPlan plan = blueprint_.layers[at];
    if (plan.kv_source >= 0) {
      const auto before = std::ranges::lower_bound(batch.skipped_layers, plan.kv_source);
      plan.kv_source -= static_cast<int>(before - batch.skipped_layers.begin());
    }
    runner_.run(weights_.layers[at], plan, cache, i - skipped);
    finish_layer(weights_.layers[at], i, batch.size());
  }
  tap(batch, end);
}

ForwardOutputs Transformer::forward(const ForwardBatch& batch, KvCache& cache) {
  const ThreadPool::Round round(pool_);
  size_t tapped = 0;
  for (const BatchRow& row : batch.rows) tapped += row.wants_taps ? 1 : 0;
  taps_.resize(tapped * batch.tap_layers.size() * static_cast<size_t>(config_.hidden));
  const int64_t expert_reads = runner_.expert_reads();
  runner_.start(batch);
  embed(batch);
  run_layers(batch, cache);
  const int wanted = head(batch), stated = states(batch);

  ForwardOutputs out;
  out.vocab = logit_width();
  out.tap_width = static_cast<int>(batch.tap_layers.size()) * config_.hidden;
  out.logits = {logits_.data(), static_cast<size_t>(wanted) * static_cast<size_t>(logit_width())};
  out.taps = taps_;
  out.state_width = config_.hidden;
  out.states = {states_.row(0), static_cast<size_t>(stated) * static_cast<size_t>(config_.hidden)};
  out.experts = runner_.expert_reads() - expert_reads;
  return out;
}

}  // namespace

Expected<std::unique_ptr<Model>> load_transformer(const ModelFile& file, Blueprint blueprint,
                                                  const ModelOptions& options) {
  AERIE_ASSIGN_OR_RETURN(TransformerWeights weights,
                         TransformerWeights::load(file, blueprint, options));
  AERIE_ASSIGN_OR_RETURN(LayerRunner runner, LayerRunner::create(blueprint, options));
  auto model = std::make_unique<Transformer>(std::move(blueprint), std::move(weights),
                                             std::move(runner), options);
  AERIE_RETURN_IF_ERROR(model->allocate());
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace aerie
