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
  if (cache.layout().type != kernels::KvType::kF16) {
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
  AERIE_RETURN_IF_ERROR(add_planes(cache, of));
  AERIE_ASSIGN_OR_RETURN(of.states, StateMemory::create(cache, device_));
  caches_.insert_or_assign(&cache, std::move(of));
  return {};
}

Status DevicePlanes::add_planes(const KvCache& cache, Of& of) {
  const int here = cache.creation().here;
  int64_t bytes = 0;
  for (int layer = here; layer < cache.layers(); ++layer) {
    if (cache.keeps_kv(layer)) bytes += cache.pages() * cache.layout(layer).page();
  }
  AERIE_ASSIGN_OR_RETURN(of.memory,
                         DeviceMemory::allocate(device_, static_cast<size_t>(bytes), "the cache"));
  auto* at = of.memory.as<std::byte>();
  std::vector<std::vector<uint16_t*>> tables;
  for (int layer = here; layer < cache.layers(); ++layer) {
    of.planes.push_back(nullptr);
    if (!cache.keeps_kv(layer)) continue;
    const kernels::KvLayout& layout = cache.layout(layer);
    of.planes.back() = reinterpret_cast<uint16_t*>(at);
    at += cache.pages() * layout.page();
    const device::CacheShape shape = {layout.kv_heads, layout.head_dim, layout.value_prefix};
    const auto like = std::ranges::find(of.alike, shape, &Of::Alike::shape);
    const auto index = static_cast<size_t>(like - of.alike.begin());
    if (like == of.alike.end()) {
      of.alike.push_back({shape});
      tables.emplace_back();
    }
    tables[index].push_back(of.planes.back());
    ++of.alike[index].count;
  }
  std::vector<uint16_t*> all;
  for (const std::vector<uint16_t*>& table : tables) {
    all.insert(all.end(), table.begin(), table.end());
  }
  AERIE_ASSIGN_OR_RETURN(
      of.table, DeviceMemory::allocate(device_, all.size() * sizeof(uint16_t*), "the cache"));
  device_.copy_in(of.table.as<void>(), static_cast<const void*>(all.data()),
                  all.size() * sizeof(uint16_t*));
  if (!device_.wait()) return internal_error("{}", device_.error());
  return {};
}

void DevicePlanes::make_moves(KvCache& cache) {
  Of& to = caches_.at(&cache);
  to.states.make_moves(cache);
  std::span<const SlotMove> moves = cache.moves();
  if (to.alike.empty()) moves = {};  // all layers' are with the cache, or are states
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
    for (const Of::Alike& planes : to.alike) {
      args.layers = planes.count;
      args.shape = planes.shape;
      device_.move_entries(args);
      args.planes += planes.count;
    }
    moves = moves.subspan(count);
  }
  cache.clear_moves();
}

}  // namespace aerie
