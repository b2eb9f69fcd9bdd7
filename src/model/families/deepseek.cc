// DeepSeek-V2 and V3, and GLM-4.7-Flash, which has V3's form: multi-head latent attention, experts
// beside one that every row uses, and layers without experts before them. DeepSeek-AI 2024,
// 2405.04434 and 2412.19437; Zeng et al. 2025, 2508.06471.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/expert_routing.h"
#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

constexpr const char* kArchitecture = "deepseek2";
constexpr const char* kRouter = "expert_gating_func";
constexpr const char* kGroups = "expert_group_count";
constexpr const char* kUsedGroups = "expert_group_used_count";
constexpr const char* kMagnitude = "rope.scaling.yarn_log_multiplier";
constexpr const char* kFactor = "rope.scaling.attn_factor";
// Aerie's own; llama.cpp's files do not say it.
constexpr const char* kHandNormed = "nextn_hand_normed";
constexpr int kSoftmax = 1, kSigmoid = 2;

// By its sizes, in files that lack a key.
bool is_glm_flash(const ModelConfig& config, int all_layers) {
  return (all_layers == 47 || all_layers == 48) && config.vocab == 154880;
}

// What files say that were made before there was a key for it.
int usual_router(const ModelConfig& config, int all_layers) {
  return is_glm_flash(config, all_layers) ? kSigmoid : kSoftmax;
}

Status read_groups(const MetadataReader& reader, Blueprint& blueprint) {
  const ModelConfig& config = blueprint.config;
  ExpertRouter& router = blueprint.router;
  AERIE_ASSIGN_OR_RETURN(router.groups, reader.integer_or(kGroups, 1, kMostExpertGroups, 1));
  AERIE_ASSIGN_OR_RETURN(router.used_groups,
                         reader.integer_or(kUsedGroups, 1, router.groups, router.groups));
  if (config.experts % router.groups != 0) {
    return reader.refuse(kGroups,
                         fmt::format("{} groups of {} experts", router.groups, config.experts));
  }
  if (config.experts / router.groups * router.used_groups < config.used_experts) {
    return reader.refuse(kUsedGroups,
                         fmt::format("{}, which have fewer experts than the {} that are used",
                                     router.used_groups, config.used_experts));
  }
  return {};
}

Status read_router(const MetadataReader& reader, int all_layers, Blueprint& blueprint) {
  ModelConfig& config = blueprint.config;
  ExpertRouter& router = blueprint.router;
  AERIE_ASSIGN_OR_RETURN(const int kind,
                         reader.integer_or(kRouter, 0, 1 << 16, usual_router(config, all_layers)));
  if (kind != kSoftmax && kind != kSigmoid) {
    return reader.unsupported(kRouter, fmt::format("the router {}; softmax ({}) and sigmoid ({}) "
                                                   "are supported",
                                                   kind, kSoftmax, kSigmoid));
  }
  if (kind == kSigmoid) router.score = ExpertRouter::Score::kSigmoid;
  router.by_best_two = kind == kSigmoid;
  AERIE_ASSIGN_OR_RETURN(router.normalized, reader.flag_or("expert_weights_norm", false));
  AERIE_ASSIGN_OR_RETURN(router.scale, reader.positive_or("expert_weights_scale", 1.0));
  AERIE_RETURN_IF_ERROR(read_groups(reader, blueprint));
  // A file may hold the layers behind the model's alone.
  for (int i = 0; i < all_layers; ++i) {
    const std::string name = fmt::format("blk.{}.exp_probs_b.bias", i);
    router.corrected |= reader.file().find_tensor(name) != nullptr;
  }
  if (router.corrected && kind == kSoftmax) {
    return reader.unsupported(kRouter, "softmax with a correction of what it chooses by");
  }
  constexpr const char* kShared = "expert_shared_count";
  constexpr int kMostShared = 1 << 10;
  AERIE_ASSIGN_OR_RETURN(const int shared, reader.integer_or(kShared, 0, kMostShared, 0));
  if (config.expert_ffn > (1 << 20) / std::max(1, shared)) {
    return reader.refuse(kShared, fmt::format("{} of {} values", shared, config.expert_ffn));
  }
  config.shared_ffn = shared * config.expert_ffn;
  blueprint.shared_expert_gate = false;
  return {};
}

