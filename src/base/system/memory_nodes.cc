#include "base/system/memory_nodes.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace aerie {

const MemoryNode& node_of_thread(const std::vector<MemoryNode>& nodes, int thread, int threads) {
  int64_t cpus = 0;
  for (const MemoryNode& node : nodes) cpus += static_cast<int64_t>(node.cpus.size());
  int64_t cpu = cpus * thread / threads;  // of all, in the nodes' order
  for (const MemoryNode& node : nodes) {
    cpu -= static_cast<int64_t>(node.cpus.size());
    if (cpu < 0) return node;
  }
  return nodes.back();
}

bool bind_to_cpus(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

bool interleave_memory(void* begin, size_t bytes, const std::vector<MemoryNode>& nodes) {
  constexpr int kBits = 8 * sizeof(unsigned long);
  unsigned long mask[16] = {};
  for (const MemoryNode& node : nodes) {
    if (node.number >= kBits * 16) return false;
    mask[node.number / kBits] |= 1ul << (node.number % kBits);
  }
  return syscall(SYS_mbind, begin, bytes, MPOL_INTERLEAVE, mask, sizeof(mask) * 8, 0) == 0;
}

}  // namespace aerie
