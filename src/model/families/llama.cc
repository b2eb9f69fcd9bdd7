// Llama 1 to 3.3 and the many models of its shape: Vicuna, TinyLlama, Yi, SmolLM2, DeepSeek-R1's
// Llama distillations; Mistral, which adds a sliding window. Touvron et al. 2023, 2302.13971; Jiang
// et al. 2023, 2310.06825; Dubey et al. 2024, 2407.21783. Mixtral: the same with experts in the
// place of the feed-forward. Jiang et al. 2024, 2401.04088.
#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

constexpr std::string_view kMistral = "mistral";

Expected<Blueprint> read(const ModelFile& file) {
  const MetadataReader reader(file);
  // Mixtral is a Llama with experts to GGUF.
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.has("expert_count")
                                                  ? reader.read_expert_shape(true)
                                                  : reader.read_llama_shape());
  blueprint.rope_style = kernels::RopeStyle::kPairs;
  return blueprint;
}

Status import(HuggingFaceImport& folder) {
  folder.set_architecture("llama");
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape({}));
  AERIE_ASSIGN_OR_RETURN(const std::string_view type, folder.whole_config().string("model_type"));
  if (type == kMistral) {  // Llama's configurations may have the key and do not mean it
    AERIE_ASSIGN_OR_RETURN(const int64_t window, folder.sliding_window(4096));
    AERIE_RETURN_IF_ERROR(folder.add_windows(window, [](int64_t) { return true; }));
  }
  folder.add_llama_rules(true);
  return folder.require_announced_biases();
}

Status import_mixtral(HuggingFaceImport& folder) {
  folder.set_architecture("llama");
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape({.norm_eps = 1e-5, .rope_base = 1e6}));
  AERIE_RETURN_IF_ERROR(folder.add_experts({.count = "num_local_experts",
                                            .ffn = nullptr,
                                            .normalized = nullptr,
                                            .router = "block_sparse_moe.gate",
                                            .gate = "block_sparse_moe.experts.{}.w1",
                                            .up = "block_sparse_moe.experts.{}.w3",
                                            .down = "block_sparse_moe.experts.{}.w2"}));
  AERIE_ASSIGN_OR_RETURN(const int64_t window, folder.sliding_window(0));
  AERIE_RETURN_IF_ERROR(folder.add_windows(window, [](int64_t) { return true; }));
  folder.add_llama_rules(true);
  return {};
}

constexpr std::string_view kModelTypes[] = {"llama", kMistral};
constexpr std::string_view kMixtralTypes[] = {"mixtral"};

}  // namespace

extern const ModelFamily kLlama;
extern const ModelFamily kMixtral;
const ModelFamily kLlama = {"llama", read, kModelTypes, import};
// Of folders alone: its GGUF files are found as Llama's.
const ModelFamily kMixtral = {"llama", read, kMixtralTypes, import_mixtral};

}  // namespace aerie
