#include "train/methods/head_config.h"

#include <nlohmann/json.hpp>

namespace aerie::train {

LayerShape head_layer_shape(const Target& target, int64_t intermediate) {
  const ModelConfig& config = target.config();
  LayerShape shape;
  shape.hidden = config.hidden;
  shape.heads = config.heads;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  shape.intermediate = intermediate == 0 ? config.ffn : intermediate;
  shape.norm_eps = target.norm_eps();
  return shape;
}

Json head_layer_config(const Target& target, const LayerShape& shape, int context) {
  return {
      {"hidden_size", shape.hidden},        {"intermediate_size", shape.intermediate},
      {"num_attention_heads", shape.heads}, {"num_key_value_heads", shape.kv_heads},
      {"head_dim", shape.head_dim},         {"hidden_act", "silu"},
      {"max_position_embeddings", context}, {"rms_norm_eps", shape.norm_eps},
      {"rope_theta", target.rope_base()},   {"tie_word_embeddings", false},
      {"torch_dtype", "float32"},           {"vocab_size", target.config().vocab},
  };
}

}  // namespace aerie::train
