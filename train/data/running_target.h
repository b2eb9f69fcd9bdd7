// The model that training data comes from: opened, with a cache for several sequences.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/model_source.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace aerie::train {

struct RunningTargetOptions {
  std::string model;  // a GGUF file or a Hugging Face folder
  int threads = 0;    // 0: available_cpus()
  int context = 0;    // positions of a sequence; 0: the model's own, at most kDefaultContext
  int sequences = 1;  // at a time
  int max_taps = 0;   // layers tapped at a time

  static constexpr int kDefaultContext = 2048;
};

// One thread at a time.
class RunningTarget {
 public:
  // kInvalidArgument for options that the model cannot have, kResourceExhausted if the memory does
  // not suffice, else errors of opening and loading.
  static Expected<std::unique_ptr<RunningTarget>> open(const RunningTargetOptions& options);

  const RunningTargetOptions& options() const { return options_; }  // with the defaults filled in
  const ModelOptions& model_options() const { return model_options_; }
  const ModelConfig& config() const { return model_->config(); }
  const ModelSource& source() const { return source_; }
  Model& model() { return *model_; }
  KvCache& cache() { return *cache_; }

  // Rows of a pass that the model takes.
  int max_rows() const;
  static constexpr int kPrefillChunk = 512;

 private:
  RunningTarget() = default;

  RunningTargetOptions options_;
  ModelOptions model_options_;
  std::unique_ptr<ThreadPool> pool_;
  ModelSource source_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
};

}  // namespace aerie::train
