// Granite 3, dense and with experts: Llama's shape, with a factor on the embedding, on the scores
// of attention and on what each branch adds, and a divisor of the logits (Granite Team 2024,
// "Granite 3.0 Language Models"; maximal update parametrisation, 2203.03466). Granite 4: the same
// with Mamba-2 in the place of attention in most layers, and in models whose layers all have
// attention (transformers: granitemoehybrid).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

struct Scale {
  const char* config;  // in config.json; absent: 1
  const char* key;     // in GGUF
};
constexpr Scale kScales[] = {
    {"embedding_multiplier", "embedding_scale"},
    {"residual_multiplier", "residual_scale"},
    {"attention_multiplier", "attention.scale"},
    {"logits_scaling", "logit_scale"},
};
// False in files of the family whose queries and keys do not turn.
constexpr const char* kTurns = "rope.scaling.finetuned";

Expected<Blueprint> read_scales(const MetadataReader& reader, Blueprint blueprint) {
  blueprint.rope_style = kernels::RopeStyle::kPairs;
  AERIE_ASSIGN_OR_RETURN(blueprint.embedding_scale, reader.positive_or("embedding_scale", 1.0));
  AERIE_ASSIGN_OR_RETURN(blueprint.residual_scale, reader.positive_or("residual_scale", 1.0));
  AERIE_ASSIGN_OR_RETURN(blueprint.attention_scale, reader.positive_or("attention.scale", 0.0));
  AERIE_ASSIGN_OR_RETURN(blueprint.logit_divisor, reader.positive_or("logit_scale", 1.0));
  if (reader.has(kTurns)) {
    AERIE_ASSIGN_OR_RETURN(const bool turns,
                           reader.file().boolean(blueprint.config.family + "." + kTurns));
    for (LayerPlan& layer : blueprint.layers) layer.rope = turns ? layer.rope : LayerPlan::kNoRope;
  }
  return blueprint;
}

Expected<Blueprint> read(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_llama_shape());
  return read_scales(reader, std::move(blueprint));
}

Expected<Blueprint> read_experts(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_expert_shape(true));
  blueprint.shared_expert_gate = false;
  return read_scales(reader, std::move(blueprint));
}

Expected<Blueprint> read_hybrid(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_hybrid_shape());
  ModelConfig& config = blueprint.config;
  if (config.experts > 0) AERIE_RETURN_IF_ERROR(reader.read_softmax_router(true, blueprint));
  blueprint.shared_expert_gate = false;
  AERIE_ASSIGN_OR_RETURN(config.linear, reader.read_linear_attention(false));
  config.linear.kind = LinearKind::kStateSpace;
  return read_scales(reader, std::move(blueprint));
}

Status import_layers(HuggingFaceImport& folder) {
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape({}));
  for (const Scale& scale : kScales) {
    AERIE_RETURN_IF_ERROR(folder.copy_number(scale.config, scale.key, 1.0));
  }
  folder.add_llama_rules(true);
  return folder.require_announced_biases();
}

Status import(HuggingFaceImport& folder) {
  folder.set_architecture("granite");
  return import_layers(folder);
}

Status add_experts(HuggingFaceImport& folder) {
  AERIE_RETURN_IF_ERROR(folder.add_experts({.count = "num_local_experts",
                                            .ffn = nullptr,
                                            .normalized = nullptr,
                                            .router = "block_sparse_moe.router.layer",
                                            .gate = nullptr,
                                            .up = nullptr,
                                            .down = nullptr}));
  folder.add_stack_rules("block_sparse_moe.input_linear", "block_sparse_moe.output_linear");
  return {};
}

Status import_experts(HuggingFaceImport& folder) {
  folder.set_architecture("granitemoe");
  AERIE_RETURN_IF_ERROR(import_layers(folder));
  return add_experts(folder);
}

