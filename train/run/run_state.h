// All that a run needs to go on: RUN/checkpoint-STEP.safetensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/batches/batch_plan.h"
#include "train/nn/adamw.h"
#include "train/nn/parameters.h"

namespace aerie::train {

struct RunState {
  int64_t step = 0;  // steps done
  Position position;
  int64_t rows = 0;            // tokens trained on, those of prompts counted
  double seconds = 0.0;        // spent so far, evaluations counted
  std::optional<double> best;  // the best evaluation's score
  int64_t best_step = 0;
  int64_t stale = 0;          // evaluations since
  int64_t evaluated = 0;      // the step of the last evaluation; 0: none yet
  double evaluated_at = 0.0;  // `seconds` then
  bool finished = false;      // nothing is left to be done
};

// Puts the state, the parameters and their moments into the folder, whole or not at all, and
// removes all but the newest two of these files. kResourceExhausted if the disk is full.
Status save_state(const std::string& folder, const RunState& state, const Parameters& parameters,
                  AdamW& optimizer);

// Reads the newest file that is whole; one that is damaged is passed over with a warning. None if
// there is no file. kInvalidArgument, naming the first difference, if the parameters there are
// others than these; kInvalidData if no file is whole.
Expected<std::optional<RunState>> load_state(const std::string& folder,
                                             const Parameters& parameters, AdamW& optimizer);

// The same of the parameters' values alone: to begin another training with them.
Status load_values(const std::string& folder, const Parameters& parameters, AdamW& optimizer);

// A checksum of the values, the same wherever they are the same.
uint64_t values_checksum(AdamW& optimizer);

}  // namespace aerie::train
