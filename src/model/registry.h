// The families that can be loaded.
#pragma once

#include <span>
#include <string_view>

#include "model/blueprint.h"
#include "model/model.h"

namespace aerie {

class HuggingFaceImport;

// What a family's file provides. Adding one: the file, and a line in registry.cc.
struct ModelFamily {
  std::string_view architecture;  // general.architecture of GGUF files
  // From the metadata alone; every number is held to a range.
  Expected<Blueprint> (*read)(const ModelFile& file);

  // The values of model_type in a config.json that mean this family; may be empty.
  std::span<const std::string_view> model_types;
  // Says in GGUF's terms what a Hugging Face folder holds.
  Status (*import)(HuggingFaceImport& folder) = nullptr;
};

std::span<const ModelFamily* const> model_families();

// kUnsupported, naming it and what is supported, for a family that is not there.
Expected<const ModelFamily*> find_family(const ModelFile& file);
// What its family makes of the metadata; kUnsupported as find_family().
Expected<Blueprint> read_blueprint(const ModelFile& file);

}  // namespace aerie
