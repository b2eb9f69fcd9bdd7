// The families that can be loaded, one line each.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "model/model.h"

namespace aerie {

struct ModelFamily {
  std::string_view architecture;  // general.architecture
  Expected<ModelConfig> (*read_config)(const ModelFile& file);
  Expected<std::unique_ptr<Model>> (*load)(const ModelFile& file, const ModelOptions& options);
};

std::span<const ModelFamily> model_families();

}  // namespace aerie
