// Values of each token and layer that are the gate of what the layer adds to the stream last
// (Gemma Team 2025 and 2026: per-layer embeddings).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "core/forward_batch.h"
#include "kernels/backend.h"
#include "model/blueprint.h"
#include "model/model.h"
#include "model/transformer_weights.h"

namespace aerie {

// Not thread-safe. Allocates in create() alone. `weights` must outlive it.
class PerLayerInputs {
 public:
  // Null if the model has none.
  static Expected<std::unique_ptr<PerLayerInputs>> create(const Blueprint& blueprint,
                                                          const ModelOptions& options);

  // The values of these rows for all layers, of their tokens and of their embeddings as the first
  // layer gets them, [rows][hidden].
  void start(const TransformerWeights& weights, const ForwardBatch& batch, const float* embedded);
  // stream += what layer `index` adds last; stream [rows][hidden].
  void add(const PerLayerWeights& layer, int index, float* stream);

 private:
  PerLayerInputs(const Blueprint& blueprint, const ModelOptions& options);

  int hidden_, width_, layers_;
  double norm_eps_;
  kernels::Activation activation_;
  const kernels::Backend* backend_;
  ThreadPool* pool_;
  int64_t rows_ = 0;           // of the pass
  std::vector<float> inputs_;  // [rows][layers][width]
  std::vector<float> token_;   // [layers][width], of a row
  std::vector<float> of_layer_, gate_, branch_;
  kernels::Activations input_, gated_;
};

}  // namespace aerie