// Of a state space; n_heads heads make up what the stream is widened to.
Expected<LinearAttention> read_state_space(const HuggingFaceImport& folder) {
  constexpr int64_t kMost = 1 << 20;
  const JsonObject& config = folder.config();
  LinearAttention linear;
  linear.kind = LinearKind::kStateSpace;
  const auto read = [&config](const char* key, int64_t usual, int& into) {
    AERIE_ASSIGN_OR_RETURN(const int64_t value, config.integer_in(key, 1, kMost, usual));
    into = static_cast<int>(value);
    return Status();
  };
  int widening = 0;
  AERIE_RETURN_IF_ERROR(read("mamba_n_heads", 128, linear.heads));
  AERIE_RETURN_IF_ERROR(read("mamba_n_groups", 1, linear.key_heads));
  AERIE_RETURN_IF_ERROR(read("mamba_d_state", 256, linear.key_dim));
  AERIE_RETURN_IF_ERROR(read("mamba_d_conv", 4, linear.taps));
  AERIE_RETURN_IF_ERROR(read("mamba_expand", 2, widening));
  AERIE_ASSIGN_OR_RETURN(const int64_t hidden, config.integer_in("hidden_size", 1, kMost));
  const int64_t width = widening * hidden;
  constexpr const char* kHeadDim = "mamba_d_head";
  const Json* head_dim = config.find(kHeadDim);
  const bool is_automatic = head_dim == nullptr || head_dim->is_string();
  if (is_automatic) AERIE_RETURN_IF_ERROR(folder.require_text(kHeadDim, "auto", {"auto"}));
  AERIE_RETURN_IF_ERROR(is_automatic ? Status() : read(kHeadDim, 1, linear.value_dim));
  if (is_automatic) linear.value_dim = static_cast<int>(std::min(kMost, width / linear.heads));
  if (width > kMost || int64_t{linear.heads} * linear.value_dim != width) {
    return config.error(StatusCode::kInvalidData, "mamba_n_heads",
                        "of {} of {} dimensions do not make up {} times a hidden_size of {}",
                        linear.heads, linear.value_dim, widening, hidden);
  }
  if (linear.heads % linear.key_heads != 0) {
    return config.error(StatusCode::kInvalidData, "mamba_n_groups",
                        "of {} does not divide the {} heads", linear.key_heads, linear.heads);
  }
  return linear;
}

// What a step is held to; files have no key for it.
Status check_step_limits(const JsonObject& config) {
  constexpr const char* kLimits = "time_step_limit";
  const Json* limits = config.find(kLimits);
  if (limits == nullptr || !limits->is_array() || limits->size() != 2) {
    if (limits == nullptr) return {};
    return config.error(StatusCode::kUnsupported, kLimits, "is no pair of limits");
  }
  const Json &low = (*limits)[0], &high = (*limits)[1];
  const bool from_zero = low.is_number() && low.get<double>() <= 0.0;
  // As transformers writes it, JSON having no such number.
  static const Json kInfinity = {{"__float__", "Infinity"}};
  if (from_zero && high == kInfinity) return {};
  return config.error(StatusCode::kUnsupported, kLimits, "is {}; 0 to infinity is supported",
                      limits->dump(-1, ' ', false, Json::error_handler_t::replace));
}

Status add_state_space(HuggingFaceImport& folder, const std::vector<bool>& layers,
                       const char* from) {
  const JsonObject& config = folder.config();
  AERIE_ASSIGN_OR_RETURN(const LinearAttention linear, read_state_space(folder));
  AERIE_RETURN_IF_ERROR(check_step_limits(config));
  AERIE_RETURN_IF_ERROR(folder.set_linear_attention(linear, layers, from));
  folder.add_integer("ssm.conv_kernel", linear.taps, "mamba_d_conv");
  folder.add_integer("ssm.state_size", linear.key_dim, "mamba_d_state");
  folder.add_integer("ssm.group_count", linear.key_heads, "mamba_n_groups");
  folder.add_integer("ssm.time_step_rank", linear.heads, "mamba_n_heads");
  folder.add_integer("ssm.inner_size", linear.v_width(), "mamba_d_head");
  const auto add = [&folder](const char* name, const char* to, TensorChange change) {
    folder.add_rule("model.layers.{}.mamba." + std::string(name), "blk.{}." + std::string(to),
                    change);
  };
  add("in_proj", "ssm_in", TensorChange::kNone);
  add("conv1d", "ssm_conv1d", TensorChange::kHeadChannels);
  add("A_log", "ssm_a", TensorChange::kHeadRates);
  add("D", "ssm_d", TensorChange::kHeadNumbers);
  add("dt_bias", "ssm_dt.bias", TensorChange::kHeadRows);
  add("norm", "ssm_norm", TensorChange::kHeadNorm);
  add("out_proj", "ssm_out", TensorChange::kNone);
  AERIE_ASSIGN_OR_RETURN(const bool conv, config.boolean("mamba_conv_bias", true));
  if (conv) folder.require_biases({"model.layers.{}.mamba.conv1d"});
  AERIE_ASSIGN_OR_RETURN(const bool projections, config.boolean("mamba_proj_bias", false));
  if (projections) {
    folder.require_biases({"model.layers.{}.mamba.in_proj", "model.layers.{}.mamba.out_proj"});
  }
  return {};
}

