#include "model/device/device_planes.h"

#include <algorithm>

#include "base/errors.h"

namespace aerie {
namespace {

// Of entries, that are sent at a time.
constexpr int64_t kMovesAtOnce = 4096;
constexpr size_t kMoveBytes = (1 + 2 * kMovesAtOnce) * sizeof(int32_t);

}  // namespace

Status DevicePlanes::add(KvCache& cache) {
  const kernels::KvLayout& layout = cache.layout();
  if (layout.type != kernels::KvType::kF16) {
    return not_supported("a device keeps keys and values in 16 bits: leave --cache-type out");
  }
  if (cache.creation().planes != KvCache::Planes::kElsewhere) {
    return internal_error("the cache has planes of its own");
  }
  if (moves_.size() == 0) {
    AERIE_ASSIGN_OR_RETURN(moves_, DeviceMemory::allocate(device_, kMoveBytes, "the cache"));
    AERIE_ASSIGN_OR_RETURN(staged_moves_, DeviceMemory::allocate(device_, kMoveBytes, "the cache",
                                                                 DeviceMemory::Of::kHost));
  }
  Of of;
  of.id = next_id_++;
  of.shape = {layout.kv_heads, layout.head_dim, layout.value_prefix};
  const int64_t bytes = cache.pages() * layout.page();
  std::vector<uint16_t*> table;
  for (int layer = cache.creation().here; layer < cache.layers(); ++layer) {
    of.entries += cache.keeps_state(layer) ? 0 : 1;
  }
  const auto entries = static_cast<size_t>(of.entries);
  AERIE_ASSIGN_OR_RETURN(
      of.memory,
      DeviceMemory::allocate(device_, static_cast<size_t>(bytes) * entries, "the cache"));
  for (int layer = cache.creation().here; layer < cache.layers(); ++layer) {
    of.planes.push_back(nullptr);
    if (cache.keeps_state(layer)) continue;
    auto* at = of.memory.as<std::byte>() + std::ssize(table) * bytes;
    of.planes.back() = table.emplace_back(reinterpret_cast<uint16_t*>(at));
  }
  AERIE_ASSIGN_OR_RETURN(of.table,
                         DeviceMemory::allocate(device_, entries * sizeof(uint16_t*), "the cache"));
  AERIE_ASSIGN_OR_RETURN(of.states, StateMemory::create(cache, device_));
  device_.copy_in(of.table.as<void>(), static_cast<const void*>(table.data()),
                  entries * sizeof(uint16_t*));
  if (!device_.wait()) return internal_error("{}", device_.error());
  caches_.insert_or_assign(&cache, std::move(of));
  return {};
}

void DevicePlanes::make_moves(KvCache& cache) {
  Of& to = caches_.at(&cache);
  to.states.make_moves(cache);
  std::span<const SlotMove> moves = cache.moves();
  if (to.entries == 0) moves = {};  // all layers' are with the cache, or are states
  bool first = true;
  while (!moves.empty()) {
    if (!first) device_.wait();  // for the memory that the last ones are sent from
    first = false;
    const size_t count = std::min(moves.size(), static_cast<size_t>(kMovesAtOnce));
    auto* staged = staged_moves_.as<int32_t>();
    staged[0] = static_cast<int32_t>(count);
    for (size_t i = 0; i < count; ++i) {
      staged[1 + 2 * i] = moves[i].from;
      staged[2 + 2 * i] = moves[i].to;
    }
    device_.copy_in(moves_.as<void>(), staged, (1 + 2 * count) * sizeof(int32_t));
    device::MoveEntries args;
    args.count = moves_.as<int32_t>();
    args.pairs = moves_.as<int32_t>() + 1;
    args.planes = to.table.as<uint16_t* const>();
    args.layers = to.entries;
    args.shape = to.shape;
    device_.move_entries(args);
    moves = moves.subspan(count);
  }
  cache.clear_moves();
}

}  // namespace aerie
