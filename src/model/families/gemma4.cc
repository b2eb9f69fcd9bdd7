// Gemma 4, text. Layers with a window and layers without differ in heads; the last ones read the
// keys and values of layers before them; values are normed, or are the keys; a row's token has a
// gate for each layer; experts, where there are some, stand beside the feed-forward. Google
// DeepMind 2026.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

constexpr const char* kShared = "attention.shared_kv_layers";
constexpr const char* kWidth = "embedding_length_per_layer_input";
constexpr const char *kLocalKeys = "attention.key_length_swa",
                     *kLocalValues = "attention.value_length_swa";
constexpr int64_t kMost = 1 << 20;
// A pair of dimensions that does not turn, as a divisor of its frequency.
constexpr float kStill = 1e30f;

// The last layers read what the last layer of their kind before them keeps.
Status read_sources(const MetadataReader& reader, Blueprint& blueprint) {
  const int layers = blueprint.config.layers;
  AERIE_ASSIGN_OR_RETURN(const int shared, reader.integer_or(kShared, 0, layers - 1, 0));
  const auto first = static_cast<size_t>(layers - shared);
  for (size_t i = first; i < blueprint.layers.size(); ++i) {
    LayerPlan& layer = blueprint.layers[i];
    for (size_t j = 0; j < first; ++j) {
      const LayerPlan& source = blueprint.layers[j];
      if (source.window == layer.window) layer.kv_source = static_cast<int>(j);
    }
    if (layer.kv_source < 0) {
      return reader.refuse(kShared, fmt::format("{}, and no layer before them is of the kind of "
                                                "layer {}",
                                                shared, i));
    }
    if (blueprint.layers[static_cast<size_t>(layer.kv_source)].kv_heads != layer.kv_heads) {
      return reader.refuse(kShared, fmt::format("layer {} has other heads of keys than layer {}, "
                                                "whose it reads",
                                                i, layer.kv_source));
    }
  }
  return {};
}

// Layers with a window have heads and a rotary embedding of their own.
Status read_kinds(const MetadataReader& reader, Blueprint& blueprint) {
  ModelConfig& config = blueprint.config;
  const int global = config.head_dim;
  AERIE_ASSIGN_OR_RETURN(const int local, reader.integer_or(kLocalKeys, 1, kMost, global));
  AERIE_ASSIGN_OR_RETURN(const int values, reader.integer_or(kLocalValues, 1, kMost, local));
  if (values != local) {
    return reader.unsupported(kLocalValues, "keys and values of different lengths");
  }
  AERIE_RETURN_IF_ERROR(reader.check_head_dim(kLocalKeys, local));
  AERIE_ASSIGN_OR_RETURN(RopeConfig rope, reader.read_rope(config));
  blueprint.ropes.push_back(std::move(rope));
  RopeConfig turns;
  constexpr const char* kDimensions = "rope.dimension_count_swa";
  AERIE_ASSIGN_OR_RETURN(turns.dimensions, reader.integer_or(kDimensions, 2, local, local));
  if (turns.dimensions % 2 != 0) {
    return reader.refuse(kDimensions, fmt::format("{} is odd", turns.dimensions));
  }
  AERIE_ASSIGN_OR_RETURN(turns.base, reader.positive_or("rope.freq_base_swa", 10000.0));
  blueprint.ropes.push_back(std::move(turns));
  AERIE_RETURN_IF_ERROR(reader.read_windows(6, blueprint));
  for (LayerPlan& layer : blueprint.layers) {
    layer.rope = layer.window > 0 ? 1 : 0;
    layer.head_dim = layer.window > 0 ? local : global;
  }
  config.head_dim = std::max(local, global);
  return {};
}

Expected<Blueprint> read(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_varied_shape());
  ModelConfig& config = blueprint.config;
  AERIE_RETURN_IF_ERROR(read_kinds(reader, blueprint));
  AERIE_RETURN_IF_ERROR(read_sources(reader, blueprint));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    LayerPlan& layer = blueprint.layers[i];
    const bool lacks = file.find_tensor(fmt::format("blk.{}.attn_v.weight", i)) == nullptr;
    layer.keys_are_values = layer.kv_source < 0 && lacks;
  }
  blueprint.activation = kernels::Activation::kGeluTanh;
  blueprint.embedding_scale = std::sqrt(static_cast<double>(config.hidden));
  blueprint.attention_scale = 1.0;
  blueprint.query_key_norm = QueryKeyNorm::kHead;
  blueprint.value_norm = blueprint.post_norms = blueprint.layer_scales = true;
  AERIE_ASSIGN_OR_RETURN(blueprint.logit_soft_cap,
                         reader.positive_or("final_logit_softcapping", 0.0));
  AERIE_ASSIGN_OR_RETURN(blueprint.per_layer_width,
                         reader.integer_or(kWidth, 0, kMost / config.layers, 0));
  if (blueprint.per_layer_width % 16 != 0) {
    return reader.unsupported(
        kWidth, fmt::format("{}, which is no multiple of 16", blueprint.per_layer_width));
  }
  if (config.experts > 0) {
    blueprint.experts_beside = true;
    AERIE_RETURN_IF_ERROR(reader.read_softmax_router(true, blueprint));
  }
  return blueprint;
}

