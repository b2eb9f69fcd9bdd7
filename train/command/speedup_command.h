// The flags of `aerie speedup`.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace CLI {
class App;
}

namespace aerie::train {

// Adds the subcommand `speedup`. The returned function runs it if it was parsed and gives the exit
// status, or -1 if not. `command` is the command line as it was typed. It must not outlive `app`.
std::function<Expected<int>(const std::string& command)> add_speedup_command(CLI::App& app);

}  // namespace aerie::train