// Where YaRN stretches positions, scores grow; the key has a tenth of how much the logarithm of the
// factor counts. What cosines and sines are multiplied by is then attn_factor alone.
Status read_scales(const MetadataReader& reader, Blueprint& blueprint) {
  RopeConfig& rope = blueprint.ropes[0];
  double scale = 1.0 / std::sqrt(static_cast<double>(blueprint.config.latent.query_dim()));
  if (rope.scaling == RopeScaling::kYarn && rope.factor > 1.0 && reader.has(kMagnitude)) {
    AERIE_ASSIGN_OR_RETURN(const double weight, reader.positive_or(kMagnitude, 1.0));
    const double magnitude = 1.0 + weight * std::log(rope.factor);
    scale *= magnitude * magnitude;
    rope.attention_factor /= 1.0 + 0.1 * std::log(rope.factor);
  }
  blueprint.attention_scale = scale;
  return {};
}

Expected<Blueprint> read(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_latent_shape());
  const int all_layers = blueprint.config.layers;
  AERIE_RETURN_IF_ERROR(reader.drop_predictors(blueprint));
  AERIE_ASSIGN_OR_RETURN(blueprint.predictors_hand_normed,
                         reader.flag_or(kHandNormed, !is_glm_flash(blueprint.config, all_layers)));
  blueprint.predictors_zero_first = true;
  blueprint.rope_style = kernels::RopeStyle::kPairs;
  AERIE_RETURN_IF_ERROR(read_scales(reader, blueprint));
  if (blueprint.config.experts == 0) return blueprint;
  AERIE_RETURN_IF_ERROR(read_router(reader, all_layers, blueprint));
  return blueprint;
}

// What differs between the models where config.json is silent.
struct Defaults {
  double norm_eps;
  double router_scale;
  bool normalized;
  int router;
  bool hands_normed;  // Blueprint::predictors_hand_normed
};

Status import_attention(HuggingFaceImport& folder, const Defaults& defaults) {
  constexpr int64_t kMost = 1 << 20;
  const JsonObject& config = folder.config();
  LatentAttention latent;
  const auto copy = [&](const char* from, int& value) {
    AERIE_ASSIGN_OR_RETURN(const int64_t read, config.integer_in(from, 1, kMost));
    value = static_cast<int>(read);
    return Status();
  };
  AERIE_RETURN_IF_ERROR(copy("kv_lora_rank", latent.rank));
  AERIE_RETURN_IF_ERROR(copy("qk_nope_head_dim", latent.plain));
  AERIE_RETURN_IF_ERROR(copy("qk_rope_head_dim", latent.rope));
  AERIE_RETURN_IF_ERROR(copy("v_head_dim", latent.value_dim));
  if (config.has("q_lora_rank")) AERIE_RETURN_IF_ERROR(copy("q_lora_rank", latent.query_rank));
  LlamaDefaults llama;
  llama.norm_eps = defaults.norm_eps;
  llama.sizes.head_dim = latent.rope;
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape(llama));
  if (folder.rope_dimensions() != latent.rope) {
    return config.error(StatusCode::kUnsupported, "qk_rope_head_dim",
                        "is {}, and head_dim or partial_rotary_factor ask for {}", latent.rope,
                        folder.rope_dimensions());
  }
  AERIE_ASSIGN_OR_RETURN(const bool pairs, config.boolean("rope_interleave", true));
  if (!pairs) return config.error(StatusCode::kUnsupported, "rope_interleave", "is false");
  folder.set_latent_attention(latent);
  folder.add_integer("attention.head_count_kv", 1, "num_key_value_heads");
  folder.add_integer("attention.kv_lora_rank", latent.rank, "kv_lora_rank");
  if (latent.query_rank > 0) {
    folder.add_integer("attention.q_lora_rank", latent.query_rank, "q_lora_rank");
  }
  folder.add_integer("attention.key_length", int64_t{latent.rank} + latent.rope, "kv_lora_rank");
  folder.add_integer("attention.value_length", latent.rank, "kv_lora_rank");
  folder.add_integer("attention.key_length_mla", latent.query_dim(), "qk_nope_head_dim");
  folder.add_integer("attention.value_length_mla", latent.value_dim, "v_head_dim");
  return {};
}

