// From samples to batches.
#pragma once

#include <span>

#include "base/status.h"
#include "engine/samples/sample.h"
#include "train/batches/batch.h"
#include "train/data/features/features.h"
#include "train/methods/training_method.h"

namespace aerie::train {

// The samples side by side, each cut to its first `max_length` tokens; on the CPU. `features` must
// give what feature_layers() says of `needs`, and may be null if that is nothing. `for_device`: it
// goes to to_device(), and its features are in 16 bits until then. kInternal if it does not; else
// its errors.
Expected<Batch> collate(std::span<const Sample* const> samples, int64_t max_length,
                        const MethodNeeds& needs, FeatureSource* features, bool for_device = false);

// The same batch on another device.
Batch to_device(Batch batch, const at::Device& device);

}  // namespace aerie::train
