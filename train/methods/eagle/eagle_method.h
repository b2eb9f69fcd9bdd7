// EAGLE (2401.15077), whose heads EAGLE-2 (2406.16858) drafts with too: a head that learns the
// target's next hidden state from the last one and the token that came of it.
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "base/status.h"
#include "train/methods/eagle/eagle_head.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"

namespace aerie::train {

struct EagleOptions {
  EagleHeadOptions head = {};
  double noise = 0.1;  // as HassOptions::noise
  EagleLoss loss = {};
  int depth = 5;  // of the drafts by which the head is judged
};

Expected<std::unique_ptr<Method>> make_eagle(Target& target, const EagleOptions& options,
                                             at::Generator& generator);

}  // namespace aerie::train
