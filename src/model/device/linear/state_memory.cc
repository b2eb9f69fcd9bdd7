#include "model/device/linear/state_memory.h"

#include <algorithm>

#include "base/errors.h"
#include "kernels/device/linear/state_shape.h"

namespace aerie {
namespace {

constexpr int64_t kStateMovesAtOnce = 4096;
constexpr int64_t kStateMoveInts = 4;
constexpr size_t kStateMoveBytes = (1 + kStateMoveInts * kStateMovesAtOnce) * sizeof(int32_t);
constexpr const char* kStatesPurpose = "the states of sequences";

}  // namespace

Expected<StateMemory> StateMemory::create(const KvCache& cache, device::Device& device) {
  StateMemory out;
  const StateStore* store = cache.states();
  if (store == nullptr || store->planes_here() == store->planes()) return out;
  out.device_ = &device;
  out.shape_ = device::state_shape(store->layout());
  out.first_plane_ = store->planes_here();
  const int planes = store->planes() - store->planes_here();
  const int64_t states = store->sizes().slots() * store->layout().state();
  const int64_t records = store->sizes().records * store->layout().record();
  const auto allocate = [&](DeviceMemory& memory, size_t bytes, DeviceMemory::Of of) -> Status {
    AERIE_ASSIGN_OR_RETURN(memory, DeviceMemory::allocate(device, bytes, kStatesPurpose, of));
    return {};
  };
  constexpr auto kDevice = DeviceMemory::Of::kDevice;
  const auto all = static_cast<size_t>(planes * (states + records)) * sizeof(float);
  AERIE_RETURN_IF_ERROR(allocate(out.memory_, all, kDevice));
  AERIE_RETURN_IF_ERROR(allocate(out.moves_, kStateMoveBytes, kDevice));
  AERIE_RETURN_IF_ERROR(allocate(out.staged_moves_, kStateMoveBytes, DeviceMemory::Of::kHost));
  std::vector<float*> table;
  auto* at = out.memory_.as<float>();
  for (int i = 0; i < planes; ++i, at += states) out.states_.push_back(at);
  for (int i = 0; i < planes; ++i, at += records) out.records_.push_back(at);
  table = out.states_;
  table.insert(table.end(), out.records_.begin(), out.records_.end());
  const size_t bytes = table.size() * sizeof(float*);
  AERIE_RETURN_IF_ERROR(allocate(out.tables_, bytes, kDevice));
  device.copy_in(out.tables_.as<void>(), static_cast<const void*>(table.data()), bytes);
  if (!device.wait()) return internal_error("{}", device.error());
  return out;
}

// At most kStateMovesAtOnce.
void StateMemory::send(std::span<const StateMove> moves) {
  auto* staged = staged_moves_.as<int32_t>();
  int32_t* to = staged + 1;
  for (const StateMove& move : moves) {
    const int32_t plane = move.plane - first_plane_;
    for (const int32_t value : {static_cast<int32_t>(move.kind), plane, move.from, move.to}) {
      *to++ = value;
    }
  }
  staged[0] = static_cast<int32_t>(moves.size());
  device_->copy_in(moves_.as<void>(), staged, static_cast<size_t>(to - staged) * sizeof(int32_t));
  device::MoveStates args;
  args.count = moves_.as<int32_t>();
  args.moves = moves_.as<int32_t>() + 1;
  args.planes = static_cast<int>(states_.size());
  args.states = tables_.as<float* const>();
  args.records = tables_.as<float* const>() + args.planes;
  args.shape = shape_;
  device_->move_states(args);
}

void StateMemory::make_moves(KvCache& cache) {
  if (states_.empty()) return;
  std::span<const StateMove> moves = cache.states()->moves();
  for (bool first = true; !moves.empty(); first = false) {
    if (!first) device_->wait();  // for the memory that the last ones are sent from
    const size_t count = std::min(moves.size(), static_cast<size_t>(kStateMovesAtOnce));
    send(moves.first(count));
    moves = moves.subspan(count);
  }
  cache.states()->clear_moves();
}

}  // namespace aerie
