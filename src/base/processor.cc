#include "base/processor.h"

#include <sys/utsname.h>

#include <fstream>

namespace aerie {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    if (value != std::string::npos) return line.substr(value);
  }
  utsname system = {};
  return uname(&system) == 0 ? system.machine : "unknown";
}

}  // namespace aerie
