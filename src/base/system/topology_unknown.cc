// In place of topology_hwloc.cc where hwloc is not there: each processor counts as a core.
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/system/processor_quota.h"
#include "base/system/topology.h"

namespace aerie {

Topology machine_topology() {
  Topology out;
  out.processors = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t set;
  out.usable = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : out.processors;
  out.cores = out.performance_cores = out.usable;
  out.quota = processor_quota();
  return out;
}

Topology described_topology(const std::string&, const std::vector<int>&, double) {
  return {};
}

}  // namespace aerie