struct Kinds {
  std::vector<bool> windowed;
  int64_t shared = 0;  // of the last layers, those that read the keys of others
};

Expected<Kinds> read_layers(HuggingFaceImport& folder) {
  constexpr const char *kTypes = "layer_types", *kCount = "num_kv_shared_layers";
  const JsonObject& config = folder.config();
  Kinds kinds;
  if (config.has(kTypes)) {
    AERIE_ASSIGN_OR_RETURN(kinds.windowed,
                           folder.linear_layers(kTypes, {"sliding_attention"}, {"full_attention"}));
  } else {
    for (int64_t i = 0; i < folder.layers(); ++i) kinds.windowed.push_back((i + 1) % 6 != 0);
  }
  if (kinds.windowed.back()) {
    if (config.has(kTypes)) {
      return config.error(StatusCode::kUnsupported, kTypes, "ends with a layer with a window");
    }
    kinds.windowed.back() = false;
  }
  AERIE_ASSIGN_OR_RETURN(kinds.shared, config.integer_in(kCount, 0, folder.layers() - 1, 0));
  folder.add_integer(kShared, kinds.shared, kCount);
  constexpr const char* kWide = "use_double_wide_mlp";
  AERIE_ASSIGN_OR_RETURN(const bool wide, config.boolean(kWide, false));
  if (!wide) return kinds;
  AERIE_ASSIGN_OR_RETURN(const int64_t width, config.integer_in("intermediate_size", 1, kMost));
  std::vector<int32_t> widths(kinds.windowed.size(), static_cast<int32_t>(width));
  for (int64_t i = 0; i < kinds.shared; ++i) widths.end()[-1 - i] *= 2;
  folder.add_integers("feed_forward_length", widths, kWide);
  return kinds;
}

// What layers without a window have instead, by the published keys or by transformers' own.
Status read_global_heads(HuggingFaceImport& folder, const Kinds& kinds, int64_t& head_dim,
                         int64_t& kv_heads) {
  constexpr const char* kByLayer = "per_layer_config";
  const JsonObject& config = folder.config();
  kv_heads = folder.kv_heads();
  if (config.has(kByLayer)) {
    head_dim = folder.head_dim();
    AERIE_ASSIGN_OR_RETURN(const JsonObject layers, config.object(kByLayer));
    bool first = true;
    for (const auto& [name, value] : layers.json().items()) {
      AERIE_ASSIGN_OR_RETURN(const JsonObject one, JsonObject::view(value, config.file()));
      AERIE_ASSIGN_OR_RETURN(const int64_t dim,
                             one.integer_in("head_dim", 1, kMost, folder.head_dim()));
      AERIE_ASSIGN_OR_RETURN(const int64_t heads,
                             one.integer_in("num_key_value_heads", 1, kMost, folder.kv_heads()));
      const bool known = std::ranges::any_of(std::string_view("0123456789"),
                                             [&](char c) { return name.starts_with(c); });
      if (!known || (!first && (dim != head_dim || heads != kv_heads))) {
        return config.error(StatusCode::kUnsupported, kByLayer,
                            "says of '{}' something else than of the layers before it", name);
      }
      first = false;
      head_dim = dim;
      kv_heads = heads;
    }
    const auto global = std::ranges::count(kinds.windowed, false);
    if (std::cmp_not_equal(layers.json().size(), global)) {
      return config.error(StatusCode::kUnsupported, kByLayer,
                          "is of {} layers, and {} have no window", layers.json().size(), global);
    }
    return {};
  }
  AERIE_ASSIGN_OR_RETURN(head_dim, config.integer_in("global_head_dim", 1, kMost, 512));
  AERIE_ASSIGN_OR_RETURN(const bool equal, config.boolean("attention_k_eq_v", false));
  constexpr const char* kHeads = "num_global_key_value_heads";
  if (!equal || !config.has(kHeads)) return {};
  AERIE_ASSIGN_OR_RETURN(kv_heads, config.integer_in(kHeads, 1, kMost));
  return {};
}

