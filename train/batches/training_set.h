// The texts of a training run and what the target holds for them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/samples/sample.h"
#include "train/data/features/features.h"
#include "train/methods/training_method.h"

namespace aerie::train {

// Samples and source are not owned and must outlive it.
struct TrainingSet {
  std::vector<const Sample*> training;    // each with a token to learn from
  std::vector<const Sample*> validation;  // may be empty
  // Gives the layers of feature_layers(); null if that names none. Used by one thread at a time.
  FeatureSource* features = nullptr;
};

// The layers that a source has to give for a method: its taps, then `layers` (the stream behind the
// last one) if it reads that.
std::vector<int32_t> feature_layers(const MethodNeeds& needs, int layers);

}  // namespace aerie::train
