// Machines whose processors each have memory of their own (NUMA): near CPUs reach it faster. Which
// nodes there are tells base/system/topology.h.
#pragma once

#include <cstddef>
#include <vector>

namespace aerie {

struct MemoryNode {
  int number = 0;         // the system's
  std::vector<int> cpus;  // near to it that this process may use
  bool operator==(const MemoryNode&) const = default;
};

// The node for thread `thread` of `threads`: neighbours share one, and each node has threads in
// proportion to its CPUs. Requires a node.
const MemoryNode& node_of_thread(const std::vector<MemoryNode>& nodes, int thread, int threads);

// Lets the calling thread run on these CPUs alone; false, and no effect, if the system refuses.
bool bind_to_cpus(const std::vector<int>& cpus);

// Has the pages of memory that was not touched yet come from the nodes in turn, for what all
// threads read. False, and no effect, if the system refuses: `begin` must be a page's.
bool interleave_memory(void* begin, size_t bytes, const std::vector<MemoryNode>& nodes);

}  // namespace aerie
