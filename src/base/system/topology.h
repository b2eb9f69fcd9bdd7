// The processors of the machine, what this process may use of them, and how many threads to take.
#pragma once

#include <string>
#include <vector>

#include "base/system/memory_nodes.h"

namespace aerie {

// A processor is what the system schedules on: a core, or one of its hyperthreads. Cores, caches
// and nodes are those with usable processors, and count by these.
struct Topology {
  int processors = 1;  // that are on
  int usable = 1;      // of them, by affinity and cpuset
  int cores = 1;
  int performance_cores = 1;      // of them: all if they are alike, or efficiency cores alone
  std::vector<int> l3_cores;      // of each third-level cache, the cores; none: not known
  std::vector<MemoryNode> nodes;  // by number; none: not known
  double quota = -1;              // processors' time that containers leave; -1: no limit

  // The threads that run at the same time: the usable processors, within the quota. At least 1.
  int at_once() const;
  // The threads to take unless somebody says: one for each performance core, within the quota. A
  // part of a processor's time is not worth a thread: the others would wait for it. At least 1.
  int threads() const;
  // What their number comes from, for people: "one for each of 8 performance cores".
  std::string threads_reason() const;

  bool operator==(const Topology&) const = default;
};

// Of this machine and the calling thread. The machine is looked at once, affinity and quota at each
// call.
Topology machine_topology();

// Of a machine that is described: as hwloc's XML or by hwloc's words for made-up ones ("core:4
// pu:2"), of which `cpus` may be used; none: all. As above without any if it cannot be read.
Topology described_topology(const std::string& description, const std::vector<int>& cpus = {},
                            double quota = -1);

// Those of machine_topology().
int default_threads();

}  // namespace aerie
