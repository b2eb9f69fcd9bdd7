// What distinguishes one decoder-only transformer from another, as data. A family fills it from a
// file's metadata; Transformer computes it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model_config.h"
#include "kernels/op_kinds.h"
#include "model/rope_table.h"

namespace aerie {

enum class NormKind : uint8_t {
  kRms,    // Zhang & Sennrich 2019, 1910.07467
  kLayer,  // Ba et al. 2016, 1607.06450; with a bias
};

struct LayerPlan {
  static constexpr int kNoRope = -1;
  bool experts = false;  // instead of one feed-forward (ModelConfig::experts)
  int window = 0;  // of attention, in positions, the row's own counted; 0: all that came before
  int rope = 0;    // index of Blueprint::ropes, or kNoRope
};

// Of queries and keys, before they turn.
enum class QueryKeyNorm : uint8_t {
  kNone,
  kHead,  // of each head by itself, all with the same weights
  kRow,   // of all heads of a row together
};

// Which vectors of biases a file must have. Of the others a layer has those that the file has.
enum class Biases : uint8_t {
  kAny,    // none must be there
  kInput,  // of queries, keys and values
  kAll,
};

struct Blueprint {
  ModelConfig config;
  std::vector<LayerPlan> layers;  // config.layers of them
  std::vector<RopeConfig> ropes;
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalves;

  NormKind norm = NormKind::kRms;
  double norm_eps = 1e-5;
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  // The matrix of queries gives for each head, behind its queries, as many values more; what the
  // head's attention gives is multiplied by their sigmoid.
  bool attention_gate = false;
  // Each head has a score of its own that takes a share of softmax (kernels::AttentionArgs::sinks).
  bool attention_sinks = false;
  // A norm of what attention and feed-forward give, too, before it is added to the residual stream.
  bool post_norms = false;

  kernels::Activation activation = kernels::Activation::kSilu;
  bool gated = true;  // feed-forward: down(activation(gate x) * up x), or down(activation(up x))

  // Experts (Shazeer et al. 2017, 1701.06538) are chosen by a router, a matrix with an output for
  // each. What weighs one: its share of softmax over all (Fedus et al. 2021, 2101.03961), or over
  // the chosen (Jiang et al. 2024, 2401.04088), which is the first divided by the sum of the
  // chosen. Beside them a feed-forward that every row uses has a gate: the sigmoid of a product
  // with the row.
  bool normalized_experts = false;

  Biases biases = Biases::kAny;

  // Layers of the file behind the model's, which predict further tokens: a draft head's, not its.
  int predictors = 0;
  // Of the file: one tensor for queries, keys and values; one for gate and up.
  bool fused_qkv = false;
  bool fused_gate_up = false;
  const char* ffn_norm = "ffn_norm";  // what the norm before the feed-forward is called

  bool learned_positions = false;   // added to the embedding, from a table of config.context rows
  double embedding_scale = 1.0;     // on the token's embedding
  double residual_scale = 1.0;      // on what attention and feed-forward add to the residual stream
  double attention_scale = 0.0;     // on q k; 0: 1 / sqrt(head_dim)
  double attention_soft_cap = 0.0;  // see kernels::AttentionArgs; 0: none
  double logit_soft_cap = 0.0;
  double logit_divisor = 1.0;
};

}  // namespace aerie
