// Qwen3-Next, Qwen3.5 and 3.6, dense and with experts: three layers in four have linear attention
// (Gated DeltaNet: Yang et al. 2024, 2412.06464), the others a gate behind their attention, and
// norms multiply by 1 + w. As their makers' code has it (transformers: qwen3_next, qwen3_5).
#include <fmt/format.h>

#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

constexpr int kUsualInterval = 4;
constexpr const char* kRecurrent = "attention.recurrent_layers";
constexpr const char* kInterval = "full_attention_interval";
constexpr std::string_view kPredictorPrefixes[] = {"mtp.", "model.mtp."};
constexpr int64_t kMostPredictors = 64;

// Which of the model's layers are linear, of `all` with those of predictors behind them.
Status read_layers(const MetadataReader& reader, size_t all, Blueprint& blueprint) {
  ModelConfig& config = blueprint.config;
  config.linear_layers.resize(static_cast<size_t>(config.layers));
  AERIE_ASSIGN_OR_RETURN(const auto flags, reader.flags(kRecurrent, all));
  AERIE_ASSIGN_OR_RETURN(const int interval,
                         reader.integer_or(kInterval, 1, 1 << 16, kUsualInterval));
  for (size_t i = 0; i < config.linear_layers.size(); ++i) {
    config.linear_layers[i] = flags ? (*flags)[i] : (i + 1) % static_cast<size_t>(interval) != 0;
  }
  return {};
}

Expected<Blueprint> add_hybrid_shape(const MetadataReader& reader, Blueprint blueprint,
                                     bool tiled) {
  const size_t all = blueprint.layers.size();
  AERIE_RETURN_IF_ERROR(reader.drop_predictors(blueprint));
  AERIE_RETURN_IF_ERROR(read_layers(reader, all, blueprint));
  AERIE_ASSIGN_OR_RETURN(blueprint.config.linear, reader.read_linear_attention(tiled));
  blueprint.query_key_norm = QueryKeyNorm::kHead;
  blueprint.attention_gate = true;
  blueprint.ffn_norm = "post_attention_norm";
  return blueprint;
}

Expected<Blueprint> read_next(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_expert_shape(true));
  return add_hybrid_shape(reader, std::move(blueprint), false);
}

Expected<Blueprint> read_35(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_llama_shape());
  return add_hybrid_shape(reader, std::move(blueprint), true);
}

Expected<Blueprint> read_35_moe(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_expert_shape(true));
  return add_hybrid_shape(reader, std::move(blueprint), true);
}

Status add_layer_kinds(HuggingFaceImport& folder) {
  const JsonObject& config = folder.config();
  constexpr const char* kTypes = "layer_types";
  AERIE_ASSIGN_OR_RETURN(const int64_t interval,
                         config.integer_in(kInterval, 1, 1 << 16, kUsualInterval));
  folder.add_integer(kInterval, interval, kInterval);
  if (!config.has(kTypes)) return {};
  AERIE_ASSIGN_OR_RETURN(std::vector<bool> linear,
                         folder.linear_layers(kTypes, {"linear_attention"}, {"full_attention"}));
  linear.resize(linear.size() + static_cast<size_t>(folder.predictors()));
  folder.add_flags(kRecurrent, linear);
  return {};
}

// Modules that predict further tokens have layers of their own and share the rest.
void find_predictors(HuggingFaceImport& folder) {
  for (const std::string_view prefix : kPredictorPrefixes) {
    if (!folder.has_tensor(fmt::format("{}fc.weight", prefix))) continue;
    int64_t count = 0;
    while (count < kMostPredictors &&
           folder.has_tensor(
               fmt::format("{}layers.{}.post_attention_layernorm.weight", prefix, count))) {
      ++count;
    }
    return folder.set_predictors(count);
  }
}

// Layers behind the model's, as in GGUF files.
void add_predictor_rules(HuggingFaceImport& folder) {
  if (folder.predictors() == 0) return folder.pass_over_predictors();
  const int64_t first = folder.layers();
  for (const std::string_view prefix : kPredictorPrefixes) {
    for (int64_t i = 0; i < folder.predictors(); ++i) {
      folder.rename_prefix(fmt::format("{}layers.{}.", prefix, i),
                           fmt::format("model.layers.{}.", first + i));
    }
    folder.rename_prefix(prefix, fmt::format("model.layers.{}.mtp.", first));
  }
  const auto add = [&folder](const char* from, const char* to, TensorChange change) {
    folder.add_rule("model.layers.{}.mtp." + std::string(from), "blk.{}.nextn." + std::string(to),
                    change);
  };
  add("fc", "eh_proj", TensorChange::kNone);
  add("pre_fc_norm_embedding", "enorm", TensorChange::kAddOne);
  add("pre_fc_norm_hidden", "hnorm", TensorChange::kAddOne);
  add("norm", "shared_head_norm", TensorChange::kAddOne);
  add("embed_tokens", "embed_tokens", TensorChange::kNone);
}

