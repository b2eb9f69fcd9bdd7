// The decoder-only transformer that all families share.
#pragma once

#include <memory>

#include "model/blueprint.h"
#include "model/model.h"

namespace aerie {

// Loads the weights that the blueprint asks for. The file must outlive the model.
Expected<std::unique_ptr<Model>> load_transformer(const ModelFile& file, Blueprint blueprint,
                                                  const ModelOptions& options);

}  // namespace aerie
