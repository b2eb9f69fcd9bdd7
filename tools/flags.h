// The flags of `aerie run`.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "tools/run.h"

namespace CLI {
class App;
}

namespace aerie {

// Adds the flags to `app`; the returned function turns what was parsed into options and says what
// contradicts itself. It must not outlive `app`.
std::function<Expected<RunOptions>()> add_run_flags(CLI::App& app);

}  // namespace aerie
