// One step: the gradients of all processes' batches, and what the optimizer makes of their mean.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "format/json.h"
#include "tensor/dtype.h"
#include "train/methods/training_method.h"
#include "train/nn/adamw.h"
#include "train/run/groups/group.h"

namespace aerie::train {

struct StepOptions {
  uint64_t seed = 1;
  double clip_norm = 0.0;   // of the whole gradient; 0: not clipped
  double clip_value = 0.0;  // of every element, before that; 0: not clipped
  bool autocast = false;
  std::optional<DType> draft_type;  // RoundedValues: of steps and evaluations
  at::Device device = at::kCPU;
};

// Where the time of steps goes.
struct StepSeconds {
  double waiting = 0.0;    // for batches, and so for features
  PassSeconds passes;      // as far as the method tells them apart
  double others = 0.0;     // of passes what it does not
  double optimizer = 0.0;  // with the sums of several processes, and clipping

  double sum() const;
  void add(const StepSeconds& more);
};

// By name: "waiting", "forward", "loss", "backward", "passes" (what is in none of these three) and
// "optimizer"; what took no time is left out.
Json json_of(const StepSeconds& seconds);

// "1234 tokens/s: forward 31 %, loss 24 %, ...", the rest of `seconds` being evaluations,
// checkpoints and the like.
std::string rate_text(double tokens, double seconds, const StepSeconds& steps);

struct StepResult {
  Figures figures;             // of this process's batches
  double weight = 0.0;         // of all
  int64_t rows = 0;            // of all
  double gradient_norm = 0.0;  // of the mean, before clip_norm
  bool clipped = false;
  StepSeconds seconds;  // of this process
};

// Not thread-safe. Everything must outlive it.
class Stepper {
 public:
  Stepper(Method& method, AdamW& optimizer, Group& group, const StepOptions& options);

  // The batches of a step: `begin` to below `end` of the epoch's, of which this process has those
  // that `next` gives, in order.
  struct Share {
    int64_t begin = 0, end = 0;
    std::function<Expected<Batch>()> next;
  };

  // Step number `step`, from 1. With an error, in whichever process, no process's parameters
  // change. kInvalidData if loss or gradient are not finite.
  Expected<StepResult> step(int64_t step, double rate, const Share& share);

  // The figures of a batch without gradients; `number` seeds it.
  Expected<Figures> evaluate(const Batch& batch, int64_t number);

 private:
  Expected<Figures> run(Batch batch, uint64_t seed, bool train);
  Status accumulate(int64_t step, const Share& share, StepResult& result);

  Method& method_;
  AdamW& optimizer_;
  Group& group_;
  StepOptions options_;
  at::Generator generator_;
};

}  // namespace aerie::train
