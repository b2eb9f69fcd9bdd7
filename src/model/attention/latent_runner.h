// What multi-head latent attention (LatentAttention) computes around the attention itself, over the
// rows of a pass: in the absorbed form, in which queries are taken to the latent that the cache
// holds, and never a key or a value of a head is made.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/blueprint.h"
#include "model/model.h"
#include "model/transformer_weights.h"

namespace aerie {

// Cosines and sines of the rows of a pass, [rows][rope / 2].
struct Turns {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// Not thread-safe. Allocates in create() alone.
class LatentRunner {
 public:
  // Null if attention is of another kind.
  static Expected<std::unique_ptr<LatentRunner>> create(const Blueprint& blueprint,
                                                        const ModelOptions& options);

  // Queries [x.rows][heads][head_dim] and keys [x.rows][head_dim] as the cache has them, turned. x
  // must be filled for layer.k, and for layer.latent.query_latent, or layer.q if there is none.
  void project(const TransformerLayer& layer, const kernels::Activations& x, Turns turns,
               float* queries, float* keys);

  // Where attention has to write: [rows][heads][rank].
  float* attended() { return attended_.data(); }
  // What the heads make of that: floats [out.rows][heads * value_dim], the rest of `out` is left to
  // be filled.
  void finish(const TransformerLayer& layer, kernels::Activations& out);

 private:
  LatentRunner(const Blueprint& blueprint, const ModelOptions& options);
  Status allocate(int max_rows);
  const std::vector<float>& heads_queries(const TransformerLayer& layer,
                                          const kernels::Activations& x);
  void make_keys(const TransformerLayer& layer, Turns turns, float* keys);
  void turn(std::vector<float>& x, int heads, Turns turns) const;
  void group_by_head();
  void multiply(const std::vector<Linear>& matrices, const kernels::Activations& x, float* y,
                int64_t stride, int64_t step);

  ModelConfig config_;
  LatentAttention shape_;
  double norm_eps_;
  kernels::RopeStyle rope_style_;
  const kernels::Backend* backend_;
  ThreadPool* pool_;

  // The layer under way.
  int64_t rows_ = 0;
  std::vector<float> query_latent_, queries_, latent_, attended_;
  std::vector<float> query_turns_, key_turns_;  // the parts that turn, by themselves
  std::vector<int32_t> by_head_;                // rows of attended_ in the order of the products
  std::vector<kernels::RowGroup> groups_;       // of which each head has one
  std::vector<kernels::MatmulTarget> products_;
  kernels::Activations query_input_, normed_, plain_, weighted_;
};

}  // namespace aerie
