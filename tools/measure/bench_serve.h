// `aerie bench serve`: see measure/load/serve_bench.h and docs/serving-bench.md.
#pragma once

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace aerie {

// Adds the flags to `app`; the returned function runs it. It must not outlive `app`.
std::function<Status()> add_bench_serve(CLI::App& app);

}  // namespace aerie
