// A whole training: data, target, method, and a model card beside what is trained.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "train/batches/training_data.h"
#include "train/methods/training_methods.h"
#include "train/run/groups/group.h"
#include "train/run/trainer.h"

namespace aerie::train {

struct TrainSettings {
  std::string model;
  DataOptions data;
  // A head that is trained further, by its own shape and vocabulary: TrainOptions::init, too, the
  // rate is a part of the usual one unless it was given, and newer samples count for more. Empty:
  // there is none.
  std::string continued;
  bool rate_is_given = false;
  TrainOptions train;
  GroupOptions group;
  int threads = 0;        // of tensors and of the engine; 0: all
  int eval_prompts = 16;  // to measure acceptance with; 0: it is not measured
  int eval_tokens = 128;  // of a reply
  double eval_temperature = 0.0;
  std::string eval_speculate;  // instead of what the method says; empty: that
  std::string data_notes;      // a file
};

struct TrainingRun {
  TrainResult result;
  int64_t parameters = 0;  // that are trained
  size_t training_samples = 0, validation_samples = 0;
};

// What `aerie train METHOD` does once its flags are read. Of `calls`, `acceptance` and `describe`
// are set here; `cancel` and `say` are the caller's. `command` is for the model card. Sets
// LibTorch's number of threads. Errors of opening any of it, and of train().
Expected<TrainingRun> run_training(const MakeMethod& make, TrainSettings settings,
                                   const std::string& command, TrainCalls calls);

}  // namespace aerie::train
