// `aerie train data`.
#pragma once

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace aerie::train {

// Adds the flags to `app`; the returned function does what was asked for and returns the program's
// exit status. It must not outlive `app`.
std::function<Expected<int>()> add_data_flags(CLI::App& app);

}  // namespace aerie::train
