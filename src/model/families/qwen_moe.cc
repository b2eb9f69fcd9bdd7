// Qwen1.5-MoE, Qwen2-57B-A14B and Qwen3-MoE: Qwen2's and Qwen3's layers with experts in the place
// of the feed-forward; Qwen2's have one besides that every row uses. Yang et al. 2024, 2407.10671
// and 2025, 2505.09388.
#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

Expected<Blueprint> read_qwen2(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, MetadataReader(file).read_expert_shape(false));
  blueprint.biases = Biases::kInput;
  return blueprint;
}

Expected<Blueprint> read_qwen3(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, MetadataReader(file).read_expert_shape(true));
  blueprint.query_key_norm = QueryKeyNorm::kHead;
  return blueprint;
}

Status import(HuggingFaceImport& folder) {
  AERIE_RETURN_IF_ERROR(folder.add_experts());
  folder.add_llama_rules(false);
  return {};
}

Status import_qwen2(HuggingFaceImport& folder) {
  folder.set_architecture("qwen2moe");
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape({}));
  constexpr const char* kSliding = "use_sliding_window";
  AERIE_ASSIGN_OR_RETURN(const bool sliding, folder.config().boolean(kSliding, false));
  if (sliding) return folder.config().error(StatusCode::kUnsupported, kSliding, "is true");
  AERIE_RETURN_IF_ERROR(folder.add_shared_expert());
  folder.require_biases({"model.layers.{}.self_attn.q_proj", "model.layers.{}.self_attn.k_proj",
                         "model.layers.{}.self_attn.v_proj"});
  return import(folder);
}

Status import_qwen3(HuggingFaceImport& folder) {
  folder.set_architecture("qwen3moe");
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape({}));
  AERIE_ASSIGN_OR_RETURN(const bool sliding, folder.config().boolean("use_sliding_window", false));
  AERIE_ASSIGN_OR_RETURN(const int64_t window, folder.sliding_window(4096));
  AERIE_RETURN_IF_ERROR(folder.add_windows(sliding ? window : 0, [](int64_t) { return true; }));
  folder.add_rule("model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm");
  folder.add_rule("model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm");
  AERIE_RETURN_IF_ERROR(folder.require_announced_biases());
  return import(folder);
}

constexpr std::string_view kQwen2Types[] = {"qwen2_moe"};
constexpr std::string_view kQwen3Types[] = {"qwen3_moe"};

}  // namespace

extern const ModelFamily kQwen2Moe;
extern const ModelFamily kQwen3Moe;
const ModelFamily kQwen2Moe = {"qwen2moe", read_qwen2, kQwen2Types, import_qwen2};
const ModelFamily kQwen3Moe = {"qwen3moe", read_qwen3, kQwen3Types, import_qwen3};

}  // namespace aerie
