// One reply to standard output, as it comes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "tools/run.h"

namespace aerie {

// Generates with the options' settings and prints the text; Ctrl-C ends it (interrupt.h). A line
// that the reply leaves open stays open.
Expected<Generation> print_reply(Engine& engine, const RunOptions& options,
                                 std::vector<int32_t> prompt, std::vector<int32_t> prediction = {});

}  // namespace aerie
