// The linear attention of a layer, over the rows of a pass: Gated DeltaNet (Yang et al. 2024,
// 2412.06464), as Qwen3-Next and Qwen3.5 have it; Mamba-2 (Dao & Gu 2024, 2405.21060), as Granite 4
// has it; and LFM2's short convolutions.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/forward_batch.h"
#include "kernels/backend.h"
#include "kv/kv_cache.h"
#include "model/attention/state_plan.h"
#include "model/blueprint.h"
#include "model/model.h"
#include "model/transformer_weights.h"

namespace aerie {

// Not thread-safe. Allocates in create() alone, but for rows with more ancestors of earlier passes
// than ever before.
class LinearRunner {
 public:
  // Null if no layer has linear attention.
  static Expected<std::unique_ptr<LinearRunner>> create(const Blueprint& blueprint,
                                                        const ModelOptions& options);

  // Begins a pass over these rows, which must stay where they are until it is over.
  void start(const ForwardBatch& batch);

  // What attention makes of x, all rows of hidden, filled for the products of `layer`: rows for
  // layer.out, which hold until the next call. Brings the layer's states of the rows' sequences up
  // to what is committed, and writes the records of rows.
  const kernels::Activations& run(const LinearAttentionWeights& layer,
                                  const kernels::Activations& x, KvCache& cache, int plane);

 private:
  LinearRunner(const Blueprint& blueprint, const ModelOptions& options);
  Status allocate(int max_rows, int threads);
  void set_inputs(StateStore& states, int plane);
  void trace_inputs(int32_t row, const float* records, const float* states, const float** out);
  void settle_inputs(const kernels::StateSequence& sequence, const float* records, float* states);
  void project(const LinearAttentionWeights& layer, const kernels::Activations& x);
  void gate_input();
  void convolve(const LinearAttentionWeights& layer);
  void normalize_keys();
  void make_gates(const LinearAttentionWeights& layer);
  void make_steps(const LinearAttentionWeights& layer);
  void remember(StateStore& states, int plane);
  void finish(const LinearAttentionWeights& layer);
  void finish_state_space(const LinearAttentionWeights& layer);
  void finish_short_conv();
  const float* settled_input(const kernels::StateSequence& sequence, int back, const float* records,
                             const float* states) const;

  LinearAttention shape_;
  kernels::StateLayout layout_;
  double norm_eps_;
  const kernels::Backend* backend_;
  ThreadPool* pool_;
  std::vector<float> query_norm_, key_norm_;  // [key_dim]
  std::vector<float> ones_;                   // [v_width / key_heads]

  // The pass under way.
  const ForwardBatch* batch_ = nullptr;
  bool planned_ = false;
  StatePlan plan_;
  std::vector<kernels::StateSequence> state_sequences_;

  // The layer under way.
  std::vector<const float*> inputs_;
  std::vector<kernels::ShortConvArgs::Copy> copies_;
  std::vector<float> qkv_, q_, k_, v_, z_, beta_, alpha_, beta_alpha_, decay_, out_;
  kernels::Activations wide_;  // of state spaces, before their norm
  kernels::Activations gated_;
  kernels::StateWorkspace workspace_;
};

}  // namespace aerie