// YaRN's two magnitudes: the second weighs scores, and cosines and sines have their ratio.
Status import_magnitudes(HuggingFaceImport& folder) {
  const Json* parameters = folder.rope_parameters();
  if (parameters == nullptr) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject rope,
                         JsonObject::view(*parameters, folder.config().file()));
  AERIE_ASSIGN_OR_RETURN(std::string_view type, rope.string("type", "default"));
  AERIE_ASSIGN_OR_RETURN(type, rope.string("rope_type", type));
  AERIE_ASSIGN_OR_RETURN(const double all, rope.number("mscale_all_dim", 0.0));
  if (type != "yarn" || all == 0.0) return {};
  AERIE_ASSIGN_OR_RETURN(const double weight, positive_number(rope, "mscale_all_dim"));
  AERIE_ASSIGN_OR_RETURN(const double other, rope.number("mscale", 0.0));
  AERIE_ASSIGN_OR_RETURN(const double factor, positive_number(rope, "factor", 1.0));
  const double growth = 0.1 * std::log(std::max(1.0, factor));
  double wanted = 1.0 + growth;
  if (other != 0.0) wanted = (1.0 + other * growth) / (1.0 + weight * growth);
  AERIE_ASSIGN_OR_RETURN(wanted, positive_number(rope, "attention_factor", wanted));
  folder.add_number(kMagnitude, 0.1 * weight);
  folder.add_number(kFactor, wanted);
  return {};
}

// Layers before the first one with experts, which llama.cpp wants to know.
Status import_dense_layers(HuggingFaceImport& folder) {
  constexpr const char *kTypes = "mlp_layer_types", *kDense = "first_k_dense_replace";
  constexpr const char* kEvery = "moe_layer_freq";
  const JsonObject& config = folder.config();
  AERIE_ASSIGN_OR_RETURN(const int64_t every, config.integer(kEvery, 1));
  if (every != 1) return config.error(StatusCode::kUnsupported, kEvery, "is {}", every);
  int64_t dense = 0;
  if (config.has(kTypes)) {
    AERIE_ASSIGN_OR_RETURN(const std::vector<std::string_view> types, config.strings(kTypes));
    while (dense < std::ssize(types) && types[static_cast<size_t>(dense)] == "dense") ++dense;
  } else if (config.has(kDense)) {
    AERIE_ASSIGN_OR_RETURN(dense, config.integer_in(kDense, 0, folder.layers()));
  }
  folder.add_integer("leading_dense_block_count", dense, kDense);
  return {};
}

Status import_router(HuggingFaceImport& folder, const Defaults& defaults) {
  const JsonObject& config = folder.config();
  ExpertNames names;
  names.count = "n_routed_experts";
  names.usually_normalized = defaults.normalized;
  AERIE_RETURN_IF_ERROR(folder.add_experts(names));
  const bool is_sigmoid = defaults.router == kSigmoid;
  const char *kMethod = "topk_method", *kScore = "scoring_func";
  if (is_sigmoid) {
    AERIE_RETURN_IF_ERROR(folder.require_text(kScore, "sigmoid", {"sigmoid"}));
    AERIE_RETURN_IF_ERROR(folder.require_text(kMethod, "noaux_tc", {"noaux_tc"}));
  } else {
    AERIE_RETURN_IF_ERROR(folder.require_text(kScore, "softmax", {"softmax"}));
    AERIE_RETURN_IF_ERROR(
        folder.require_text(kMethod, "greedy", {"greedy", "group_limited_greedy"}));
    AERIE_ASSIGN_OR_RETURN(const bool normalized, config.boolean("norm_topk_prob", false));
    // The makers' code divides by the sum then and leaves the scale out, transformers does not.
    if (normalized) return config.error(StatusCode::kUnsupported, "norm_topk_prob", "is true");
  }
  AERIE_ASSIGN_OR_RETURN(const std::string_view method, config.string(kMethod, "greedy"));
  const bool grouped = (is_sigmoid || method != "greedy") && config.has("n_group");
  for (const auto& [from, to] : {std::pair("n_group", kGroups), {"topk_group", kUsedGroups}}) {
    if (!grouped || !config.has(from)) continue;
    AERIE_ASSIGN_OR_RETURN(const int64_t count, config.integer_in(from, 1, folder.experts()));
    folder.add_integer(to, count, from);
  }
  folder.add_integer(kRouter, defaults.router, kScore);
  AERIE_RETURN_IF_ERROR(
      folder.copy_number("routed_scaling_factor", "expert_weights_scale", defaults.router_scale));
  AERIE_ASSIGN_OR_RETURN(const int64_t shared, config.integer_in("n_shared_experts", 0, 1024, 0));
  folder.add_integer("expert_shared_count", shared, "n_shared_experts");
  return import_dense_layers(folder);
}

