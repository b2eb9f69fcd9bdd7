// Trains a drafter: steps, checkpoints, evaluations, and the folder that holds all of it.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "tensor/dtype.h"
#include "train/batches/batch_plan.h"
#include "train/batches/training_set.h"
#include "train/methods/training_method.h"
#include "train/nn/adamw.h"
#include "train/run/evaluate.h"
#include "train/run/groups/group.h"
#include "train/run/run_folder.h"
#include "train/run/run_state.h"
#include "train/run/schedule.h"
#include "train/run/stepper.h"

namespace aerie::train {

// Every so many steps, or whenever so much time has gone by; 0: not by these.
struct Interval {
  int64_t steps = 0;
  double seconds = 0.0;
};

struct TrainOptions {
  std::string folder;  // RUN
  RunConfig config;    // what stands in its config.json
  // Parameters to begin with: a run's folder of the same method and shape, or a checkpoint's, of
  // which those count that have the same names. Empty: the method's own.
  std::string init;
  uint64_t seed = 1;
  Budget budget;
  Schedule schedule;
  AdamWOptions adamw;
  double clip_norm = 0.0;   // of the whole gradient; 0: not clipped
  double clip_value = 0.0;  // of each element; 0: not clipped
  PlanOptions plan;         // its seed is set here
  int accumulate = 1;       // batches of a process in a step
  bool autocast = false;
  // The type that the drafter is trained for and its config.json asks for (nn/rounded_values.h);
  // none: as it is stored.
  std::optional<DType> draft_type;
  at::Device device = at::kCPU;
  int64_t log_steps = 10;
  Interval checkpoint = {0, 600.0};
  Interval evaluation = {0, 0.0};
  bool evaluates_first = false;  // what the run begins with is measured, too, and may be the best
  int patience = 0;              // evaluations without gain before it stops; 0: it does not
  int64_t validation_tokens = 16384;  // the loss is measured on about so many
};

// An evaluation of the parameters after a step.
struct Evaluation {
  int64_t step = 0;
  Figures figures;                       // on held-out samples; weight 0: there are none
  std::optional<Acceptance> acceptance;  // in process 0 alone

  // By which runs are compared, more is better: tau, else the negative loss.
  double score() const;
};

enum class TrainEnd { kDone, kStoppedEarly, kInterrupted };

struct TrainResult {
  TrainEnd end = TrainEnd::kDone;
  RunState state;
  std::optional<Evaluation> last;  // of the final parameters; none if nothing was left to be done
  // Of this call: tokens that steps went through, seconds in all, and those of the steps.
  int64_t rows = 0;
  double seconds = 0.0;
  StepSeconds steps;
};

// All may be empty. Those of one process are called in process 0 alone.
struct TrainCalls {
  // Measures the checkpoint in a folder.
  std::function<Expected<Acceptance>(const std::string& folder)> acceptance;
  // Adds a model card to a folder with a checkpoint.
  std::function<Status(const std::string& folder, const RunState&, const Evaluation&)> describe;
  // Lines for people: one for every line of the log that tells of steps, one for all else.
  std::function<void(const std::string& line)> progress;
  std::function<void(const std::string& line)> say;
  // Asked after every step; true ends the run with a checkpoint. May be null.
  const std::atomic<bool>* cancel = nullptr;
};

// Begins the run or, if the folder has checkpoints, goes on with it; what comes of it is the same,
// bit for bit, on the same machine with a budget of steps or epochs. RUN/final then holds the last
// parameters and RUN/best the best ones of all evaluations.
//
// kInvalidArgument for options that cannot be, samples that do not suffice, and a folder of another
// run; kResourceExhausted if the disk is full; kInvalidData if loss or gradients are not finite;
// else errors of the method, the features and the other processes. After an error the run can go on
// from its last checkpoint.
Expected<TrainResult> train(Method& method, const TrainingSet& set, const TrainOptions& options,
                            Group& group, const TrainCalls& calls);

}  // namespace aerie::train
