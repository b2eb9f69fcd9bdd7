// What `aerie serve` is to serve where there are several models.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "tools/serve/serve.h"

namespace CLI {
class App;
}

namespace aerie {

inline constexpr int kMostModels = 1024;

// Of several names, --models or --models-dir, which exclude each other: each model with the flags
// that `app` was given, and those that the file says in their place. Empty: there is one model
// alone. kInvalidArgument, naming the file and the model, for what cannot be.
Expected<std::vector<ServeOptions>> read_model_set(const CLI::App& app,
                                                   const std::vector<std::string>& models,
                                                   const ModelSetOptions& set);

}  // namespace aerie