void add_rules(HuggingFaceImport& folder) {
  const auto add = [&folder](const char* from, const char* to,
                             TensorChange change = TensorChange::kNone) {
    folder.add_rule("model.layers.{}." + std::string(from), "blk.{}." + std::string(to), change);
  };
  folder.rename_prefix("model.language_model.", "model.");
  folder.pass_over_prefix("model.visual.");
  add_predictor_rules(folder);
  folder.add_rule("model.embed_tokens", "token_embd");
  folder.add_rule("model.norm", "output_norm", TensorChange::kAddOne);
  folder.add_rule("lm_head", "output");
  add("input_layernorm", "attn_norm", TensorChange::kAddOne);
  add("post_attention_layernorm", "post_attention_norm", TensorChange::kAddOne);
  for (const char* part : {"q", "k", "v"}) {
    folder.add_rule(fmt::format("model.layers.{{}}.self_attn.{}_proj", part),
                    fmt::format("blk.{{}}.attn_{}", part));
  }
  add("self_attn.o_proj", "attn_output");
  add("self_attn.q_norm", "attn_q_norm", TensorChange::kAddOne);
  add("self_attn.k_norm", "attn_k_norm", TensorChange::kAddOne);
  add("linear_attn.conv1d", "ssm_conv1d", TensorChange::kHeadChannels);
  add("linear_attn.A_log", "ssm_a", TensorChange::kHeadRates);
  add("linear_attn.dt_bias", "ssm_dt.bias", TensorChange::kHeadRows);
  add("linear_attn.norm", "ssm_norm");
  add("linear_attn.out_proj", "ssm_out", TensorChange::kHeadColumns);
  for (const char* part : {"gate", "up", "down"}) {
    folder.add_rule(fmt::format("model.layers.{{}}.mlp.{}_proj", part),
                    fmt::format("blk.{{}}.ffn_{}", part));
  }
}

Status import_common(HuggingFaceImport& folder, const SizeNames& sizes) {
  LlamaDefaults defaults;
  defaults.rope_base = 10000000.0;
  defaults.rope_part = 0.25;
  defaults.sizes = sizes;
  find_predictors(folder);
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape(defaults));
  AERIE_RETURN_IF_ERROR(add_layer_kinds(folder));
  add_rules(folder);
  return folder.require_announced_biases();
}

// `normalized`: the key that says whether experts' weights are; null: they are.
Status import_experts(HuggingFaceImport& folder, const char* normalized) {
  ExpertNames names;
  names.normalized = normalized;
  names.usually_normalized = true;
  AERIE_RETURN_IF_ERROR(folder.add_experts(names));
  for (const std::string matrix : {".experts.gate_up_proj", ".experts.down_proj"}) {
    folder.rename_suffix(matrix, matrix + ".weight");
  }
  folder.add_stack_rules("mlp.experts.gate_up_proj", "mlp.experts.down_proj");
  return folder.add_shared_expert();
}

Status import_next(HuggingFaceImport& folder) {
  folder.set_architecture("qwen3next");
  AERIE_RETURN_IF_ERROR(import_common(folder, {.head_dim = 256}));
  AERIE_RETURN_IF_ERROR(folder.add_linear_attention(false));
  folder.add_rule("model.layers.{}.linear_attn.in_proj_qkvz", "blk.{}.attn_qkv",
                  TensorChange::kGroupedInputs, "blk.{}.attn_gate");
  folder.add_rule("model.layers.{}.linear_attn.in_proj_ba", "blk.{}.ssm_ba");
  return import_experts(folder, "norm_topk_prob");
}

Status import_35_layers(HuggingFaceImport& folder, const SizeNames& sizes) {
  AERIE_RETURN_IF_ERROR(import_common(folder, sizes));
  AERIE_RETURN_IF_ERROR(folder.add_linear_attention(true));
  AERIE_RETURN_IF_ERROR(folder.add_rope_sections());
  const auto add = [&folder](const char* from, const char* to, TensorChange change) {
    folder.add_rule("model.layers.{}.linear_attn." + std::string(from), "blk.{}." + std::string(to),
                    change);
  };
  add("in_proj_qkv", "attn_qkv", TensorChange::kHeadChannels);
  add("in_proj_z", "attn_gate", TensorChange::kHeadRows);
  add("in_proj_b", "ssm_beta", TensorChange::kHeadRows);
  add("in_proj_a", "ssm_alpha", TensorChange::kHeadRows);
  return {};
}

Status import_35(HuggingFaceImport& folder) {
  folder.set_architecture("qwen35");
  return import_35_layers(folder, {.head_dim = 256});
}

Status import_35_moe(HuggingFaceImport& folder) {
  folder.set_architecture("qwen35moe");
  AERIE_RETURN_IF_ERROR(
      import_35_layers(folder, {.ffn = "moe_intermediate_size", .head_dim = 256}));
  return import_experts(folder, nullptr);
}

constexpr std::string_view kNextTypes[] = {"qwen3_next"};
constexpr std::string_view k35Types[] = {"qwen3_5", "qwen3_5_text"};
constexpr std::string_view k35MoeTypes[] = {"qwen3_5_moe", "qwen3_5_moe_text"};

}  // namespace

extern const ModelFamily kQwen3Next;
extern const ModelFamily kQwen35;
extern const ModelFamily kQwen35Moe;
const ModelFamily kQwen3Next = {"qwen3next", read_next, kNextTypes, import_next};
const ModelFamily kQwen35 = {"qwen35", read_35, k35Types, import_35};
const ModelFamily kQwen35Moe = {"qwen35moe", read_35_moe, k35MoeTypes, import_35_moe};

}  // namespace aerie
