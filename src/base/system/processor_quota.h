// How much of the processors' time containers leave to this process.
#pragma once

#include <string>

namespace aerie {

// In processors (1.5), by version 1 and 2 of control groups: the least of the process's own group
// and all that it is in; -1: no limit. `root` stands before /proc and /sys.
double processor_quota(const std::string& root = "");

}  // namespace aerie
