// What the target's layers hold for the tokens of a sample: taps, which trained heads read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/data/sample.h"

namespace aerie::train {

// From files or by running the model. One thread at a time.
class FeatureSource {
 public:
  virtual ~FeatureSource() = default;

  // As in ForwardBatch: the streams that enter these layers; the number of layers stands for the
  // stream behind the last one, before the final norm.
  virtual std::span<const int32_t> tap_layers() const = 0;
  virtual int hidden() const = 0;

  // Writes [tokens][taps][hidden] to `out`, which is as large, for all of the sample's tokens.
  // kInvalidArgument for a sample that is not of this model and for an `out` of another size.
  virtual Status read(const Sample& sample, std::span<float> out) = 0;
};

// Runs the model whenever it is asked, over samples of at most `max_tokens` (>= 2) tokens; longer
// ones are kInvalidArgument. `threads` 0: available_cpus(). kInvalidArgument, naming it, for a
// layer that the model lacks.
Expected<std::unique_ptr<FeatureSource>> compute_features(const std::string& model,
                                                          std::vector<int32_t> tap_layers,
                                                          int threads, int max_tokens);

// Reads what store_features() (train/data/feature_store.h) put into the folder: bfloat16. Any of
// the layers there may be asked for. kNotFound if there are no features or not of these layers,
// kInvalidData, naming file and tensor, for what is broken or not of the samples' model. Reading a
// sample that has none is kNotFound.
Expected<std::unique_ptr<FeatureSource>> stored_features(const std::string& folder,
                                                         std::vector<int32_t> tap_layers);

}  // namespace aerie::train
