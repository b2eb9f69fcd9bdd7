// `aerie bench`: measurements, and models to measure.
#pragma once

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace aerie {

// Adds the subcommands to `app`; the returned function runs the one that was given: tables to
// standard output, notes to standard error. It must not outlive `app`.
std::function<Status()> add_bench_flags(CLI::App& app);
// The same for `aerie tune`, which has no subcommands.
std::function<Status()> add_tune_flags(CLI::App& app);

}  // namespace aerie