// Layers behind the model's, as in GGUF files.
void find_predictors(HuggingFaceImport& folder) {
  constexpr int64_t kMost = 64;
  const Expected<int64_t> layers = folder.config().integer("num_hidden_layers");
  if (!layers.ok() || *layers < 0 || *layers > 1 << 16) return;
  int64_t count = 0;
  while (count < kMost &&
         folder.has_tensor(fmt::format("model.layers.{}.eh_proj.weight", *layers + count))) {
    ++count;
  }
  folder.set_predictors(count);
}

void add_predictors(HuggingFaceImport& folder, const Defaults& defaults) {
  if (folder.predictors() == 0) return;
  folder.add_flag(kHandNormed, defaults.hands_normed);
  for (const auto& [from, to] : {std::pair("eh_proj", "eh_proj"),
                                 {"enorm", "enorm"},
                                 {"hnorm", "hnorm"},
                                 {"embed_tokens", "embed_tokens"},
                                 {"shared_head.norm", "shared_head_norm"},
                                 {"shared_head.head", "shared_head_head"}}) {
    folder.add_rule(fmt::format("model.layers.{{}}.{}", from),
                    fmt::format("blk.{{}}.nextn.{}", to));
  }
}

Status import_as(HuggingFaceImport& folder, const Defaults& defaults) {
  folder.set_architecture(kArchitecture);
  find_predictors(folder);
  AERIE_RETURN_IF_ERROR(import_attention(folder, defaults));
  AERIE_RETURN_IF_ERROR(import_magnitudes(folder));
  AERIE_RETURN_IF_ERROR(import_router(folder, defaults));
  const auto add = [&folder](const std::string& from, const std::string& to) {
    folder.add_rule("model.layers.{}." + from, "blk.{}." + to);
  };
  add("self_attn.q_a_proj", "attn_q_a");
  add("self_attn.q_b_proj", "attn_q_b");
  add("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa");
  add("self_attn.q_a_layernorm", "attn_q_a_norm");
  add("self_attn.kv_a_layernorm", "attn_kv_a_norm");
  folder.add_rule("model.layers.{}.self_attn.kv_b_proj", "blk.{}.attn_k_b",
                  TensorChange::kLatentKeys, "blk.{}.attn_v_b");
  add("mlp.gate.e_score_correction_bias", "exp_probs_b.bias");
  for (const std::string part : {"gate", "up", "down"}) {
    add("mlp.shared_experts." + part + "_proj", "ffn_" + part + "_shexp");
  }
  add_predictors(folder, defaults);
  folder.add_llama_rules(false);
  AERIE_ASSIGN_OR_RETURN(const bool biases, folder.config().boolean("attention_bias", false));
  if (!biases) return {};
  folder.require_biases(
      {"model.layers.{}.self_attn.kv_a_proj_with_mqa", "model.layers.{}.self_attn.o_proj"});
  if (folder.latent().query_rank > 0) {
    folder.require_biases({"model.layers.{}.self_attn.q_a_proj"});
  }
  return {};
}

Status import_2(HuggingFaceImport& folder) {
  return import_as(folder, {1e-6, 1.0, false, kSoftmax, true});
}
Status import_3(HuggingFaceImport& folder) {
  return import_as(folder, {1e-6, 2.5, true, kSigmoid, true});
}
Status import_glm(HuggingFaceImport& folder) {
  return import_as(folder, {1e-5, 1.8, true, kSigmoid, false});
}

constexpr std::string_view k2Types[] = {"deepseek_v2"};
constexpr std::string_view k3Types[] = {"deepseek_v3"};
constexpr std::string_view kGlmTypes[] = {"glm4_moe_lite"};

}  // namespace

extern const ModelFamily kDeepseek2;
extern const ModelFamily kDeepseek3;
extern const ModelFamily kGlm4MoeLite;
const ModelFamily kDeepseek2 = {kArchitecture, read, k2Types, import_2};
const ModelFamily kDeepseek3 = {kArchitecture, read, k3Types, import_3};
const ModelFamily kGlm4MoeLite = {kArchitecture, read, kGlmTypes, import_glm};

}  // namespace aerie
