#include "model/transformer_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>

namespace aerie {
namespace {

class LayerLoader {
 public:
  LayerLoader(WeightLoader& loader, const Blueprint& blueprint, int index, const LayerShape& shape)
      : loader_(loader),
        blueprint_(blueprint),
        config_(blueprint.config),
        plan_(blueprint.layers[std::min(static_cast<size_t>(index), blueprint.layers.size() - 1)]),
        linear_(index < config_.layers && config_.is_linear(index)),
        shape_(shape),
        prefix_(fmt::format("blk.{}.", index)) {}

  Expected<TransformerLayer> load() {
    TransformerLayer layer;
    if (shape_.attention_norm) {
      AERIE_ASSIGN_OR_RETURN(layer.attention_norm, norm("attn_norm"));
    }
    AERIE_RETURN_IF_ERROR(linear_ ? load_linear_attention(layer.linear) : load_attention(layer));
    AERIE_ASSIGN_OR_RETURN(layer.ffn_norm, norm(blueprint_.ffn_norm));
    if (plan_.experts) AERIE_RETURN_IF_ERROR(load_experts(layer.experts));
    if (!plan_.experts || blueprint_.experts_beside) {
      AERIE_RETURN_IF_ERROR(load_feed_forward(layer));
    }
    if (blueprint_.post_norms) {
      AERIE_ASSIGN_OR_RETURN(layer.attention_post_norm, norm("post_attention_norm"));
      AERIE_ASSIGN_OR_RETURN(layer.ffn_post_norm, norm("post_ffw_norm"));
    }
    if (blueprint_.per_layer_width > 0) AERIE_RETURN_IF_ERROR(load_per_layer(layer.per_layer));
    if (blueprint_.layer_scales && loader_.has(prefix_ + "layer_output_scale.weight")) {
      AERIE_ASSIGN_OR_RETURN(const std::vector<float> scale,
                             loader_.vector(prefix_ + "layer_output_scale.weight", 1));
      layer.output_scale = scale[0];
    }
    // Old converters wrote the rotary frequencies, which the metadata already give.
    loader_.ignore(prefix_ + "attn_rot_embd");
    return layer;
  }

 private:
  Expected<Norm> norm(const char* part) {
    Norm norm;
    const std::string name = prefix_ + part;
    AERIE_ASSIGN_OR_RETURN(norm.weight, loader_.vector(name + ".weight", config_.hidden));
    if (blueprint_.norm == NormKind::kLayer) {
      AERIE_ASSIGN_OR_RETURN(norm.bias, loader_.vector(name + ".bias", config_.hidden));
    }
    return norm;
  }

  // Adds a matrix to those that are loaded together, and loads its bias.
  Status add(Linear& linear, const char* part, int64_t k, int64_t n) {
    return add_slice(linear, part, k, n, 0, n);
  }
  // Outputs [begin, begin + count) of a tensor of n.
  Status add_slice(Linear& linear, const char* part, int64_t k, int64_t n, int64_t begin,
                   int64_t count) {
    const std::string name = prefix_ + part;
    parts_.push_back({&linear.weight, name + ".weight", k, n, begin, count});
    const bool is_input =
        std::string_view(part) != "attn_output" && std::string_view(part).starts_with("attn_");
    const bool must_have_bias =
        blueprint_.biases == Biases::kAll || (blueprint_.biases == Biases::kInput && is_input);
    AERIE_ASSIGN_OR_RETURN(std::vector<float> bias, must_have_bias
                                                        ? loader_.vector(name + ".bias", n)
                                                        : loader_.vector_if_any(name + ".bias", n));
    if (!bias.empty()) linear.bias.assign(bias.begin() + begin, bias.begin() + begin + count);
    return {};
  }
  Status load_added() {
    AERIE_RETURN_IF_ERROR(loader_.load(parts_));
    parts_.clear();
    return {};
  }

