// OLMoE: Llama's layers with experts in the place of the feed-forward, and norms of all heads of
// queries, and of keys, together. Muennighoff et al. 2024, 2409.02060.
#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

constexpr const char* kLimit = "attention.clamp_kqv";

Expected<Blueprint> read(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_expert_shape(false));
  blueprint.query_key_norm = QueryKeyNorm::kRow;
  AERIE_ASSIGN_OR_RETURN(blueprint.query_key_value_limit, reader.positive_or(kLimit, 0.0));
  return blueprint;
}

Status import(HuggingFaceImport& folder) {
  folder.set_architecture("olmoe");
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape({.norm_eps = 1e-5}));
  AERIE_RETURN_IF_ERROR(folder.add_experts({.ffn = nullptr}));
  constexpr const char* kClip = "clip_qkv";
  if (folder.config().has(kClip)) {
    AERIE_RETURN_IF_ERROR(folder.copy_number(kClip, kLimit, 0.0));
  }
  folder.add_rule("model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm");
  folder.add_rule("model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm");
  folder.add_llama_rules(false);
  return folder.require_announced_biases();
}

constexpr std::string_view kModelTypes[] = {"olmoe"};

}  // namespace

extern const ModelFamily kOlmoe;
const ModelFamily kOlmoe = {"olmoe", read, kModelTypes, import};

}  // namespace aerie
