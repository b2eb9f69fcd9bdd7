// The planes of caches in a device's memory: keys and values of each layer, or its states.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "kernels/device/device.h"
#include "kv/kv_cache.h"
#include "model/device/device_memory.h"
#include "model/device/linear/state_memory.h"

namespace aerie {

class DevicePlanes {
 public:
  struct Of {
    int id = 0;                     // no other cache has or had it
    std::vector<uint16_t*> planes;  // by layer; null for one without keys and values of its own
    DeviceMemory memory;
    DeviceMemory table;  // of the addresses of those that are there, of one shape side by side
    struct Alike {
      device::CacheShape shape;
      int count = 0;
    };
    std::vector<Alike> alike;  // how many these are
    StateMemory states;
  };

  explicit DevicePlanes(device::Device& device) : device_(device) {}

  // kUnsupported for a cache that is not of binary16; kResourceExhausted without memory for it.
  Status add(KvCache& cache);
  void remove(KvCache& cache) { caches_.erase(&cache); }
  // Requires that it was added.
  const Of& of(const KvCache& cache) const { return caches_.at(&cache); }
  // Puts on the stream what the cache wrote down, and clears that.
  void make_moves(KvCache& cache);

 private:
  Status add_planes(const KvCache& cache, Of& of);

  device::Device& device_;
  std::map<const KvCache*, Of> caches_;
  int next_id_ = 0;
  DeviceMemory moves_, staged_moves_;  // their number, then pairs
};

}  // namespace aerie
