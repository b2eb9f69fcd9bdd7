// Gemma 1 to 3, text. All scale the embedding and gate with GELU; 2 adds soft caps, windows in
// every other layer and norms after each branch; 3 has norms of queries and keys instead of the
// caps, and a rotary embedding of its own for windowed layers. Gemma Team 2024, 2403.08295 and
// 2408.00118; 2025, 2503.19786.
#include <cmath>
#include <utility>

#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

// The largest Gemma 2 and 3 divide scores by sqrt(hidden / heads), which GGUF files do not say.
constexpr int kGemma2LargestLayers = 46;
constexpr int kGemma3LargestLayers = 62;

Expected<Blueprint> read_gemma(const MetadataReader& reader) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_sizes());
  blueprint.activation = kernels::Activation::kGeluTanh;
  blueprint.embedding_scale = std::sqrt(static_cast<double>(blueprint.config.hidden));
  AERIE_ASSIGN_OR_RETURN(RopeConfig rope, reader.read_rope(blueprint.config));
  blueprint.ropes.push_back(std::move(rope));
  AERIE_ASSIGN_OR_RETURN(blueprint.attention_scale, reader.positive_or("attention.scale", 0.0));
  return blueprint;
}

void scale_scores_of_largest(int layers, Blueprint& blueprint) {
  if (blueprint.attention_scale == 0.0 && blueprint.config.layers == layers) {
    blueprint.attention_scale =
        1.0 / std::sqrt(static_cast<double>(blueprint.config.hidden) / blueprint.config.heads);
  }
}

Expected<Blueprint> read_gemma1(const ModelFile& file) {
  return read_gemma(MetadataReader(file));
}

Expected<Blueprint> read_gemma2(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_gemma(reader));
  blueprint.post_norms = true;
  AERIE_ASSIGN_OR_RETURN(blueprint.attention_soft_cap,
                         reader.positive_or("attn_logit_softcapping", 0.0));
  AERIE_ASSIGN_OR_RETURN(blueprint.logit_soft_cap,
                         reader.positive_or("final_logit_softcapping", 0.0));
  AERIE_RETURN_IF_ERROR(reader.read_windows(2, blueprint));
  scale_scores_of_largest(kGemma2LargestLayers, blueprint);
  return blueprint;
}

Expected<Blueprint> read_gemma3(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_gemma(reader));
  blueprint.post_norms = true;
  blueprint.query_key_norm = QueryKeyNorm::kHead;
  AERIE_ASSIGN_OR_RETURN(blueprint.attention_soft_cap,
                         reader.positive_or("attn_logit_softcapping", 0.0));
  AERIE_ASSIGN_OR_RETURN(blueprint.logit_soft_cap,
                         reader.positive_or("final_logit_softcapping", 0.0));
  RopeConfig local;
  local.dimensions = blueprint.ropes[0].dimensions;
  AERIE_ASSIGN_OR_RETURN(local.base, reader.positive_or("rope.freq_base_swa", 10000.0));
  blueprint.ropes.push_back(std::move(local));
  AERIE_RETURN_IF_ERROR(reader.read_windows(6, blueprint));
  for (LayerPlan& layer : blueprint.layers) layer.rope = layer.window > 0 ? 1 : 0;
  scale_scores_of_largest(kGemma3LargestLayers, blueprint);
  return blueprint;
}

void add_rules(HuggingFaceImport& folder, bool post_norms) {
  constexpr TensorChange kAddOne = TensorChange::kAddOne;
  folder.add_rule("model.norm", "output_norm", kAddOne);
  folder.add_rule("model.layers.{}.input_layernorm", "blk.{}.attn_norm", kAddOne);
  if (post_norms) {
    folder.add_rule("model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm",
                    kAddOne);
    folder.add_rule("model.layers.{}.pre_feedforward_layernorm", "blk.{}.ffn_norm", kAddOne);
    folder.add_rule("model.layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm", kAddOne);
  } else {
    folder.add_rule("model.layers.{}.post_attention_layernorm", "blk.{}.ffn_norm", kAddOne);
  }
  folder.add_rule("model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm", kAddOne);
  folder.add_rule("model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm", kAddOne);
  folder.add_llama_rules(false);  // the first rule for a name counts
}

