#include "base/system/control_groups.h"

#include <fstream>

namespace aerie {
namespace {

void add_with_those_above(const std::string& mount, std::string group, int version,
                          std::vector<ControlGroup>& out) {
  if (group.find("..") != std::string::npos) group.clear();
  for (;;) {
    out.push_back({mount + group, version});
    if (group.empty()) return;
    const size_t slash = group.find_last_of('/');
    group.resize(slash == std::string::npos ? 0 : slash);
  }
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& root, std::string_view controller) {
  const std::string mount = root + "/sys/fs/cgroup";
  const std::string wanted(controller);
  std::vector<ControlGroup> out;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // NUMBER:CONTROLLERS:PATH, of version 2 without controllers.
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* place : {"", "/unified"}) {
        add_with_those_above(mount + place, group, 2, out);
      }
    } else if (("," + controllers + ",").find("," + wanted + ",") != std::string::npos) {
      // Several share a hierarchy, and a link has the name of each.
      for (const std::string& place : {wanted, controllers}) {
        add_with_those_above(mount + "/" + place, group, 1, out);
      }
    }
  }
  return out;
}

}  // namespace aerie
