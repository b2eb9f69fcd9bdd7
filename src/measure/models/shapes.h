// Published model shapes, to make random models of: speed depends on sizes, not on values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "core/model_config.h"

namespace aerie::measure {

// A model of the Llama family, or of one with its shape.
struct ModelShape {
  std::string_view name;
  int layers;
  int hidden;
  int ffn;
  int heads;
  int kv_heads;
  int head_dim;
  int vocab;
  int context;
  double rope_base;
  bool tied;    // the embedding is the head too
  bool listed;  // among shape_names(); the others are for tests
  // Of a mixture of experts.
  std::string_view architecture = "llama";
  int experts = 0;
  int used_experts = 0;
  int expert_ffn = 0;
  int query_norm = 0;  // widths of the norms of queries and of keys; 0: there are none
  int key_norm = 0;
  int shared_ffn = 0;  // of the expert that every row uses besides
  // Of a model three of whose layers in four have linear attention, and the others a gate; the
  // names are those of Qwen3-Next and Qwen3.5.
  LinearAttention linear = {};
  int rope_dimensions = 0;  // 0: the whole head

  // Of LFM2 and Granite 4, in the place of "three in four": a bit for each layer that has
  // attention.
  uint64_t attention_layers = 0;

  // Of models with latent attention, by the names of DeepSeek-V2 and V3. The latter choose experts
  // by sigmoids with a correction, in groups.
  LatentAttention latent = {};
  int dense_layers = 0;  // those before the first one with experts
  int shared_experts = 0;
  int expert_groups = 1;
  int used_groups = 1;
  double router_scale = 1.0;
  bool sigmoid_router = false;

  bool is_latent() const { return latent.rank > 0; }
  bool has_experts(int layer) const { return experts > 0 && layer >= dense_layers; }
  bool is_hybrid() const { return linear.heads > 0 && linear.kind == LinearKind::kDeltaRule; }
  bool is_lfm2() const { return linear.kind == LinearKind::kShortConv; }
  bool is_state_space() const { return linear.kind == LinearKind::kStateSpace; }
  bool is_linear(int layer) const {
    if (is_lfm2() || is_state_space()) return (attention_layers >> layer & 1) == 0;
    return is_hybrid() && (layer + 1) % 4 != 0;
  }
  // Which has biases everywhere, sinks in attention, windows in every other layer, stretched rotary
  // frequencies and names of its own.
  bool is_gpt_oss() const { return architecture == "gpt-oss"; }
};

// kInvalidArgument with the list for a name that is not known.
Expected<ModelShape> find_shape(std::string_view name);
std::string shape_names();  // "smollm2-135m, smollm2-360m, ..."

}  // namespace aerie::measure
