// The weights of a decoder-only transformer, by GGUF's names.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "core/forward_batch.h"
#include "model/blueprint.h"
#include "model/weights.h"

namespace aerie {

struct Norm {
  std::vector<float> weight, bias;  // no bias: empty
};

struct Linear {
  kernels::PackedMatrix weight;
  std::vector<float> bias;  // empty: none

  // For Backend::matmul: y = or += the product, with rows as long as the matrix has outputs.
  kernels::MatmulTarget to(float* y, bool accumulate = false) const {
    return {&weight, y, weight.n, accumulate, bias.empty() ? nullptr : bias.data()};
  }
};

// Says what is to be made of `rows` rows of k floats, of one group, for the products with
// `readers`; those without outputs are not there.
void prepare_activations(const kernels::Backend& backend, int64_t rows, int64_t k,
                         std::initializer_list<const Linear*> readers, kernels::Activations& out);

// The feed-forwards of a layer with experts, each in the place of its number.
struct ExpertWeights {
  Linear router;
  std::vector<Linear> gate, up, down;
  std::vector<float> corrections;  // ExpertRouter::corrected; else empty
  // What every row uses besides, and the gate of that: one output. Without data if there is none.
  Linear shared_gate, shared_up, shared_down, shared_router;
  // Blueprint::experts_beside: what a row is normed by to choose, and for the experts; the norms
  // behind the feed-forward and behind the experts.
  Norm router_norm, norm, beside_post_norm, post_norm;
};

// What a layer adds to the stream last (Blueprint::per_layer_width).
struct PerLayerWeights {
  Linear gate, out;
  Norm post_norm;
};

// Of a layer with linear attention. Without data in one without.
struct LinearAttentionWeights {
  // The convolution's input, the gate behind, what goes back to the stream. In short convolutions a
  // gate before, too, which the input is multiplied by.
  Linear qkv, z, out, gate_before;
  // What beta and the decay are made of: a product each, or one in which those of a key head's
  // heads lie together, first all for beta. In state spaces alpha alone.
  Linear beta, alpha, beta_alpha;
  std::vector<float> conv;       // [taps][channels]
  std::vector<float> conv_bias;  // [channels]; empty: none
  std::vector<float> rate;       // [heads]: the decay is e^(rate softplus(alpha + step))
  std::vector<float> step;       // [heads]
  std::vector<float> skip;  // [heads]: of a value that is added to what the head gives; or empty
  std::vector<float> head_norm;  // [value_dim], of all heads alike; in state spaces [v_width]

  bool any() const { return qkv.weight.n > 0; }
};

// Of a layer with latent attention (LatentAttention), beside its q, which is of the queries' latent
// if they have one, its k, [rank + rope] outputs, and its o. Without data in one without.
struct LatentAttentionWeights {
  Linear query_latent;
  std::vector<float> query_norm;  // of that; [query_rank] or empty
  std::vector<float> norm;        // of the latent; [rank]
  std::vector<Linear> to_keys;    // [head]: from the plain part of queries to the latent
  std::vector<Linear> to_values;  // [head]: from the latent to what the head gives

  bool any() const { return !norm.empty(); }
};

struct TransformerLayer {
  Norm attention_norm;
  Linear q, k, v, o;
  LatentAttentionWeights latent;
  LinearAttentionWeights linear;            // of a layer that has no other attention
  std::vector<float> query_norm, key_norm;  // of a head
  std::vector<float> sinks;                 // [heads]; empty: there are none
  Norm attention_post_norm;
  Norm ffn_norm;
  // No gate if the feed-forward is not gated; none in a layer with experts, but for
  // Blueprint::experts_beside.
  Linear gate, up, down;
  ExpertWeights experts;  // of such a layer
  Norm ffn_post_norm;
  PerLayerWeights per_layer;
  float output_scale = 1.0f;  // Blueprint::layer_scales
};

// Where a layer is not quite the blueprint's.
struct LayerShape {
  int64_t attention_input = 0;  // of queries, keys and values; 0: hidden
  bool attention_norm = true;
};

// Layer `index` of a file, by GGUF's names.
Expected<TransformerLayer> load_layer(WeightLoader& loader, const Blueprint& blueprint, int index,
                                      const LayerShape& shape = {});

// Whether a tensor, by GGUF's name, is of one of these layers, or of none and loaded with them:
// what is behind the layers goes with the last one.
bool is_of_layers(std::string_view name, const LayerRange& layers);

// Marks as used what a file has of rotary embedding, which is read with the blueprint.
void ignore_rope_tensors(WeightLoader& loader, const Blueprint& blueprint);

struct TransformerWeights {
  TensorData embedding;  // [hidden, vocab], as the file has it
  TensorData positions;  // [hidden, context]; only with learned positions
  // Only with Blueprint::per_layer_width: [layers * that, vocab]; from the embedding to as many
  // values; and the norm of those of each layer.
  TensorData per_layer_embedding;
  Linear per_layer_project;
  std::vector<float> per_layer_norm;
  std::vector<TransformerLayer> layers;
  Norm output_norm;
  Linear output;
  int64_t packed_bytes = 0;

  // Refuses a file that lacks a tensor, has one of another shape, or one that has no place. Layers
  // that the options leave out are empty.
  static Expected<TransformerWeights> load(const ModelFile& file, const Blueprint& blueprint,
                                           const ModelOptions& options);
  // What draft heads share with a model (ModelParts) and no more: the embedding, the last norm and
  // the output.
  static Expected<TransformerWeights> load_ends(const ModelFile& file, const Blueprint& blueprint,
                                                const ModelOptions& options);
};

// The token's row of the embedding as the table has it: no scale, no position. [hidden]
void embed_token(const TransformerWeights& weights, int32_t token, float* out);
// The same with the scale: what the first layer reads, but for positions.
void embed_token(const TransformerWeights& weights, const Blueprint& blueprint, int32_t token,
                 float* out);
// What the first layer reads of a row. `scratch` [hidden] where positions are learned.
void embed_row(const TransformerWeights& weights, const Blueprint& blueprint, const BatchRow& row,
               std::span<float> scratch, float* out);

}  // namespace aerie
