// `aerie audit`: see measure/audit/audit.h and docs/audit.md.
#pragma once

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace aerie {

// Adds the flags to `app`; the returned function runs the audit and gives the exit status: 0 if all
// replies that were compared are equal, 1 if one is not or could not be had, 130 after an
// interrupt. kInvalidArgument if nothing could be compared. It must not outlive `app`.
std::function<Expected<int>()> add_audit_flags(CLI::App& app);

}  // namespace aerie
