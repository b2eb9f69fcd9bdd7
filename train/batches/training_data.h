// Folders of samples, put together for one training run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/batches/training_set.h"
#include "train/data/dataset.h"
#include "train/data/features/features.h"

namespace aerie::train {

struct DataOptions {
  std::vector<std::string> folders;  // of `aerie train data`
  std::string model;                 // that made the samples
  double held_out = -1.0;            // the fraction that validates; below 0: what data.json says
  int64_t max_length = 2048;         // of a sample

  enum class Features : uint8_t { kAuto, kStored, kComputed };
  Features features = Features::kAuto;  // kAuto: stored where they are, else computed
  int feature_threads = 1;              // to compute with
};

// Not thread-safe.
class TrainingData {
 public:
  // Samples without a generated token among their first max_length are left out. kInvalidArgument
  // if a folder's samples are of another model; else errors of read_dataset().
  static Expected<std::unique_ptr<TrainingData>> open(const DataOptions& options);

  // Its features are null until open_features().
  const TrainingSet& set() const { return set_; }
  const std::vector<Dataset>& datasets() const { return datasets_; }
  // Of the samples, their ids and what is generated in them: the same data, the same text.
  std::string fingerprint() const;
  // Over all samples, by token.
  std::vector<int64_t> token_counts(int vocab) const;

  // For what a method reads, of a model with so many layers. kNotFound if features are to be stored
  // ones and a folder lacks them.
  Status open_features(const MethodNeeds& needs, int layers);

  // What held-out samples begin with, until their first generated token: at most `count` prompts,
  // each once, evenly spread.
  std::vector<std::vector<int32_t>> held_out_prompts(int count) const;

 private:
  explicit TrainingData(DataOptions options) : options_(std::move(options)) {}
  Status add(const std::string& folder, const std::string& fingerprint);

  DataOptions options_;
  std::vector<Dataset> datasets_;  // as the folders; not moved once samples are pointed to
  TrainingSet set_;
  std::unique_ptr<FeatureSource> features_;
};

}  // namespace aerie::train
