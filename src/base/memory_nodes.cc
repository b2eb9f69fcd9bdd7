#include "base/memory_nodes.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace aerie {
namespace {

namespace fs = std::filesystem;

// The number at the start of `text`, which it is taken off; -1 if there is none.
int take_number(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// "0-3,8,10-11", as the kernel writes it. Of anything else, what comes before it.
std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const int first = take_number(text);
    int last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = take_number(text);
    }
    if (first < 0 || last < first || last >= CPU_SETSIZE) break;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (!text.starts_with(',')) break;
    text.remove_prefix(1);
  }
  return cpus;
}

}  // namespace

std::vector<MemoryNode> memory_nodes(const std::string& folder) {
  std::vector<MemoryNode> nodes;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return nodes;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::string_view number = name;
    if (!number.starts_with("node")) continue;
    number.remove_prefix(4);
    MemoryNode node;
    node.number = take_number(number);
    if (node.number < 0 || !number.empty()) continue;
    std::ifstream file(it->path() / "cpulist");
    std::string list;
    std::getline(file, list);
    node.cpus = parse_cpu_list(list);
    std::erase_if(node.cpus, [&](int cpu) { return !CPU_ISSET(cpu, &allowed); });
    if (!node.cpus.empty()) nodes.push_back(std::move(node));
  }
  std::ranges::sort(nodes, {}, &MemoryNode::number);
  return nodes;
}

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
