// `aerie ctl`: orders to a server that runs (docs/serving.md).
#pragma once

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace aerie {

// Adds the subcommands to `app`; the returned function runs the one that was parsed, with the exit
// status. It must not outlive `app`.
std::function<Expected<int>()> add_ctl_flags(CLI::App& app);

}  // namespace aerie
