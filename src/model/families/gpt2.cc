// GPT-2: learned positions, LayerNorm, biases everywhere, a feed-forward without a gate. Radford et
// al. 2019, "Language Models are Unsupervised Multitask Learners".
#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

Expected<Blueprint> read(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_sizes());
  blueprint.norm = NormKind::kLayer;
  blueprint.biases = Biases::kAll;
  blueprint.learned_positions = true;
  blueprint.fused_qkv = true;
  blueprint.gated = false;
  blueprint.activation = kernels::Activation::kGeluTanh;
  for (LayerPlan& layer : blueprint.layers) layer.rope = LayerPlan::kNoRope;
  return blueprint;
}

constexpr SizeNames kNames = {.layers = "n_layer",
                              .hidden = "n_embd",
                              .heads = "n_head",
                              .kv_heads = "n_head",
                              .ffn = "n_inner",
                              .context = "n_positions",
                              .ffn_factor = 4};

Status import(HuggingFaceImport& folder) {
  const JsonObject& config = folder.config();
  folder.set_architecture("gpt2");
  AERIE_RETURN_IF_ERROR(folder.copy_sizes(kNames));
  AERIE_RETURN_IF_ERROR(
      folder.copy_number("layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-5));
  AERIE_RETURN_IF_ERROR(
      folder.require_text("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"}));
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    AERIE_ASSIGN_OR_RETURN(const bool on, config.boolean(key, false));
    if (on) return config.error(StatusCode::kUnsupported, key, "is true");
  }
  AERIE_ASSIGN_OR_RETURN(const bool scaled, config.boolean("scale_attn_weights", true));
  if (!scaled) return config.error(StatusCode::kUnsupported, "scale_attn_weights", "is false");

  folder.rename_prefix("transformer.", "");
  folder.pass_over_suffix(".attn.bias");  // the causal mask
  folder.pass_over_suffix(".attn.masked_bias");
  folder.add_rule("wte", "token_embd");
  folder.add_rule("wpe", "position_embd");
  folder.add_rule("ln_f", "output_norm");
  folder.add_rule("lm_head", "output");
  folder.add_rule("h.{}.ln_1", "blk.{}.attn_norm");
  folder.add_rule("h.{}.ln_2", "blk.{}.ffn_norm");
  folder.add_rule("h.{}.attn.c_attn", "blk.{}.attn_qkv", TensorChange::kTranspose);
  folder.add_rule("h.{}.attn.c_proj", "blk.{}.attn_output", TensorChange::kTranspose);
  folder.add_rule("h.{}.mlp.c_fc", "blk.{}.ffn_up", TensorChange::kTranspose);
  folder.add_rule("h.{}.mlp.c_proj", "blk.{}.ffn_down", TensorChange::kTranspose);
  folder.require_biases(
      {"h.{}.attn.c_attn", "h.{}.attn.c_proj", "h.{}.mlp.c_fc", "h.{}.mlp.c_proj"});
  return {};
}

constexpr std::string_view kModelTypes[] = {"gpt2"};

}  // namespace

extern const ModelFamily kGpt2;
const ModelFamily kGpt2 = {"gpt2", read, kModelTypes, import};

}  // namespace aerie