// Without experts the one that every row uses is the feed-forward.
void add_shared_rules(HuggingFaceImport& folder, bool has_experts) {
  const std::string part = has_experts ? "_shexp" : "";
  folder.add_rule("model.layers.{}.shared_mlp.input_linear", "blk.{}.ffn_gate" + part,
                  TensorChange::kUpperRows, "blk.{}.ffn_up" + part);
  folder.add_rule("model.layers.{}.shared_mlp.output_linear", "blk.{}.ffn_down" + part);
}

Status add_feed_forward(HuggingFaceImport& folder, bool has_experts) {
  constexpr const char* kShared = "shared_intermediate_size";
  const JsonObject& config = folder.config();
  AERIE_ASSIGN_OR_RETURN(const int64_t shared, config.integer_in(kShared, 1, 1 << 20, 1024));
  folder.add_integer(has_experts ? "expert_shared_feed_forward_length" : "feed_forward_length",
                     shared, kShared);
  return has_experts ? add_experts(folder) : Status();
}

Expected<std::vector<bool>> find_state_spaces(const HuggingFaceImport& folder, const char* from) {
  if (folder.config().has(from)) {
    return folder.linear_layers(from, {"mamba", "linear_attention"},
                                {"attention", "full_attention"});
  }
  return std::vector<bool>(static_cast<size_t>(folder.layers()), true);
}

Status import_hybrid(HuggingFaceImport& folder) {
  const JsonObject& config = folder.config();
  const char* types = config.has("layers_block_type") ? "layers_block_type" : "layer_types";
  constexpr const char *kExperts = "num_local_experts", *kPositions = "position_embedding_type";
  AERIE_ASSIGN_OR_RETURN(const int64_t experts, config.integer_in(kExperts, 0, 1 << 16, 8));
  // As llama.cpp calls models without state spaces.
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string_view> names,
                         config.has(types) ? config.strings(types)
                                           : Expected<std::vector<std::string_view>>(
                                                 std::vector<std::string_view>{"mamba"}));
  const bool is_hybrid = !std::ranges::all_of(
      names, [](std::string_view name) { return name == "attention" || name == "full_attention"; });
  folder.set_architecture(is_hybrid ? "granitehybrid" : experts > 0 ? "granitemoe" : "granite");
  add_shared_rules(folder, experts > 0);  // before others for the same places, for messages
  AERIE_RETURN_IF_ERROR(import_layers(folder));
  AERIE_ASSIGN_OR_RETURN(const std::vector<bool> layers, find_state_spaces(folder, types));
  if (is_hybrid) AERIE_RETURN_IF_ERROR(add_state_space(folder, layers, types));
  AERIE_RETURN_IF_ERROR(add_feed_forward(folder, experts > 0));
  AERIE_RETURN_IF_ERROR(folder.require_text("normalization_function", "rmsnorm", {"rmsnorm"}));
  AERIE_RETURN_IF_ERROR(folder.require_text(kPositions, "nope", {"nope", "rope"}));
  AERIE_ASSIGN_OR_RETURN(const std::string_view positions, config.string(kPositions, "nope"));
  folder.add_flag(kTurns, positions == "rope");
  return {};
}

constexpr std::string_view kModelTypes[] = {"granite"};
constexpr std::string_view kExpertTypes[] = {"granitemoe"};
constexpr std::string_view kHybridTypes[] = {"granitemoehybrid"};

}  // namespace

extern const ModelFamily kGranite;
extern const ModelFamily kGraniteMoe;
extern const ModelFamily kGraniteHybrid;
const ModelFamily kGranite = {"granite", read, kModelTypes, import};
const ModelFamily kGraniteMoe = {"granitemoe", read_experts, kExpertTypes, import_experts};
const ModelFamily kGraniteHybrid = {"granitehybrid", read_hybrid, kHybridTypes, import_hybrid};

}  // namespace aerie
