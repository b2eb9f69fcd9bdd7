// `aerie run`: a prompt in, text out.
#pragma once

#include "base/status.h"
#include "tools/run/run_options.h"

namespace aerie {

// Returns the exit status: 0, or 130 after an interrupt.
Expected<int> run_prompt(const RunOptions& options);
Expected<int> run_chat(const RunOptions& options);

}  // namespace aerie
