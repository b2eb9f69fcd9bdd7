// `aerie pull`, `aerie list` and `aerie remove`: models in the cache of Hugging Face's programs.
#pragma once

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace aerie {

// Each adds the flags of its subcommand; the returned function does it, and must not outlive `app`.
std::function<Status()> add_pull_flags(CLI::App& app);
std::function<Status()> add_list_flags(CLI::App& app);
std::function<Status()> add_remove_flags(CLI::App& app);

}  // namespace aerie
