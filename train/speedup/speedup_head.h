// The heads that `aerie speedup` trains, and how.
#pragma once

#include <cstdint>
#include <vector>

#include "train/run/training_run.h"
#include "train/speedup/speedup.h"
#include "train/speedup/speedup_plan.h"

namespace aerie::train {

// With kAuto settled.
struct SpeedupHead {
  SpeedupMethod method = SpeedupMethod::kEagle3;
  int64_t draft_vocab = 0;  // 0: all
};
SpeedupHead speedup_head(const SpeedupOptions& options, int vocab);

// "eagle3", "p-eagle".
const char* method_name(SpeedupMethod method);

MakeMethod make_speedup_head(const SpeedupHead& head);

// That compute features while others train.
int feature_threads(const SpeedupOptions& options);

// A training of it for so many seconds, `hidden` being the model's width; the folders are those of
// OUT.
TrainSettings speedup_training(const SpeedupOptions& options, const SpeedupHead& head,
                               const SpeedupPlan& plan, const SpeedupSpeeds& speeds, int hidden,
                               double seconds);

// How many tokens are worth drafting with it: what is tried.
std::vector<int> speedup_depths(SpeedupMethod method);

}  // namespace aerie::train
