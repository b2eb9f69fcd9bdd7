// gpt-oss: Llama's layers with experts in the place of the feed-forward, biases everywhere, a sink
// in every head's softmax, windows in every other layer, and YaRN. OpenAI 2025, 2508.10925.
#include <nlohmann/json.hpp>

#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

Expected<Blueprint> read(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_expert_shape(true));
  blueprint.activation = kernels::Activation::kClampedSilu;
  blueprint.attention_sinks = true;
  blueprint.biases = Biases::kAll;
  blueprint.ffn_norm = "post_attention_norm";
  // GGUF has no key for it, and the models were trained so.
  if (!reader.has(kYarnTruncate)) blueprint.ropes[0].yarn_truncate = false;
  for (LayerPlan& layer : blueprint.layers) layer.window = 0;
  AERIE_RETURN_IF_ERROR(reader.read_windows(2, blueprint));
  return blueprint;
}

// Where config.json says nothing of it.
const Json& usual_rope() {
  static const Json rope = {{"rope_type", "yarn"}, {"factor", 32.0},
                            {"beta_fast", 32.0},   {"beta_slow", 1.0},
                            {"truncate", false},   {"original_max_position_embeddings", 4096}};
  return rope;
}

Status require_number(const JsonObject& config, const char* key, double wanted) {
  AERIE_ASSIGN_OR_RETURN(const double value, config.number(key, wanted));
  if (value == wanted) return {};
  return config.error(StatusCode::kUnsupported, key, "is {}; {} is supported", value, wanted);
}

// Names that say what a tensor holds without a dot before it.
void rename_experts(HuggingFaceImport& folder) {
  for (const std::string matrix : {".experts.gate_up_proj", ".experts.down_proj"}) {
    folder.rename_suffix(matrix, matrix + ".weight");
    folder.rename_suffix(matrix + "_blocks", matrix + ".weight");
    folder.rename_suffix(matrix + "_bias", matrix + ".bias");
  }
}

Status import(HuggingFaceImport& folder) {
  const JsonObject& config = folder.config();
  folder.set_architecture("gpt-oss");
  AERIE_RETURN_IF_ERROR(folder.copy_sizes({.head_dim = 64}));
  AERIE_RETURN_IF_ERROR(
      folder.copy_number("rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5));
  AERIE_RETURN_IF_ERROR(folder.require_text("hidden_act", "silu", {"silu"}));
  AERIE_RETURN_IF_ERROR(require_number(config, "swiglu_limit", 7.0));
  AERIE_RETURN_IF_ERROR(require_number(config, "swiglu_alpha", 1.702));
  const Json* rope = folder.rope_parameters();
  AERIE_RETURN_IF_ERROR(folder.add_rope(rope != nullptr ? rope : &usual_rope(), 150000.0));
  AERIE_ASSIGN_OR_RETURN(const int64_t window, folder.sliding_window(128));
  AERIE_RETURN_IF_ERROR(folder.add_windows(window, [](int64_t i) { return i % 2 == 0; }));
  AERIE_RETURN_IF_ERROR(folder.add_experts({.count = "num_local_experts",
                                            .ffn = "intermediate_size",
                                            .normalized = nullptr,
                                            .router = "mlp.router",
                                            .gate = nullptr,
                                            .up = nullptr,
                                            .down = nullptr}));
  rename_experts(folder);
  folder.rename_suffix(".self_attn.sinks", ".self_attn.sinks.weight");
  folder.add_side_stack_rules("mlp.experts.gate_up_proj", "mlp.experts.down_proj");
  folder.add_rule("model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks");
  folder.add_rule("model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm");
  folder.add_llama_rules(false);
  folder.require_biases({"model.layers.{}.self_attn.q_proj", "model.layers.{}.self_attn.k_proj",
                         "model.layers.{}.self_attn.v_proj", "model.layers.{}.self_attn.o_proj",
                         "model.layers.{}.mlp.router", "model.layers.{}.mlp.experts.gate_up_proj",
                         "model.layers.{}.mlp.experts.down_proj"});
  return {};
}

constexpr std::string_view kModelTypes[] = {"gpt_oss"};

}  // namespace

extern const ModelFamily kGptOss;
const ModelFamily kGptOss = {"gpt-oss", read, kModelTypes, import};

}  // namespace aerie