Status import_common(HuggingFaceImport& folder, const Json* rope, double base) {
  AERIE_RETURN_IF_ERROR(folder.copy_sizes({.head_dim = 256}));
  AERIE_RETURN_IF_ERROR(
      folder.copy_number("rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6));
  // Gemma's first files said "gelu" and meant the approximation, which hidden_activation then
  // named.
  if (folder.config().has("hidden_activation")) {
    AERIE_RETURN_IF_ERROR(folder.require_text("hidden_activation", "", {"gelu_pytorch_tanh"}));
  } else {
    AERIE_RETURN_IF_ERROR(
        folder.require_text("hidden_act", "gelu_pytorch_tanh", {"gelu_pytorch_tanh", "gelu"}));
  }
  AERIE_RETURN_IF_ERROR(folder.require_announced_biases());
  return folder.add_rope(rope, base);
}

Status import_caps(HuggingFaceImport& folder, double query_scalar, double attention_cap,
                   double logit_cap) {
  const JsonObject& config = folder.config();
  AERIE_ASSIGN_OR_RETURN(const double scalar,
                         positive_number(config, "query_pre_attn_scalar", query_scalar));
  folder.add_number("attention.scale", 1.0 / std::sqrt(scalar));
  for (const auto& [key, usual] : {std::pair("attn_logit_softcapping", attention_cap),
                                   std::pair("final_logit_softcapping", logit_cap)}) {
    AERIE_ASSIGN_OR_RETURN(const double cap, config.number(key, folder.is_null(key) ? 0.0 : usual));
    if (cap != 0.0) AERIE_RETURN_IF_ERROR(folder.copy_number(key, key, usual));
  }
  return {};
}

Status import_gemma1(HuggingFaceImport& folder) {
  folder.set_architecture("gemma");
  add_rules(folder, false);
  return import_common(folder, folder.rope_parameters(), 10000.0);
}

Status import_gemma2(HuggingFaceImport& folder) {
  folder.set_architecture("gemma2");
  add_rules(folder, true);
  AERIE_RETURN_IF_ERROR(import_common(folder, folder.rope_parameters(), 10000.0));
  AERIE_RETURN_IF_ERROR(import_caps(folder, 256.0, 50.0, 30.0));
  AERIE_ASSIGN_OR_RETURN(const int64_t window, folder.sliding_window(4096));
  return folder.add_windows(window, [](int64_t i) { return i % 2 == 0; });
}

// The rotary embedding of windowed layers is plain; `rope` is that of the others.
Status import_local_rope(HuggingFaceImport& folder, const Json*& rope) {
  const JsonObject& config = folder.config();
  rope = folder.rope_parameters();
  AERIE_ASSIGN_OR_RETURN(double base, positive_number(config, "rope_local_base_freq", 10000.0));
  if (rope != nullptr) {
    AERIE_ASSIGN_OR_RETURN(const JsonObject both, JsonObject::view(*rope, config.file()));
    if (both.has("full_attention")) rope = both.find("full_attention");
    if (both.has("sliding_attention")) {
      AERIE_ASSIGN_OR_RETURN(const JsonObject local, both.object("sliding_attention"));
      AERIE_ASSIGN_OR_RETURN(base, positive_number(local, "rope_theta", base));
      AERIE_ASSIGN_OR_RETURN(const std::string_view type, local.string("rope_type", "default"));
      if (type != "default") {
        return local.error(StatusCode::kUnsupported, "rope_type",
                           "is not 'default', which windowed layers have");
      }
    }
  }
  folder.add_number("rope.freq_base_swa", base);
  return {};
}

Status import_gemma3(HuggingFaceImport& folder) {
  folder.set_architecture("gemma3");
  folder.rename_prefix("language_model.model.", "model.");
  folder.rename_prefix("model.language_model.", "model.");
  folder.rename_prefix("language_model.lm_head", "lm_head");
  for (const char* prefix : {"vision_tower.", "model.vision_tower.", "multi_modal_projector.",
                             "model.multi_modal_projector."}) {
    folder.pass_over_prefix(prefix);
  }
  add_rules(folder, true);
  AERIE_ASSIGN_OR_RETURN(const bool both_ways,
                         folder.config().boolean("use_bidirectional_attention", false));
  if (both_ways) {
    return folder.config().error(StatusCode::kUnsupported, "use_bidirectional_attention",
                                 "is true: rows would see what comes after them");
  }
  const Json* rope = nullptr;
  AERIE_RETURN_IF_ERROR(import_local_rope(folder, rope));
  AERIE_RETURN_IF_ERROR(import_common(folder, rope, 1000000.0));
  AERIE_RETURN_IF_ERROR(import_caps(folder, 256.0, 0.0, 0.0));
  const JsonObject& config = folder.config();
  AERIE_ASSIGN_OR_RETURN(const int64_t window, folder.sliding_window(4096));
  const char* key =
      config.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  AERIE_ASSIGN_OR_RETURN(const int64_t period, config.integer(key, 6));
  if (period < 1) return config.error(StatusCode::kInvalidData, key, "is less than 1");
  return folder.add_windows(window, [period](int64_t i) { return (i + 1) % period != 0; });
}

constexpr std::string_view kGemma1Types[] = {"gemma"};
constexpr std::string_view kGemma2Types[] = {"gemma2"};
constexpr std::string_view kGemma3Types[] = {"gemma3_text", "gemma3"};

}  // namespace

extern const ModelFamily kGemma1;
extern const ModelFamily kGemma2;
extern const ModelFamily kGemma3;
const ModelFamily kGemma1 = {"gemma", read_gemma1, kGemma1Types, import_gemma1};
const ModelFamily kGemma2 = {"gemma2", read_gemma2, kGemma2Types, import_gemma2};
const ModelFamily kGemma3 = {"gemma3", read_gemma3, kGemma3Types, import_gemma3};

}  // namespace aerie
