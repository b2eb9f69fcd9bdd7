// The heads that `aerie speedup` trains, and how.
#pragma once

#include <cstdint>
#include <string>

#include "train/run/training_run.h"
#include "train/speedup/speedup_options.h"
#include "train/speedup/speedup_plan.h"

namespace aerie::train {

// A method's name, or "auto", which is null. kInvalidArgument, naming those that are known.
Expected<const TrainingMethod*> parse_speedup_method(const std::string& name);
// "auto, eagle3 or p-eagle", with that last word.
std::string speedup_methods(const std::string& last);

// With the defaults settled.
struct SpeedupHead {
  const TrainingMethod* method = nullptr;
  int64_t draft_vocab = 0;   // 0: all
  int64_t intermediate = 0;  // 0: the model's
};
SpeedupHead speedup_head(const SpeedupOptions& options, int vocab);

MakeMethod make_speedup_head(const SpeedupHead& head);

// That compute features while others train.
int feature_threads(const SpeedupOptions& options);

// A training of it for so many seconds, `hidden` being the model's width; the folders are those of
// OUT.
TrainSettings speedup_training(const SpeedupOptions& options, const SpeedupHead& head,
                               const SpeedupPlan& plan, const SpeedupSpeeds& speeds, int hidden,
                               double seconds);

}  // namespace aerie::train
