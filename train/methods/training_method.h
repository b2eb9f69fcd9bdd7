// A drafter while it is trained. The trainer (train/run/trainer.h) steps it, stores and restores
// it; a method says what its loss is and what its checkpoint looks like.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "train/batches/batch.h"
#include "train/nn/parameters.h"

namespace aerie::train {

// What a method reads of the target for each token, beside the tokens.
struct MethodNeeds {
  std::vector<int32_t> tap_layers;  // Batch::taps, in this order; empty: none
  bool last = false;                // Batch::last
};

// What passes take. A method that tells none of it apart leaves all at 0.
struct PassSeconds {
  double forward = 0.0;
  double loss = 0.0;  // from the last stream on, with the gradients up to there
  double backward = 0.0;

  double sum() const { return forward + loss + backward; }
  void add(const PassSeconds& more) {
    forward += more.forward;
    loss += more.loss;
    backward += more.backward;
  }
};

// Figures of a step for the log, by name; "loss" is among them. Sums over what `weight` counts, so
// that those of several batches and processes can be added up.
struct Figures {
  double weight = 0.0;  // supervised rows
  std::vector<std::pair<std::string, double>> sums;
  PassSeconds seconds;  // of this process

  void add(const std::string& name, double sum) { sums.emplace_back(name, sum); }
  // Adds the sums of the same names, and the seconds; takes over names that are new.
  void merge(const Figures& other);
};

// How a drafter of this method is opened by the engine, to measure it and to tell users.
struct DraftSettings {
  std::string speculate;  // as after --speculate, {} standing for the checkpoint: "eagle3:model={}"
  // The model that it drafts for, {} standing for the checkpoint, if the training has made one;
  // empty: the target.
  std::string model = {};

  // Of a drafter that loads the checkpoint.
  static DraftSettings of(std::string_view drafter, int64_t tokens);
};

// Not thread-safe.
class Method {
 public:
  virtual ~Method() = default;

  virtual const MethodNeeds& needs() const = 0;
  virtual Parameters& parameters() = 0;

  // Adds the gradients of scale * (sum of losses over the batch's supervised rows) to the
  // parameters'; the trainer chooses `scale` so that the whole step's gradient is that of the mean.
  // `generator` is seeded anew for every step; there is no other source of randomness. `train`
  // false: figures only, no gradient.
  virtual Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                                       bool train) = 0;

  // The supervised rows of a batch: what the mean is over.
  virtual double weight(const Batch& batch) const = 0;

  // Share of the training that is done, 0 to 1, before each step: for curricula.
  virtual void set_progress(double share) { (void)share; }

  // Writes what a user loads, in the public format, into an existing folder: safetensors and
  // config.json.
  virtual Status write(const std::string& folder) const = 0;
  virtual DraftSettings settings() const = 0;
};

}  // namespace aerie::train
