// The speeds that `aerie speedup` plans with, each measured for a few seconds.
#pragma once

#include <vector>

#include "base/status.h"
#include "report/prompt_set.h"
#include "train/speedup/speedup_head.h"
#include "train/speedup/speedup_options.h"
#include "train/speedup/speedup_plan.h"

namespace aerie::train {

// `seconds` is for each of the three; loading, and one pass at least, take what they take.
// kCancelled once options.cancel is true; else errors of opening and running.
Expected<SpeedupSpeeds> measure_speeds(const SpeedupOptions& options, const SpeedupHead& head,
                                       const std::vector<Prompt>& prompts, bool chat_template,
                                       double seconds);

}  // namespace aerie::train
