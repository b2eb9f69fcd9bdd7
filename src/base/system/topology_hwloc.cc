#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/system/processor_quota.h"
#include "base/system/topology.h"

namespace aerie {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Machine = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

// Of an empty description this machine. None if it cannot be looked at.
Machine load(const std::string& description) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Machine machine(topology);
  hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_CORE, HWLOC_OBJ_L3CACHE}) {
    hwloc_topology_set_type_filter(topology, type, HWLOC_TYPE_FILTER_KEEP_ALL);
  }
  // Where others may look at this thread's affinity, or start threads that inherit it, it has to
  // stay as it is.
  hwloc_topology_set_flags(
      topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
  if (description.starts_with('<')) {
    const auto bytes = static_cast<int>(description.size() + 1);
    if (hwloc_topology_set_xmlbuffer(topology, description.c_str(), bytes) != 0) return nullptr;
  } else if (!description.empty()) {
    if (hwloc_topology_set_synthetic(topology, description.c_str()) != 0) return nullptr;
  }
  return hwloc_topology_load(topology) == 0 ? std::move(machine) : nullptr;
}

// Cores of one kind, as far as that tells how fast they are.
struct CoreKind {
  Bitmap cpus;
  std::string type;  // "IntelCore", "IntelAtom"; empty: not told
  double speed = 0;  // to be compared with that of other kinds; 0: not known
};

std::vector<CoreKind> core_kinds(hwloc_topology_t machine) {
  std::vector<CoreKind> kinds;
  const int count = hwloc_cpukinds_get_nr(machine, 0);
  for (int i = 0; i < count; ++i) {
    CoreKind kind{Bitmap(hwloc_bitmap_alloc()), "", 0};
    unsigned infos = 0;
    hwloc_info_s* info = nullptr;
    if (hwloc_cpukinds_get_info(machine, static_cast<unsigned>(i), kind.cpus.get(), nullptr, &infos,
                                &info, 0) != 0) {
      continue;
    }
    double capacity = 0, frequency = 0;
    for (const hwloc_info_s& one : std::span(info, infos)) {
      const std::string_view name = one.name;
      if (name == "CoreType") kind.type = one.value;
      if (name == "LinuxCapacity") capacity = std::atof(one.value);
      if (name == "FrequencyMaxMHz") frequency = std::atof(one.value);
    }
    kind.speed = capacity > 0 ? capacity : frequency;
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

// Not just the fastest kind: processors have single cores that clock a little higher than their
// like.
Bitmap efficiency_cpus(hwloc_topology_t machine) {
  constexpr double kSlow = 0.5;  // of the fastest
  Bitmap cpus(hwloc_bitmap_alloc());
  const std::vector<CoreKind> kinds = core_kinds(machine);
  const bool typed =
      std::ranges::any_of(kinds, [](const CoreKind& kind) { return kind.type == "IntelCore"; });
  double fastest = 0;
  for (const CoreKind& kind : kinds) fastest = std::max(fastest, kind.speed);
  for (const CoreKind& kind : kinds) {
    const bool slow =
        typed ? kind.type == "IntelAtom" : kind.speed > 0 && kind.speed < kSlow * fastest;
    if (slow) hwloc_bitmap_or(cpus.get(), cpus.get(), kind.cpus.get());
  }
  return cpus;
}

// The nodes' processors among those that may be used. Memory without processors, such as the fast
// or the far one of a node, is listed as near to processors that have a node already.
std::vector<MemoryNode> nodes_of(hwloc_topology_t machine, hwloc_const_bitmap_t usable) {
  std::vector<MemoryNode> nodes;
  const Bitmap left(hwloc_bitmap_dup(usable));
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    MemoryNode own{static_cast<int>(node->os_index), {}};
    for (int cpu = hwloc_bitmap_first(node->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(node->cpuset, cpu)) {
      if (hwloc_bitmap_isset(left.get(), static_cast<unsigned>(cpu))) own.cpus.push_back(cpu);
    }
    hwloc_bitmap_andnot(left.get(), left.get(), node->cpuset);
    if (!own.cpus.empty()) nodes.push_back(std::move(own));
  }
  std::ranges::sort(nodes, {}, &MemoryNode::number);
  return nodes;
}

Topology topology_of(hwloc_topology_t machine, hwloc_const_bitmap_t allowed, double quota) {
  Topology out;
  const Bitmap usable(hwloc_bitmap_dup(hwloc_topology_get_topology_cpuset(machine)));
  out.processors = hwloc_bitmap_weight(usable.get());
  hwloc_bitmap_and(usable.get(), usable.get(), allowed);
  const Bitmap slow = efficiency_cpus(machine);
  std::set<hwloc_obj_t> cores, fast;
  std::map<hwloc_obj_t, std::set<hwloc_obj_t>> caches;
  for (hwloc_obj_t pu = nullptr;
       (pu = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_PU, pu)) != nullptr;) {
    if (!hwloc_bitmap_isset(usable.get(), pu->os_index)) continue;
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(machine, HWLOC_OBJ_CORE, pu);
    if (core == nullptr) core = pu;  // some virtual machines hide which are of one core
    cores.insert(core);
    if (!hwloc_bitmap_isset(slow.get(), pu->os_index)) fast.insert(core);
    const hwloc_obj_t l3 = hwloc_get_ancestor_obj_by_type(machine, HWLOC_OBJ_L3CACHE, pu);
    if (l3 != nullptr) caches[l3].insert(core);
  }
  out.usable = hwloc_bitmap_weight(usable.get());
  out.cores = static_cast<int>(cores.size());
  out.performance_cores = static_cast<int>(fast.empty() ? cores.size() : fast.size());
  for (const auto& [cache, sharing] : caches) {
    out.l3_cores.push_back(static_cast<int>(sharing.size()));
  }
  std::ranges::sort(out.l3_cores, std::greater<>());
  out.nodes = nodes_of(machine, usable.get());
  out.quota = quota;
  return out;
}

}  // namespace

Topology machine_topology() {
  // Never destroyed: threads may ask while the program ends.
  static const hwloc_topology_t machine = load("").release();
  const double quota = processor_quota();
  Topology unknown;
  unknown.quota = quota;
  if (machine == nullptr) return unknown;
  const Bitmap allowed(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(machine, allowed.get(), HWLOC_CPUBIND_THREAD) != 0) {
    hwloc_bitmap_fill(allowed.get());
  }
  return topology_of(machine, allowed.get(), quota);
}

Topology described_topology(const std::string& description, const std::vector<int>& cpus,
                            double quota) {
  const Machine machine = load(description);
  if (machine == nullptr) return {};
  const Bitmap allowed(hwloc_bitmap_alloc());
  if (cpus.empty()) hwloc_bitmap_fill(allowed.get());
  for (const int cpu : cpus) hwloc_bitmap_set(allowed.get(), static_cast<unsigned>(cpu));
  return topology_of(machine.get(), allowed.get(), quota);
}

}  // namespace aerie