Status import_heads(HuggingFaceImport& folder, const Kinds& kinds, int64_t& global) {
  int64_t kv_heads = 0;
  AERIE_RETURN_IF_ERROR(read_global_heads(folder, kinds, global, kv_heads));
  std::vector<int32_t> heads;
  for (const bool windowed : kinds.windowed) {
    heads.push_back(static_cast<int32_t>(windowed ? folder.kv_heads() : kv_heads));
  }
  folder.add_integers("attention.head_count_kv", heads, "num_key_value_heads");
  folder.add_integer("attention.key_length", global, "global_head_dim");
  folder.add_integer("attention.value_length", global, "global_head_dim");
  folder.add_integer(kLocalKeys, folder.head_dim(), "head_dim");
  folder.add_integer(kLocalValues, folder.head_dim(), "head_dim");

  AERIE_ASSIGN_OR_RETURN(const bool equal, folder.config().boolean("attention_k_eq_v", false));
  std::vector<bool> no_keys, no_values;
  const auto first = std::ssize(kinds.windowed) - kinds.shared;
  for (int64_t i = 0; i < std::ssize(kinds.windowed); ++i) {
    no_keys.push_back(i >= first);
    no_values.push_back(i >= first || (equal && !kinds.windowed[static_cast<size_t>(i)]));
  }
  folder.let_layers_lack("model.layers.{}.self_attn.k_proj", no_keys);
  folder.let_layers_lack("model.layers.{}.self_attn.k_norm", no_keys);
  folder.let_layers_lack("model.layers.{}.self_attn.v_proj", no_values);
  return {};
}

// Of the rotary embedding of either kind of layers, base and the share of a head that turns.
Status read_turns(const HuggingFaceImport& folder, const char* kind, std::string_view wanted,
                  double& base, double& part) {
  const Json* parameters = folder.rope_parameters();
  if (parameters == nullptr) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject both,
                         JsonObject::view(*parameters, folder.config().file()));
  if (!both.has(kind)) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject rope, both.object(kind));
  AERIE_ASSIGN_OR_RETURN(const std::string_view type, rope.string("rope_type", wanted));
  AERIE_ASSIGN_OR_RETURN(const double factor, positive_number(rope, "factor", 1.0));
  if (type != wanted || factor != 1.0) {
    return rope.error(StatusCode::kUnsupported, type != wanted ? "rope_type" : "factor",
                      "of {} is something else than {} and 1, which are supported", kind, wanted);
  }
  AERIE_ASSIGN_OR_RETURN(base, positive_number(rope, "rope_theta", base));
  AERIE_ASSIGN_OR_RETURN(
      part, positive_number(rope, "partial_rotary_factor", wanted == "default" ? 1.0 : part));
  if (part > 1.0) {
    return rope.error(StatusCode::kInvalidData, "partial_rotary_factor", "is {}", part);
  }
  return {};
}

// "Proportional": frequencies are those of a head that turns as a whole, and the last are none.
Status import_turns(HuggingFaceImport& folder, int64_t global) {
  double base = 1e6, part = 0.25, local_base = 1e4, local_part = 1.0;
  AERIE_RETURN_IF_ERROR(read_turns(folder, "full_attention", "proportional", base, part));
  AERIE_RETURN_IF_ERROR(read_turns(folder, "sliding_attention", "default", local_base, local_part));
  if (local_part != 1.0) {
    return folder.config().error(StatusCode::kUnsupported, "partial_rotary_factor",
                                 "of layers with a window is {}", local_part);
  }
  folder.add_number("rope.freq_base", base);
  folder.add_number("rope.freq_base_swa", local_base);
  folder.add_integer("rope.dimension_count", global, "global_head_dim");
  folder.add_integer("rope.dimension_count_swa", folder.head_dim(), "head_dim");
  const auto pairs = static_cast<size_t>(global / 2);
  const auto turning = static_cast<size_t>(part * static_cast<double>(global) / 2.0);
  std::vector<float> factors(pairs, kStill);
  std::fill_n(factors.begin(), std::min(turning, pairs), 1.0f);
  folder.add_tensor("rope_freqs.weight", std::move(factors));
  return {};
}

Status import_inputs(HuggingFaceImport& folder) {
  constexpr const char *kOwn = "hidden_size_per_layer_input", *kRows = "vocab_size_per_layer_input";
  const JsonObject& config = folder.config();
  const int64_t usual = folder.is_null(kOwn) ? 0 : 256;
  AERIE_ASSIGN_OR_RETURN(const int64_t width, config.integer_in(kOwn, 0, kMost, usual));
  folder.add_integer(kWidth, width, kOwn);
  if (width == 0) return {};
  AERIE_ASSIGN_OR_RETURN(const int64_t vocab, config.integer_in("vocab_size", 1, 1 << 24, 262144));
  AERIE_ASSIGN_OR_RETURN(const int64_t rows, config.integer_in(kRows, 1, 1 << 24, 262144));
  if (rows != vocab) {
    return config.error(StatusCode::kUnsupported, kRows, "is {}, of {} tokens", rows, vocab);
  }
  folder.add_rule("model.embed_tokens_per_layer", "per_layer_token_embd");
  folder.add_rule("model.per_layer_model_projection", "per_layer_model_proj");
  folder.add_rule("model.per_layer_projection_norm", "per_layer_proj_norm");
  folder.add_rule("model.layers.{}.per_layer_input_gate", "blk.{}.inp_gate");
  folder.add_rule("model.layers.{}.per_layer_projection", "blk.{}.proj");
  folder.add_rule("model.layers.{}.post_per_layer_input_norm", "blk.{}.post_norm");
  return {};
}

