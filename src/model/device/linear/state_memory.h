// The states of a cache in a device's memory, and their records: of each layer with linear
// attention that the device computes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/device/device.h"
#include "kv/kv_cache.h"
#include "model/device/device_memory.h"

namespace aerie {

class StateMemory {
 public:
  // Of a cache none of whose layers keeps a state there: nothing.
  static Expected<StateMemory> create(const KvCache& cache, device::Device& device);

  // Of plane planes_here() + i of the cache's states.
  float* states(int i) const { return states_[static_cast<size_t>(i)]; }
  float* records(int i) const { return records_[static_cast<size_t>(i)]; }
  // Puts on the stream what the cache's states wrote down, and clears that.
  void make_moves(KvCache& cache);

 private:
  void send(std::span<const StateMove> moves);

  device::Device* device_ = nullptr;
  device::StateShape shape_;
  int first_plane_ = 0;
  DeviceMemory memory_, tables_;  // tables: of the addresses of states, then of records
  std::vector<float*> states_, records_;
  DeviceMemory moves_, staged_moves_;  // their number, then each
};

}  // namespace aerie
