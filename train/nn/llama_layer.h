// A layer of a Llama with trained weights, in the parts that draft heads put together in their own
// ways.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "train/nn/documents.h"
#include "train/nn/ops.h"
#include "train/nn/parameters.h"

namespace aerie::train {

struct LayerShape {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate = 0;
  int64_t attention_input = 0;  // of queries, keys and values; 0: hidden
  bool head_norms = false;  // each head of queries and keys is normed before it turns, as Qwen3's
  double norm_eps = 1e-5;
};

// Queries, keys and values of rows, turned: [rows, heads or kv heads, head_dim].
struct Projections {
  at::Tensor q, k, v;
};

// [outputs, inputs] from a normal distribution of deviation 1 / sqrt(inputs), drawn on the CPU so
// that it is the same for every device.
at::Tensor random_matrix(int64_t outputs, int64_t inputs, at::Generator& generator);

// Weights are leaves of the Parameters that they were added to, named
// PREFIX.self_attn.q_proj.weight and so on, as Llama's are.
struct LlamaLayer {
  LayerShape shape;
  at::Tensor q, k, v, o, gate, up, down;
  at::Tensor input_norm, post_attention_norm;  // input_norm: undefined if the layer has none
  at::Tensor query_norm, key_norm;             // undefined without head_norms

  // At random; norms are ones, and what is added to the stream begins near nothing.
  static LlamaLayer create(Parameters& parameters, const std::string& prefix,
                           const LayerShape& shape, bool has_input_norm, const at::Device& device,
                           at::Generator& generator);

  // Of x [rows, attention_input], which no norm is applied to here.
  Projections project(const at::Tensor& x, const Rotary& rotary) const;
  // Its keys alone, [rows, kv heads, head_dim], and its values.
  at::Tensor keys(const at::Tensor& x, const Rotary& rotary) const;
  at::Tensor values(const at::Tensor& x) const;
  // o_proj of what attend() gives.
  at::Tensor output(const at::Tensor& attended) const { return at::linear(attended, o); }
  // h + mlp(norm(h)).
  at::Tensor feed_forward(const at::Tensor& h) const;

  // The whole layer as Llama has it; requires input_norm.
  at::Tensor forward(const at::Tensor& x, const Rotary& rotary, const Documents& documents) const;
};

}  // namespace aerie::train
