// The control groups of Linux that this process is in, with which containers limit it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aerie {

struct ControlGroup {
  std::string folder;  // of its files; it may not be there
  int version = 2;     // of the interface: the files' names
};

// Those of a controller ("memory", "cpu"), each followed by all that it is in, for each heeds its
// own limit. In a container the paths may be the host's: then only the uppermost is there. `root`
// stands before /proc and /sys.
std::vector<ControlGroup> control_groups(const std::string& root, std::string_view controller);

}  // namespace aerie