  Status load_attention(TransformerLayer& layer) {
    if (config_.latent.rank > 0) return load_latent_attention(layer);
    const int64_t head_dim = plan_.head_dim > 0 ? plan_.head_dim : config_.head_dim;
    const int64_t q = config_.heads * head_dim;
    const int64_t kv = (plan_.kv_heads > 0 ? plan_.kv_heads : config_.kv_heads) * head_dim;
    const bool has_keys = plan_.kv_source < 0;
    const int64_t input = shape_.attention_input > 0 ? shape_.attention_input : config_.hidden;
    if (blueprint_.fused_qkv) {
      assert(!blueprint_.attention_gate);
      const int64_t all = q + 2 * kv;
      AERIE_RETURN_IF_ERROR(add_slice(layer.q, "attn_qkv", input, all, 0, q));
      AERIE_RETURN_IF_ERROR(add_slice(layer.k, "attn_qkv", input, all, q, kv));
      AERIE_RETURN_IF_ERROR(add_slice(layer.v, "attn_qkv", input, all, q + kv, kv));
    } else {
      AERIE_RETURN_IF_ERROR(add(layer.q, "attn_q", input, blueprint_.attention_gate ? 2 * q : q));
      if (has_keys) AERIE_RETURN_IF_ERROR(add(layer.k, "attn_k", input, kv));
      if (has_keys && !plan_.keys_are_values) {
        AERIE_RETURN_IF_ERROR(add(layer.v, "attn_v", input, kv));
      }
    }
    AERIE_RETURN_IF_ERROR(load_added());
    if (blueprint_.query_key_norm != QueryKeyNorm::kNone) {
      const bool whole = blueprint_.query_key_norm == QueryKeyNorm::kRow;
      AERIE_ASSIGN_OR_RETURN(layer.query_norm,
                             loader_.vector(prefix_ + "attn_q_norm.weight", whole ? q : head_dim));
      if (has_keys) {
        AERIE_ASSIGN_OR_RETURN(
            layer.key_norm, loader_.vector(prefix_ + "attn_k_norm.weight", whole ? kv : head_dim));
      }
    }
    // Checkpoints have them in layers that do not use them.
    if (!has_keys) {
      for (const char* part : {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"}) {
        loader_.ignore(prefix_ + part);
      }
    }
    if (blueprint_.attention_sinks) {
      AERIE_ASSIGN_OR_RETURN(layer.sinks,
                             loader_.vector(prefix_ + "attn_sinks.weight", config_.heads));
    }
    AERIE_RETURN_IF_ERROR(add(layer.o, "attn_output", q, config_.hidden));
    return load_added();
  }

  Status load_latent_attention(TransformerLayer& layer) {
    const LatentAttention& shape = config_.latent;
    LatentAttentionWeights& latent = layer.latent;
    const int64_t input = shape_.attention_input > 0 ? shape_.attention_input : config_.hidden;
    const int64_t heads = config_.heads, queries = heads * shape.query_dim();
    if (shape.query_rank > 0) {
      AERIE_RETURN_IF_ERROR(add(latent.query_latent, "attn_q_a", input, shape.query_rank));
    } else {
      AERIE_RETURN_IF_ERROR(add(layer.q, "attn_q", input, queries));
    }
    AERIE_RETURN_IF_ERROR(add(layer.k, "attn_kv_a_mqa", input, config_.head_dim));
    AERIE_RETURN_IF_ERROR(load_added());
    if (shape.query_rank > 0) {
      AERIE_ASSIGN_OR_RETURN(latent.query_norm,
                             loader_.vector(prefix_ + "attn_q_a_norm.weight", shape.query_rank));
      AERIE_RETURN_IF_ERROR(add(layer.q, "attn_q_b", shape.query_rank, queries));
      AERIE_RETURN_IF_ERROR(load_added());
    }
    AERIE_ASSIGN_OR_RETURN(latent.norm,
                           loader_.vector(prefix_ + "attn_kv_a_norm.weight", shape.rank));
    const bool joined = loader_.has(prefix_ + "attn_kv_b.weight");
    AERIE_RETURN_IF_ERROR(joined ? divide_latent(latent) : load_latent_stacks(latent));
    AERIE_RETURN_IF_ERROR(add(layer.o, "attn_output", config_.attended_width(), config_.hidden));
    return load_added();
  }

  Status load_latent_stacks(LatentAttentionWeights& latent) {
    const LatentAttention& shape = config_.latent;
    const int64_t heads = config_.heads;
    AERIE_RETURN_IF_ERROR(add_stack(latent.to_keys, "attn_k_b", shape.plain, shape.rank, heads));
    AERIE_RETURN_IF_ERROR(load_added());
    AERIE_RETURN_IF_ERROR(
        add_stack(latent.to_values, "attn_v_b", shape.rank, shape.value_dim, heads));
    return load_added();
  }

  // Older files have one matrix, in which each head's part of keys is followed by that of values.
  Status divide_latent(LatentAttentionWeights& latent) {
    const LatentAttention& shape = config_.latent;
    const std::string name = prefix_ + "attn_kv_b.weight";
    const int64_t heads = config_.heads, part = int64_t{shape.plain} + shape.value_dim;
    AERIE_ASSIGN_OR_RETURN(std::vector<kernels::PackedMatrix> keys,
                           loader_.turned(name, shape.rank, heads * part, heads, shape.plain));
    latent.to_keys.resize(keys.size());
    latent.to_values.resize(keys.size());
    for (size_t h = 0; h < keys.size(); ++h) {
      latent.to_keys[h].weight = std::move(keys[h]);
      const int64_t begin = static_cast<int64_t>(h) * part + shape.plain;
      parts_.push_back(
          {&latent.to_values[h].weight, name, shape.rank, heads * part, begin, shape.value_dim});
    }
    return load_added();
  }

  Status load_linear_attention(LinearAttentionWeights& layer) {
    switch (config_.linear.kind) {
      case LinearKind::kDeltaRule:
        return load_delta_rule(layer);
      case LinearKind::kStateSpace:
        return load_state_space(layer);
      case LinearKind::kShortConv:
        return load_short_conv(layer);
    }
    return {};
  }

  Status load_convolution(const char* part, LinearAttentionWeights& layer) {
    const auto taps = static_cast<size_t>(config_.linear.taps);
    const auto width = static_cast<size_t>(config_.linear.channels());
    const std::string name = prefix_ + part;
    AERIE_ASSIGN_OR_RETURN(
        const std::vector<float> conv,
        loader_.vector(name + ".weight", config_.linear.taps, config_.linear.channels()));
    layer.conv.resize(conv.size());
    for (size_t i = 0; i < conv.size(); ++i) layer.conv[i % taps * width + i / taps] = conv[i];
    if (config_.linear.kind == LinearKind::kDeltaRule) return {};
    AERIE_ASSIGN_OR_RETURN(layer.conv_bias,
                           loader_.vector_if_any(name + ".bias", config_.linear.channels()));
    return {};
  }

  Status load_state_space(LinearAttentionWeights& layer) {
    const LinearAttention& linear = config_.linear;
    const int64_t hidden = config_.hidden, heads = linear.heads;
    const int64_t values = linear.v_width(), channels = linear.channels();
    const int64_t all = values + channels + heads;
    AERIE_RETURN_IF_ERROR(add_slice(layer.z, "ssm_in", hidden, all, 0, values));
    AERIE_RETURN_IF_ERROR(add_slice(layer.qkv, "ssm_in", hidden, all, values, channels));
    AERIE_RETURN_IF_ERROR(add_slice(layer.alpha, "ssm_in", hidden, all, values + channels, heads));
    AERIE_RETURN_IF_ERROR(load_added());
    AERIE_ASSIGN_OR_RETURN(layer.rate, loader_.vector(prefix_ + "ssm_a", 1, heads));
    AERIE_ASSIGN_OR_RETURN(layer.skip, loader_.vector(prefix_ + "ssm_d", 1, heads));
    AERIE_ASSIGN_OR_RETURN(layer.step, loader_.vector(prefix_ + "ssm_dt.bias", heads));
    AERIE_ASSIGN_OR_RETURN(
        layer.head_norm,
        loader_.vector(prefix_ + "ssm_norm.weight", values / linear.key_heads, linear.key_heads));
    AERIE_RETURN_IF_ERROR(load_convolution("ssm_conv1d", layer));
    AERIE_RETURN_IF_ERROR(add(layer.out, "ssm_out", values, hidden));
    return load_added();
  }

  Status load_short_conv(LinearAttentionWeights& layer) {
    const int64_t hidden = config_.hidden, width = config_.linear.plain;
    constexpr const char* kInput = "shortconv.in_proj";
    AERIE_RETURN_IF_ERROR(add_slice(layer.gate_before, kInput, hidden, 3 * width, 0, width));
    AERIE_RETURN_IF_ERROR(add_slice(layer.z, kInput, hidden, 3 * width, width, width));
    AERIE_RETURN_IF_ERROR(add_slice(layer.qkv, kInput, hidden, 3 * width, 2 * width, width));
    AERIE_RETURN_IF_ERROR(load_added());
    AERIE_RETURN_IF_ERROR(load_convolution("shortconv.conv", layer));
    AERIE_RETURN_IF_ERROR(add(layer.out, "shortconv.out_proj", width, hidden));
    return load_added();
  }

  Status load_delta_rule(LinearAttentionWeights& layer) {
    const LinearAttention& linear = config_.linear;
    const int64_t hidden = config_.hidden, channels = linear.channels(), heads = linear.heads;
    AERIE_RETURN_IF_ERROR(add(layer.qkv, "attn_qkv", hidden, channels));
    AERIE_RETURN_IF_ERROR(add(layer.z, "attn_gate", hidden, linear.v_width()));
    if (linear.tiled) {
      AERIE_RETURN_IF_ERROR(add(layer.beta, "ssm_beta", hidden, heads));
      AERIE_RETURN_IF_ERROR(add(layer.alpha, "ssm_alpha", hidden, heads));
    } else {
      AERIE_RETURN_IF_ERROR(add(layer.beta_alpha, "ssm_ba", hidden, 2 * heads));
    }
    AERIE_RETURN_IF_ERROR(load_added());
    AERIE_ASSIGN_OR_RETURN(layer.rate, loader_.vector(prefix_ + "ssm_a", heads));
    AERIE_ASSIGN_OR_RETURN(layer.step, loader_.vector(prefix_ + "ssm_dt.bias", heads));
    AERIE_ASSIGN_OR_RETURN(layer.head_norm,
                           loader_.vector(prefix_ + "ssm_norm.weight", linear.value_dim));
    AERIE_RETURN_IF_ERROR(load_convolution("ssm_conv1d", layer));
    AERIE_RETURN_IF_ERROR(add(layer.out, "ssm_out", linear.v_width(), hidden));
    return load_added();
  }

  Status load_feed_forward(TransformerLayer& layer) {
    const int64_t hidden = config_.hidden, ffn = plan_.ffn > 0 ? plan_.ffn : config_.ffn;
    if (blueprint_.fused_gate_up) {
      AERIE_RETURN_IF_ERROR(add_slice(layer.gate, "ffn_up", hidden, 2 * ffn, 0, ffn));
      AERIE_RETURN_IF_ERROR(add_slice(layer.up, "ffn_up", hidden, 2 * ffn, ffn, ffn));
    } else {
      if (blueprint_.gated) AERIE_RETURN_IF_ERROR(add(layer.gate, "ffn_gate", hidden, ffn));
      AERIE_RETURN_IF_ERROR(add(layer.up, "ffn_up", hidden, ffn));
    }
    AERIE_RETURN_IF_ERROR(load_added());
    AERIE_RETURN_IF_ERROR(add(layer.down, "ffn_down", ffn, hidden));
    return load_added();
  }

  // Adds a stack of matrices, one for each expert or head, and loads their biases.
  Status add_stack(std::vector<Linear>& stack, const char* part, int64_t k, int64_t n,
                   int64_t count) {
    const std::string name = prefix_ + part, bias = name + ".bias";
    std::vector<float> biases;
    if (blueprint_.biases == Biases::kAll || loader_.has(bias)) {
      AERIE_ASSIGN_OR_RETURN(biases, loader_.vector(bias, n, count));
    }
    stack.resize(static_cast<size_t>(count));
    int64_t begin = 0;
    for (Linear& one : stack) {
      parts_.push_back({&one.weight, name + ".weight", k, n, begin, n, count});
      if (!biases.empty()) one.bias.assign(biases.data() + begin, biases.data() + begin + n);
      begin += n;
    }
    return {};
  }

  Status load_per_layer(PerLayerWeights& layer) {
    const int64_t hidden = config_.hidden, width = blueprint_.per_layer_width;
    AERIE_RETURN_IF_ERROR(add(layer.gate, "inp_gate", hidden, width));
    AERIE_RETURN_IF_ERROR(load_added());
    AERIE_RETURN_IF_ERROR(add(layer.out, "proj", width, hidden));
    AERIE_RETURN_IF_ERROR(load_added());
    AERIE_ASSIGN_OR_RETURN(layer.post_norm, norm("post_norm"));
    return {};
  }

  Status load_norms_of_experts(ExpertWeights& experts) {
    AERIE_ASSIGN_OR_RETURN(experts.router_norm.weight,
                           loader_.vector(prefix_ + "ffn_gate_inp.scale", config_.hidden));
    const float share = 1.0f / std::sqrt(static_cast<float>(config_.hidden));
    for (float& weight : experts.router_norm.weight) weight *= share;
    AERIE_ASSIGN_OR_RETURN(experts.norm, norm("pre_ffw_norm_2"));
    AERIE_ASSIGN_OR_RETURN(experts.beside_post_norm, norm("post_ffw_norm_1"));
    AERIE_ASSIGN_OR_RETURN(experts.post_norm, norm("post_ffw_norm_2"));
    return {};
  }

  // Gates and ups of all experts in one tensor, an expert's gates before its ups.
  Status add_joined(ExpertWeights& experts, int64_t hidden, int64_t ffn) {
    const std::string name = prefix_ + "ffn_gate_up_exps.weight";
    const int64_t count = config_.experts;
    experts.gate.resize(static_cast<size_t>(count));
    experts.up.resize(experts.gate.size());
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      const int64_t begin = 2 * ffn * i;
      parts_.push_back({&experts.gate[at].weight, name, hidden, 2 * ffn, begin, ffn, count});
      parts_.push_back({&experts.up[at].weight, name, hidden, 2 * ffn, begin + ffn, ffn, count});
    }
    return load_added();
  }

