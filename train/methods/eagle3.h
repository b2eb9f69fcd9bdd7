// EAGLE-3 (2503.01840): a head that drafts from three of the target's streams, trained by running
// it on its own outputs as drafting does (the paper's training-time test).
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "base/status.h"
#include "train/method.h"
#include "train/methods/eagle3_head.h"
#include "train/nn/losses.h"
#include "train/target.h"

namespace aerie::train {

struct Eagle3Options {
  Eagle3HeadOptions head;
  int steps = 7;            // of the training-time test; 1: none
  double step_decay = 0.8;  // step j weighs step_decay^j
  Divergence loss = Divergence::kForwardKl;
  int depth = 5;  // of the drafts by which the head is judged, and which its configuration names
};

Expected<std::unique_ptr<Method>> make_eagle3(Target& target, const Eagle3Options& options,
                                              at::Generator& generator);

}  // namespace aerie::train
