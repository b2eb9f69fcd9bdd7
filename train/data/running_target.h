// The model that training data comes from: opened, with a cache for several sequences.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "engine/engine.h"

namespace aerie::train {

struct RunningTargetOptions {
  std::string model;            // a GGUF file or a Hugging Face folder
  int threads = 0;              // 0: default_threads()
  std::string device = "auto";  // EngineOptions::device
  int context = 0;    // positions of a sequence; 0: the model's own, at most kDefaultContext
  int sequences = 1;  // at a time
  int max_taps = 0;   // layers tapped at a time

  static constexpr int kDefaultContext = 2048;
};

// An engine opened for it. One thread at a time.
class RunningTarget {
 public:
  // kInvalidArgument for options that the model cannot have, kResourceExhausted if the memory does
  // not suffice, else errors of opening and loading.
  static Expected<std::unique_ptr<RunningTarget>> open(const RunningTargetOptions& options);

  const RunningTargetOptions& options() const { return options_; }  // with the defaults filled in
  OpenedModel& parts() { return engine_->parts(); }
  const OpenedModel& parts() const { return engine_->parts(); }
  const ModelConfig& config() const { return parts().config(); }
  const ModelSource& source() const { return parts().source; }

 private:
  RunningTarget(const RunningTargetOptions& options, std::unique_ptr<Engine> engine)
      : options_(options), engine_(std::move(engine)) {}

  RunningTargetOptions options_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace aerie::train
