#include "train/nn/llama_layer.h"

#include <cmath>

namespace aerie::train {

at::Tensor random_matrix(int64_t outputs, int64_t inputs, at::Generator& generator) {
  return at::randn({outputs, inputs}, generator) * (1.0 / std::sqrt(static_cast<double>(inputs)));
}

LlamaLayer LlamaLayer::create(Parameters& parameters, const std::string& prefix,
                              const LayerShape& shape, bool has_input_norm,
                              const at::Device& device, at::Generator& generator) {
  constexpr double kSmall = 0.1;  // of what is added to the stream
  LlamaLayer layer;
  layer.shape = shape;
  const int64_t input = shape.attention_input == 0 ? shape.hidden : shape.attention_input;
  const int64_t q_width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
  const auto matrix = [&](const char* name, int64_t outputs, int64_t inputs, double scale = 1.0) {
    return parameters.add(prefix + name,
                          (random_matrix(outputs, inputs, generator) * scale).to(device));
  };
  if (has_input_norm) {
    layer.input_norm =
        parameters.add(prefix + ".input_layernorm.weight", at::ones({shape.hidden}, device));
  }
  layer.q = matrix(".self_attn.q_proj.weight", q_width, input);
  layer.k = matrix(".self_attn.k_proj.weight", kv_width, input);
  layer.v = matrix(".self_attn.v_proj.weight", kv_width, input);
  if (shape.head_norms) {
    layer.query_norm =
        parameters.add(prefix + ".self_attn.q_norm.weight", at::ones({shape.head_dim}, device));
    layer.key_norm =
        parameters.add(prefix + ".self_attn.k_norm.weight", at::ones({shape.head_dim}, device));
  }
  layer.o = matrix(".self_attn.o_proj.weight", shape.hidden, q_width, kSmall);
  layer.post_attention_norm =
      parameters.add(prefix + ".post_attention_layernorm.weight", at::ones({shape.hidden}, device));
  layer.gate = matrix(".mlp.gate_proj.weight", shape.intermediate, shape.hidden);
  layer.up = matrix(".mlp.up_proj.weight", shape.intermediate, shape.hidden);
  layer.down = matrix(".mlp.down_proj.weight", shape.hidden, shape.intermediate, kSmall);
  return layer;
}

Projections LlamaLayer::project(const at::Tensor& x, const Rotary& rotary) const {
  at::Tensor queries = at::linear(x, q).view({x.size(0), shape.heads, shape.head_dim});
  if (shape.head_norms) queries = rms_norm(queries, query_norm, shape.norm_eps);
  return {rotate(queries, rotary), keys(x, rotary), values(x)};
}

at::Tensor LlamaLayer::keys(const at::Tensor& x, const Rotary& rotary) const {
  at::Tensor keys = at::linear(x, k).view({x.size(0), shape.kv_heads, shape.head_dim});
  if (shape.head_norms) keys = rms_norm(keys, key_norm, shape.norm_eps);
  return rotate(keys, rotary);
}

at::Tensor LlamaLayer::values(const at::Tensor& x) const {
  return at::linear(x, v).view({x.size(0), shape.kv_heads, shape.head_dim});
}

at::Tensor LlamaLayer::feed_forward(const at::Tensor& h) const {
  const at::Tensor x = rms_norm(h, post_attention_norm, shape.norm_eps);
  return h + at::linear(at::silu(at::linear(x, gate)) * at::linear(x, up), down);
}

at::Tensor LlamaLayer::forward(const at::Tensor& x, const Rotary& rotary,
                               const Documents& documents) const {
  const Projections p = project(rms_norm(x, input_norm, shape.norm_eps), rotary);
  return feed_forward(x + output(attend(p.q, p.k, p.v, documents)));
}

}  // namespace aerie::train
