// Features in files, for those who train for many epochs and have the disk:
// DIR/features-I-of-N-NNN.safetensors, a bfloat16 tensor [tokens][taps][hidden] for each sample,
// named by its id; the metadata name the model and the layers.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/samples/feature_file.h"
#include "train/data/answer_file.h"

namespace aerie::train {

struct StoreOptions {
  std::string folder;  // of read_dataset()
  std::string model;   // that the samples are of
  std::vector<int32_t> tap_layers;
  int threads = 0;
  std::string device = "auto";  // EngineOptions::device
  Shard shard;                  // of the samples' prompts
  int64_t file_bytes = kFeatureFileBytes;
  const std::atomic<bool>* cancel = nullptr;  // true ends the run; the file under way is lost
};

struct StoreResult {
  int there = 0;    // samples that had features
  int stored = 0;   // that got them
  int missing = 0;  // of the shard, still without: it was cancelled
  int64_t bytes = 0;
};

// Adds what the folder lacks. kInvalidArgument if the model is not that of the samples, or there
// are features of other layers; kResourceExhausted, saying how much it takes, if the disk has not
// the room. Files appear whole or not at all, and what is there is kept.
Expected<StoreResult> store_features(const StoreOptions& options);

// Takes all features out of the folder; the samples stay.
Status remove_features(const std::string& folder);

}  // namespace aerie::train
