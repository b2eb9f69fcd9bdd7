// Qwen2 and 2.5, DeepSeek-R1's Qwen distillations and MiMo (2025, 2505.07608): Llama's shape with
// biases on queries, keys and values. Qwen3 (dense): norms of queries and keys instead. Yang et al.
// 2024, 2407.10671 and 2025, 2505.09388.
#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

Expected<Blueprint> read_qwen2(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, MetadataReader(file).read_llama_shape());
  blueprint.biases = Biases::kInput;
  return blueprint;
}

Expected<Blueprint> read_qwen3(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, MetadataReader(file).read_llama_shape());
  blueprint.query_key_norm = QueryKeyNorm::kHead;
  return blueprint;
}

Status import(HuggingFaceImport& folder, int head_dim) {
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape({.sizes = {.head_dim = head_dim}}));
  AERIE_RETURN_IF_ERROR(folder.add_qwen_windows());
  folder.add_llama_rules(false);
  return {};
}

Status import_qwen2(HuggingFaceImport& folder) {
  folder.set_architecture("qwen2");
  folder.require_biases({"model.layers.{}.self_attn.q_proj", "model.layers.{}.self_attn.k_proj",
                         "model.layers.{}.self_attn.v_proj"});
  return import(folder, 0);
}

Status import_qwen3(HuggingFaceImport& folder) {
  folder.set_architecture("qwen3");
  folder.add_rule("model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm");
  folder.add_rule("model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm");
  AERIE_RETURN_IF_ERROR(folder.require_announced_biases());
  return import(folder, 128);
}

constexpr std::string_view kQwen2Types[] = {"qwen2", "mimo"};
constexpr std::string_view kQwen3Types[] = {"qwen3"};

}  // namespace

extern const ModelFamily kQwen2;
extern const ModelFamily kQwen3;
const ModelFamily kQwen2 = {"qwen2", read_qwen2, kQwen2Types, import_qwen2};
const ModelFamily kQwen3 = {"qwen3", read_qwen3, kQwen3Types, import_qwen3};

}  // namespace aerie
