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
  // Where layers differ; 0: as the configuration says.
  int head_dim = 0;
  int kv_heads = 0;
  int ffn = 0;
  // The layer before it whose keys and values attention reads; -1: its own.
  int kv_source = -1;
  bool keys_are_values = false;  // a value is the key before it is normed and turns
  // A row of a chain sees all of the chain's rows in the pass, those behind it too: attention
  // without an order within a block.
  bool sees_chain = false;
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

// How a row chooses experts and weighs them (Shazeer et al. 2017, 1701.06538), by the logits that a
// matrix gives it, one for each.
struct ExpertRouter {
  enum class Score : uint8_t {
    kSoftmax,  // the share over all (Fedus et al. 2021, 2101.03961)
    kSigmoid,  // each by itself (DeepSeek-AI 2024, 2412.19437)
  };
  Score score = Score::kSoftmax;
  // An expert's weight is its score divided by the sum of the chosen ones': with softmax, the share
  // over the chosen (Jiang et al. 2024, 2401.04088).
  bool normalized = false;
  double scale = 1.0;  // on weights
  // Experts side by side are in groups, of which the best `used_groups` are looked into; 1: all are
  // one. A group is as good as its best expert, or as the sum of its best two.
  int groups = 1;
  int used_groups = 1;
  bool by_best_two = false;
  // A number for each expert is added to its score where experts and groups are compared, not where
  // they are weighed.
  bool corrected = false;
};

struct Blueprint {
  ModelConfig config;
  std::vector<LayerPlan> layers;  // config.layers of them
  std::vector<RopeConfig> ropes;
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalves;

  NormKind norm = NormKind::kRms;
  double norm_eps = 1e-5;
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  // Queries, keys and values are held between - this and this, before they turn; 0: they are not.
  double query_key_value_limit = 0.0;
  // Values, too, are normed by head, without weights.
  bool value_norm = false;
  // The matrix of queries gives for each head, behind its queries, as many values more; what the
  // head's attention gives is multiplied by their sigmoid.
  bool attention_gate = false;
  // Each head has a score of its own that takes a share of softmax (kernels::AttentionArgs::sinks).
  bool attention_sinks = false;
  // A norm of what attention and feed-forward give, too, before it is added to the residual stream.
  bool post_norms = false;

  kernels::Activation activation = kernels::Activation::kSilu;
  bool gated = true;  // feed-forward: down(activation(gate x) * up x), or down(activation(up x))

  ExpertRouter router;
  // Beside the experts, the feed-forward that every row uses is multiplied by the sigmoid of a
  // product with the row.
  bool shared_expert_gate = true;

  // A layer with experts has its feed-forward besides, and norms before and behind either; a row
  // chooses by its norm times a vector. Factors of experts are those of their last matrices.
  bool experts_beside = false;

  Biases biases = Biases::kAny;

  // Of each token and layer so many values, of a table and of the token's embedding, are the gate
  // of what the layer adds to the stream last (model/inputs/per_layer_inputs.h); 0: there are none.
  int per_layer_width = 0;
  // What leaves a layer is multiplied by a number of its own, where the file has one.
  bool layer_scales = false;

  // Layers of the file behind the model's, which predict further tokens: a draft head's, not its.
  int predictors = 0;
  // What is usual with them: a step gets what is behind the norm of the one before it; the row of
  // position 0 has zeros for its embedding.
  bool predictors_hand_normed = true;
  bool predictors_zero_first = false;
  // Of the file: one tensor for queries, keys and values; one for gate and up.
  bool fused_qkv = false;
  bool fused_gate_up = false;
  const char* ffn_norm = "ffn_norm";        // what the norm before the feed-forward is called
  const char* output_norm = "output_norm";  // the one behind all layers

  bool learned_positions = false;   // added to the embedding, from a table of config.context rows
  double embedding_scale = 1.0;     // on the token's embedding
  double residual_scale = 1.0;      // on what attention and feed-forward add to the residual stream
  double attention_scale = 0.0;     // on q k; 0: 1 / sqrt(head_dim)
  double attention_soft_cap = 0.0;  // see kernels::AttentionArgs; 0: none
  double logit_soft_cap = 0.0;
  double logit_divisor = 1.0;
};

}  // namespace aerie