Status import_experts(HuggingFaceImport& folder) {
  AERIE_ASSIGN_OR_RETURN(const bool any, folder.config().boolean("enable_moe_block", false));
  if (!any) return {};
  ExpertNames names;
  names.used = "top_k_experts";
  names.normalized = names.gate = nullptr;
  names.router = "router.proj";
  AERIE_RETURN_IF_ERROR(folder.add_experts(names));
  folder.add_flag("expert_weights_norm", true);
  for (const std::string matrix : {".experts.gate_up_proj", ".experts.down_proj"}) {
    folder.rename_suffix(matrix, matrix + ".weight");
  }
  folder.add_stack_rules("experts.gate_up_proj", "experts.down_proj");
  folder.add_rule("model.layers.{}.router.scale", "blk.{}.ffn_gate_inp.scale");
  folder.add_rule("model.layers.{}.router.per_expert_scale", "blk.{}.ffn_down_exps.scale");
  folder.add_rule("model.layers.{}.pre_feedforward_layernorm_2", "blk.{}.pre_ffw_norm_2");
  folder.add_rule("model.layers.{}.post_feedforward_layernorm_1", "blk.{}.post_ffw_norm_1");
  folder.add_rule("model.layers.{}.post_feedforward_layernorm_2", "blk.{}.post_ffw_norm_2");
  return {};
}

void add_rules(HuggingFaceImport& folder) {
  folder.rename_prefix("model.language_model.", "model.");
  for (const char* part : {"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio."}) {
    folder.pass_over_prefix(std::string("model.") + part);
  }
  folder.rename_suffix(".layer_scalar", ".layer_scalar.weight");
  const auto add = [&folder](const char* from, const char* to) {
    folder.add_rule("model.layers.{}." + std::string(from), "blk.{}." + std::string(to));
  };
  add("post_attention_layernorm", "post_attention_norm");
  add("pre_feedforward_layernorm", "ffn_norm");
  add("post_feedforward_layernorm", "post_ffw_norm");
  add("self_attn.q_norm", "attn_q_norm");
  add("self_attn.k_norm", "attn_k_norm");
  add("layer_scalar", "layer_output_scale");
  folder.add_llama_rules(false);  // the first rule for a name counts
}

Status import(HuggingFaceImport& folder) {
  folder.set_architecture("gemma4");
  const JsonObject& config = folder.config();
  constexpr const char* kBiases = "attention_bias";
  AERIE_ASSIGN_OR_RETURN(const bool biases, config.boolean(kBiases, false));
  if (biases) return config.error(StatusCode::kUnsupported, kBiases, "is true");
  if (!folder.is_null("use_bidirectional_attention")) {
    AERIE_RETURN_IF_ERROR(folder.require_text("use_bidirectional_attention", "vision", {"vision"}));
  }
  AERIE_RETURN_IF_ERROR(folder.copy_sizes({.head_dim = 256}));
  AERIE_RETURN_IF_ERROR(
      folder.copy_number("rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6));
  AERIE_RETURN_IF_ERROR(
      folder.require_text("hidden_activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh"}));
  AERIE_ASSIGN_OR_RETURN(const Kinds kinds, read_layers(folder));
  int64_t global = 0;
  AERIE_RETURN_IF_ERROR(import_heads(folder, kinds, global));
  AERIE_RETURN_IF_ERROR(import_turns(folder, global));
  AERIE_RETURN_IF_ERROR(import_inputs(folder));
  AERIE_RETURN_IF_ERROR(import_experts(folder));
  constexpr const char* kCap = "final_logit_softcapping";
  if (config.has(kCap)) AERIE_RETURN_IF_ERROR(folder.copy_number(kCap, kCap, 30.0));
  add_rules(folder);
  AERIE_ASSIGN_OR_RETURN(const int64_t window, folder.sliding_window(512));
  return folder.add_windows(window,
                            [&kinds](int64_t i) { return kinds.windowed[static_cast<size_t>(i)]; });
}

constexpr std::string_view kTypes[] = {"gemma4_text", "gemma4"};

}  // namespace

extern const ModelFamily kGemma4;
const ModelFamily kGemma4 = {"gemma4", read, kTypes, import};

}  // namespace aerie