  bool are_apart() const { return loader_.has(prefix_ + "ffn_gate.0.weight"); }

  // As files of before mid-2024 have them: a tensor for each expert's matrix.
  Status add_one_by_one(std::vector<Linear>& stack, const char* part, int64_t k, int64_t n) {
    stack.resize(static_cast<size_t>(config_.experts));
    for (size_t i = 0; i < stack.size(); ++i) {
      const std::string name = fmt::format("{}{}.{}.weight", prefix_, part, i);
      parts_.push_back({&stack[i].weight, name, k, n, 0, n});
    }
    return {};
  }

  Status add_gates_and_ups(ExpertWeights& experts, int64_t hidden, int64_t ffn) {
    const int64_t count = config_.experts;
    if (blueprint_.experts_beside && loader_.has(prefix_ + "ffn_gate_up_exps.weight")) {
      return add_joined(experts, hidden, ffn);
    }
    if (are_apart()) {
      AERIE_RETURN_IF_ERROR(add_one_by_one(experts.gate, "ffn_gate", hidden, ffn));
      AERIE_RETURN_IF_ERROR(add_one_by_one(experts.up, "ffn_up", hidden, ffn));
      return load_added();
    }
    AERIE_RETURN_IF_ERROR(add_stack(experts.gate, "ffn_gate_exps", hidden, ffn, count));
    AERIE_RETURN_IF_ERROR(add_stack(experts.up, "ffn_up_exps", hidden, ffn, count));
    return load_added();
  }

