// The two sources of features. Reading fails with kInvalidArgument for a sample that is not of
// their model and for an `out` of another size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/model_config.h"
#include "train/data/features/feature_source.h"

namespace aerie::train {

// kInvalidArgument, naming it, for a layer that the model lacks.
Status check_tap(int32_t layer, const ModelConfig& config);

// Runs the model whenever it is asked, over samples of at most `max_tokens` (>= 2) tokens; longer
// ones are kInvalidArgument. `threads` 0: default_threads(). kInvalidArgument, naming it, for a
// layer that the model lacks.
Expected<std::unique_ptr<FeatureSource>> compute_features(const std::string& model,
                                                          std::vector<int32_t> tap_layers,
                                                          int threads, int max_tokens,
                                                          const std::string& device = "auto");

// Reads what store_features() (train/data/features/feature_store.h) put into the folder: bfloat16.
// Any of the layers there may be asked for. kNotFound if there are no features or not of these
// layers, kInvalidData, naming file and tensor, for what is broken or not of the samples' model.
// Reading a sample that has none is kNotFound.
Expected<std::unique_ptr<FeatureSource>> stored_features(const std::string& folder,
                                                         std::vector<int32_t> tap_layers);

}  // namespace aerie::train
