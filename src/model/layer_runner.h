// Runs layers of a decoder-only transformer over the rows of a pass: what a model and a draft head
// that is made of such layers have in common.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/forward_batch.h"
#include "kernels/backend.h"
#include "kv/kv_cache.h"
#include "model/attention/latent_runner.h"
#include "model/attention/linear_runner.h"
#include "model/attention/window_rows.h"
#include "model/blueprint.h"
#include "model/expert_runner.h"
#include "model/model.h"
#include "model/row_paths.h"
#include "model/transformer_weights.h"

namespace aerie {

// Not thread-safe. Allocates in create() alone.
//
//   runner.start(batch);
//   ... fills runner.stream() ...
//   for (each layer) runner.run(layer, plan, cache, plane);
class LayerRunner {
 public:
  // For layers as the blueprint has them; backend, pool, max_rows and max_positions are the
  // options'. `widest_input`: the longest input of queries, keys and values; 0: hidden.
  static Expected<LayerRunner> create(const Blueprint& blueprint, const ModelOptions& options,
                                      int64_t widest_input = 0);

  // Begins a pass over these rows: their positions, slots and paths. The batch must stay where it
  // is until the pass is over.
  void start(const ForwardBatch& batch);

  // The residual stream [rows][hidden], which the layers change.
  float* stream() { return x_.data(); }
  const float* stream() const { return x_.data(); }

  // One layer: writes the rows' keys and values to their slots of the cache's plane.
  void run(const TransformerLayer& layer, const LayerPlan& plan, KvCache& cache, int plane);

  // The layer in two halves, for one whose queries, keys and values are not of the stream's norm:
  // prepares what it returns, to be filled with `layer.k.weight.k` floats a row;
  kernels::Activations& prepare_input(const TransformerLayer& layer);
  // stream += attention of that input;
  void attend(const TransformerLayer& layer, const LayerPlan& plan, KvCache& cache, int plane);
  // or only leaves the keys and values of that input in the cache, for other passes to see;
  void remember(const TransformerLayer& layer, const LayerPlan& plan, KvCache& cache, int plane);
  // stream += feed-forward of the stream.
  void feed_forward(const TransformerLayer& layer);

  // Experts whose weights were read since the object was made (ForwardOutputs::experts).
  int64_t expert_reads() const { return experts_ ? experts_->reads() : 0; }

  // Says what is to be made of `rows` rows of k floats for the products with `readers`.
  void prepare(kernels::Activations& out, int64_t rows, int64_t k,
               std::initializer_list<const Linear*> readers) const;
  // out = norm of x [out.rows][out.k], rows x_stride apart. Requires prepare().
  void normalize(const Norm& norm, const float* x, int64_t x_stride,
                 kernels::Activations& out) const;

 private:
  // A rotary embedding, and its cosines and sines for the rows of the pass.
  struct Rope {
    Rope(const RopeConfig& config, int max_positions)
        : table(config, max_positions), dimensions(config.dimensions) {}
    RopeTable table;
    int dimensions;
    std::vector<float> cos, sin;  // [rows][pairs]
  };

  LayerRunner(const Blueprint& blueprint, const ModelOptions& options);
  Status allocate(const ModelOptions& options, int64_t widest_input);
  KvHeads kv_of(const LayerPlan& plan) const {
    return {plan.kv_heads > 0 ? plan.kv_heads : blueprint_.config.kv_heads,
            plan.head_dim > 0 ? plan.head_dim : blueprint_.config.head_dim};
  }
  void turn(const Rope& rope, std::vector<float>& x, int heads, int head_dim) const;
  void project(const TransformerLayer& layer, const LayerPlan& plan);
  void store(KvCache& cache, int plane);
  void normalize_heads(const TransformerLayer& layer, KvHeads kv, bool queries = true);
  void limit_heads(KvHeads kv);
  void normalize_values(const TransformerLayer& layer, KvHeads kv);
  void run_feed_forward(const TransformerLayer& layer);
  void run_experts_beside(const TransformerLayer& layer);
  void split_queries();
  void gate_attended();
  void run_experts(const TransformerLayer& layer);
  void run_linear(const TransformerLayer& layer, KvCache& cache, int plane);
  void add_to_stream(const Linear& linear, const kernels::Activations& x, const Norm& post_norm);

  Blueprint blueprint_;
  const kernels::Backend* backend_;
  ThreadPool* pool_;
  std::unique_ptr<ExpertRunner> experts_;  // null: no layer has some
  std::unique_ptr<LinearRunner> linear_;   // the same
  std::unique_ptr<LatentRunner> latent_;   // the same
  std::unique_ptr<WindowRows> windows_;    // null: the configuration names no layer with a window
  RowPaths paths_;
  std::vector<Rope> ropes_;

  // The pass under way.
  int64_t rows_ = 0;
  const ForwardBatch* batch_ = nullptr;
  std::span<const kernels::AttentionRow> attention_rows_;
  std::span<const kernels::AttentionRow> chain_rows_;  // of layers whose rows see their chain
  std::vector<int32_t> slots_;
  std::vector<float> x_, branch_, q_, k_, v_, gate_, up_;
  std::vector<float> gated_queries_;  // [rows][heads][head_dim of queries, head_dim of their gate]
  std::vector<float> ones_;           // Blueprint::value_norm
  std::vector<float> of_experts_;     // Blueprint::experts_beside
  kernels::Activations input_, attended_, gated_, router_input_;
  kernels::AttentionWorkspace attention_;
};

}  // namespace aerie