  Status load_experts(ExpertWeights& experts) {
    const int64_t hidden = config_.hidden, ffn = config_.expert_ffn, shared = config_.shared_ffn;
    AERIE_RETURN_IF_ERROR(add(experts.router, "ffn_gate_inp", hidden, config_.experts));
    parts_.back().has_factor = !blueprint_.experts_beside;
    AERIE_RETURN_IF_ERROR(load_added());
    if (blueprint_.experts_beside) AERIE_RETURN_IF_ERROR(load_norms_of_experts(experts));
    if (blueprint_.router.corrected) {
      AERIE_ASSIGN_OR_RETURN(experts.corrections,
                             loader_.vector(prefix_ + "exp_probs_b.bias", config_.experts));
    }
    AERIE_RETURN_IF_ERROR(add_gates_and_ups(experts, hidden, ffn));
    AERIE_RETURN_IF_ERROR(
        are_apart() ? add_one_by_one(experts.down, "ffn_down", ffn, hidden)
                    : add_stack(experts.down, "ffn_down_exps", ffn, hidden, config_.experts));
    AERIE_RETURN_IF_ERROR(load_added());
    if (shared == 0) return {};
    AERIE_RETURN_IF_ERROR(add(experts.shared_gate, "ffn_gate_shexp", hidden, shared));
    AERIE_RETURN_IF_ERROR(add(experts.shared_up, "ffn_up_shexp", hidden, shared));
    if (blueprint_.shared_expert_gate) {
      AERIE_RETURN_IF_ERROR(add(experts.shared_router, "ffn_gate_inp_shexp", hidden, 1));
    }
    AERIE_RETURN_IF_ERROR(load_added());
    AERIE_RETURN_IF_ERROR(add(experts.shared_down, "ffn_down_shexp", shared, hidden));
    return load_added();
  }

