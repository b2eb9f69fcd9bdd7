// Phi-3, 3.5 and 4-mini: Llama's shape with fused tensors, windows in all layers of some, and long
// contexts by two sets of divisors. Abdin et al. 2024, 2404.14219.
#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

Expected<Blueprint> read(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_llama_shape());
  blueprint.fused_qkv = true;
  blueprint.fused_gate_up = true;
  return blueprint;
}

Status import(HuggingFaceImport& folder) {
  folder.set_architecture("phi3");
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape({.norm_eps = 1e-5}));
  AERIE_ASSIGN_OR_RETURN(const int64_t window, folder.sliding_window(0));
  AERIE_RETURN_IF_ERROR(folder.add_windows(window, [](int64_t) { return true; }));
  folder.add_rule("model.layers.{}.self_attn.qkv_proj", "blk.{}.attn_qkv");
  folder.add_rule("model.layers.{}.mlp.gate_up_proj", "blk.{}.ffn_up");
  folder.add_llama_rules(false);
  return {};
}

constexpr std::string_view kModelTypes[] = {"phi3"};

}  // namespace

extern const ModelFamily kPhi3;
const ModelFamily kPhi3 = {"phi3", read, kModelTypes, import};

}  // namespace aerie
