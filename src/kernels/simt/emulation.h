// What tests set and read of the emulated machine. All of it may be called from any thread, at
// times when nothing runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simt/tensor_core.h"

namespace simt {

// The order in which threads and blocks run between their meetings. 0: ascending, 1: descending,
// else shuffled.
void set_order(uint64_t seed);

// What the tensor cores of the device are; kHopper at first.
void set_tensor_core(const TensorCore& core);

// The bytes of the device's memory, at most 16 GiB.
void set_device_memory(size_t bytes);

// The bytes of shared memory that a block may have, at most 227 KiB, which it has at first.
void set_shared_memory(size_t bytes);

// The device is lost after so many further operations (0: at once); every call fails from then on,
// until revive_device().
void lose_device(long operations);
void revive_device();

struct Counts {
  long launches = 0;        // of kernels, those of graphs included, as they are put into a stream
  long graph_launches = 0;  // of whole graphs
  long copies = 0;          // and settings of memory, likewise
  long waits = 0;           // for a stream, an event or the device, until that has nothing to do
  long short_waits = 0;     // for an event behind which there is more to do
  long switches = 0;        // between emulated threads
};
Counts counts();
// What was counted between b and a.
inline Counts operator-(const Counts& a, const Counts& b) {
  return {a.launches - b.launches, a.graph_launches - b.graph_launches, a.copies - b.copies,
          a.waits - b.waits,       a.short_waits - b.short_waits,       a.switches - b.switches};
}

}  // namespace simt
