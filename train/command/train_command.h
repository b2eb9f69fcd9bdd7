// `aerie train METHOD`.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace CLI {
class App;
}

namespace aerie::train {

// Adds a subcommand for every one of training_methods(). The returned function runs the one that
// was parsed and gives the exit status, or -1 if none was. `command` is the command line as it was
// typed. It must not outlive `app`.
std::function<Expected<int>(const std::string& command)> add_train_commands(CLI::App& app);

}  // namespace aerie::train