  WeightLoader& loader_;
  const Blueprint& blueprint_;
  const ModelConfig& config_;
  LayerPlan plan_;
  bool linear_;
  LayerShape shape_;
  std::string prefix_;
  std::vector<MatrixPart> parts_;
};

// The LM head, or its rows of options.logit_tokens.
Status load_output(WeightLoader& loader, const ModelConfig& config, const ModelOptions& options,
                   Linear& output) {
  const char* head = loader.has("output.weight") ? "output.weight" : "token_embd.weight";
  AERIE_ASSIGN_OR_RETURN(output.bias, loader.vector_if_any("output.bias", config.vocab));
  const std::vector<int32_t>& tokens = options.logit_tokens;
  if (tokens.empty()) {
    const MatrixPart whole = {&output.weight, head, config.hidden, config.vocab, 0, config.vocab};
    return loader.load({&whole, 1});
  }
  AERIE_ASSIGN_OR_RETURN(output.weight, loader.rows(head, config.hidden, config.vocab, tokens));
  if (output.bias.empty()) return {};
  std::vector<float> bias;
  for (const int32_t token : tokens) bias.push_back(output.bias[static_cast<size_t>(token)]);
  output.bias = std::move(bias);
  return {};
}

}  // namespace

void prepare_activations(const kernels::Backend& backend, int64_t rows, int64_t k,
                         std::initializer_list<const Linear*> readers, kernels::Activations& out) {
  out.k = k;
  out.rows = rows;
  out.groups = {};
  out.has_int8 = out.has_ordered = false;
  for (const Linear* reader : readers) {
    if (reader->weight.n == 0) continue;
    (backend.wants_int8(reader->weight.dtype) ? out.has_int8 : out.has_ordered) = true;
  }
}

Expected<TransformerLayer> load_layer(WeightLoader& loader, const Blueprint& blueprint, int index,
                                      const LayerShape& shape) {
  return LayerLoader(loader, blueprint, index, shape).load();
}

Status load_per_layer_inputs(WeightLoader& loader, const Blueprint& blueprint,
                             TransformerWeights& w) {
  const ModelConfig& config = blueprint.config;
  const int64_t all = int64_t{config.layers} * blueprint.per_layer_width;
  AERIE_ASSIGN_OR_RETURN(w.per_layer_embedding,
                         loader.table("per_layer_token_embd.weight", all, config.vocab));
  const MatrixPart project = {
      &w.per_layer_project.weight, "per_layer_model_proj.weight", config.hidden, all, 0, all};
  AERIE_RETURN_IF_ERROR(loader.load({&project, 1}));
  AERIE_ASSIGN_OR_RETURN(w.per_layer_norm,
                         loader.vector("per_layer_proj_norm.weight", blueprint.per_layer_width));
  return {};
}

// Marks as used what draft heads in the file have of their own.
void ignore_predictors(WeightLoader& loader, const Blueprint& blueprint) {
  for (int i = 0; i < blueprint.predictors; ++i) {
    const std::string prefix = fmt::format("blk.{}.", blueprint.config.layers + i);
    for (const TensorInfo& tensor : loader.file().tensors()) {
      if (tensor.name.starts_with(prefix)) loader.ignore(std::string(tensor.name));
    }
  }
}

void ignore_rope_tensors(WeightLoader& loader, const Blueprint& blueprint) {
  for (const RopeConfig& rope : blueprint.ropes) {
    if (rope.scaling == RopeScaling::kFactors) loader.ignore("rope_freqs.weight");
    if (rope.scaling == RopeScaling::kLongRope) {
      loader.ignore("rope_factors_short.weight");
      loader.ignore("rope_factors_long.weight");
    }
  }
}

bool is_of_layers(std::string_view name, const LayerRange& layers) {
  constexpr std::string_view kLayer = "blk.";
  if (name.starts_with(kLayer)) {
    int layer = 0;
    const char* const begin = name.data() + kLayer.size();
    std::from_chars(begin, name.data() + name.size(), layer);
    return layers.has(layer);
  }
  // Whatever Blueprint::output_norm is.
  const bool is_behind = name.starts_with("output") || name.starts_with("token_embd_norm");
  return layers.end == LayerRange::kAll || !is_behind;
}

// What comes behind the layers.
Status load_end(WeightLoader& loader, const Blueprint& blueprint, const ModelOptions& options,
                TransformerWeights& w) {
  const ModelConfig& config = blueprint.config;
  const std::string norm = blueprint.output_norm;
  AERIE_ASSIGN_OR_RETURN(w.output_norm.weight, loader.vector(norm + ".weight", config.hidden));
  if (blueprint.norm == NormKind::kLayer) {
    AERIE_ASSIGN_OR_RETURN(w.output_norm.bias, loader.vector(norm + ".bias", config.hidden));
  }
  return load_output(loader, config, options, w.output);
}

Expected<TransformerWeights> TransformerWeights::load_ends(const ModelFile& file,
                                                           const Blueprint& blueprint,
                                                           const ModelOptions& options) {
  ModelOptions own = options;
  own.weight_cache.clear();
  WeightLoader loader(file, own);
  TransformerWeights w;
  AERIE_ASSIGN_OR_RETURN(w.embedding, loader.table("token_embd.weight", blueprint.config.hidden,
                                                   blueprint.config.vocab));
  AERIE_RETURN_IF_ERROR(load_end(loader, blueprint, own, w));
  w.packed_bytes = loader.packed_bytes();
  return w;
}

Expected<TransformerWeights> TransformerWeights::load(const ModelFile& file,
                                                      const Blueprint& blueprint,
                                                      const ModelOptions& options) {
  const ModelConfig& config = blueprint.config;
  const LayerRange& layers = options.layers;
  ModelOptions own = options;
  if (layers.is_part()) own.weight_cache.clear();  // which has whole models
  WeightLoader loader(file, own);
  TransformerWeights w;
  AERIE_ASSIGN_OR_RETURN(w.embedding,
                         loader.table("token_embd.weight", config.hidden, config.vocab));
  if (blueprint.learned_positions) {
    AERIE_ASSIGN_OR_RETURN(w.positions,
                           loader.table("position_embd.weight", config.hidden, config.context));
  }
  if (blueprint.per_layer_width > 0) {
    AERIE_RETURN_IF_ERROR(load_per_layer_inputs(loader, blueprint, w));
  }
  w.layers.resize(static_cast<size_t>(config.layers));
  for (int i = layers.first; i < layers.end_of(config.layers); ++i) {
    AERIE_ASSIGN_OR_RETURN(w.layers[static_cast<size_t>(i)], load_layer(loader, blueprint, i));
  }
  if (layers.end == LayerRange::kAll) {
    AERIE_RETURN_IF_ERROR(load_end(loader, blueprint, own, w));
  }
  for (const TensorInfo& tensor : file.tensors()) {
    if (!is_of_layers(tensor.name, layers)) loader.ignore(std::string(tensor.name));
  }
  ignore_rope_tensors(loader, blueprint);
  ignore_predictors(loader, blueprint);
  AERIE_RETURN_IF_ERROR(loader.check_all_used(config.family));
  loader.save_packed();
  w.packed_bytes = loader.packed_bytes();
  return w;
}

void embed_token(const TransformerWeights& weights, int32_t token, float* out) {
  const TensorView& table = weights.embedding.view;
  dequantize(table.dtype, table.row(token), table.shape[0], out);
}

void embed_token(const TransformerWeights& weights, const Blueprint& blueprint, int32_t token,
                 float* out) {
  embed_token(weights, token, out);
  if (blueprint.embedding_scale == 1.0) return;
  const auto scale = static_cast<float>(blueprint.embedding_scale);
  for (int i = 0; i < blueprint.config.hidden; ++i) out[i] *= scale;
}

void embed_row(const TransformerWeights& weights, const Blueprint& blueprint, const BatchRow& row,
               std::span<float> scratch, float* out) {
  embed_token(weights, blueprint, row.token, out);
  if (!blueprint.learned_positions) return;
  const TensorView& table = weights.positions.view;
  dequantize(table.dtype, table.row(row.position), blueprint.config.hidden, scratch.data());
  for (size_t i = 0; i < scratch.size(); ++i) out[i] += scratch[i];
}

}  // namespace aerie
