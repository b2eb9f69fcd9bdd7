#include "base/system/topology.h"

#include <algorithm>

namespace aerie {
namespace {

std::string counted(int count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

int Topology::at_once() const {
  const int most = std::max(1, usable);
  return quota > 0 && quota < most ? std::max(1, static_cast<int>(quota)) : most;
}

int Topology::threads() const {
  return std::clamp(performance_cores, 1, at_once());
}

std::string Topology::threads_reason() const {
  if (threads() < performance_cores) return "as many as the container's quota pays for";
  const bool alike = performance_cores == cores;
  std::string text =
      "one for each of " + counted(performance_cores, alike ? "core" : "performance core");
  if (!alike) text += ", none for " + counted(cores - performance_cores, "efficiency core");
  if (usable > cores) text += ", none for hyperthreads";
  return text;
}

int default_threads() {
  return machine_topology().threads();
}

}  // namespace aerie
