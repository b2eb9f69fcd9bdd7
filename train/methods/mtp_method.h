// A module for multi-token prediction (DeepSeek-V3, 2412.19437), unrolled over several tokens as
// FastMTP trains it (2509.18362).
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>

#include "base/status.h"
#include "train/methods/mtp_module.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"
#include "train/nn/losses.h"

namespace aerie::train {

struct MtpOptions {
  MtpModuleOptions module = {};
  int steps = 3;            // tokens that each row drafts
  double step_decay = 0.6;  // step j weighs step_decay^j; weights sum to 1
  // From the target's distribution; none: cross entropy with the text's token, as published.
  std::optional<Divergence> loss = {};
  int depth = 3;  // of the drafts by which the module is judged
};

Expected<std::unique_ptr<Method>> make_mtp(Target& target, const MtpOptions& options,
                                           at::Generator& generator);

}  // namespace aerie::train
