// SmolLM3: Llama's shape, with layers whose queries and keys do not turn (Yang et al. 2025,
// 2501.18795).
#include <utility>

#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

constexpr const char* kInterval = "no_rope_layer_interval";
constexpr const char* kLayers =
    "no_rope_layers";  // in GGUF: true where queries and keys do not turn

// GGUF files say nothing of it: llama.cpp has every fourth layer without. Files made here say
// which.
constexpr int kUsualInterval = 4;

Expected<Blueprint> read(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_llama_shape());
  blueprint.rope_style = kernels::RopeStyle::kPairs;
  AERIE_ASSIGN_OR_RETURN(const auto still, reader.flags(kLayers, blueprint.layers.size()));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    const bool is_still = still ? (*still)[i] : (i + 1) % kUsualInterval == 0;
    if (is_still) blueprint.layers[i].rope = LayerPlan::kNoRope;
  }
  return blueprint;
}

// no_rope_layers has 1 where a layer does turn.
Status import_rope_layers(HuggingFaceImport& folder) {
  const JsonObject& config = folder.config();
  std::vector<bool> still;
  if (config.has(kLayers)) {
    AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> turns, config.integers(kLayers));
    for (const int64_t turn : turns) still.push_back(turn == 0);
    if (std::cmp_not_equal(still.size(), folder.layers())) {
      return config.error(StatusCode::kInvalidData, kLayers,
                          "does not have one entry for each layer");
    }
  } else {
    AERIE_ASSIGN_OR_RETURN(const int64_t interval, config.integer(kInterval, kUsualInterval));
    if (interval < 1) return config.error(StatusCode::kInvalidData, kInterval, "is less than 1");
    for (int64_t i = 0; i < folder.layers(); ++i) still.push_back((i + 1) % interval == 0);
  }
  folder.add_flags(kLayers, still);
  return {};
}

Status import(HuggingFaceImport& folder) {
  folder.set_architecture("smollm3");
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape({.rope_base = 2000000.0}));
  AERIE_RETURN_IF_ERROR(import_rope_layers(folder));
  AERIE_ASSIGN_OR_RETURN(const bool used, folder.config().boolean("use_sliding_window", false));
  if (used) {
    AERIE_ASSIGN_OR_RETURN(const int64_t window, folder.sliding_window(0));
    AERIE_RETURN_IF_ERROR(folder.add_windows(window, [](int64_t) { return false; }));
  }
  folder.add_llama_rules(true);
  return folder.require_announced_biases();
}

constexpr std::string_view kModelTypes[] = {"smollm3"};

}  // namespace

extern const ModelFamily kSmolLm3;
const ModelFamily kSmolLm3 = {"smollm3", read, kModelTypes, import};

}  // namespace aerie
