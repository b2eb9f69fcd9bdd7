// What a device is told of the states of layers with linear attention: which rows go on from which,
// what goes into states and records (kernels/device/linear/linear_ops.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/forward_batch.h"
#include "kernels/device/device.h"
#include "kv/kv_cache.h"
#include "model/attention/state_plan.h"
#include "model/device/pass/pass_indices.h"

namespace aerie {

class StateInput {
 public:
  // For passes of at most so many rows, through at most so many layers that keep states.
  StateInput(int rows, int taps, int planes);

  // Integers that rows and sequences take where there is room for so many rows, and the most
  // indices besides.
  static int64_t ints(int64_t room, int planes);
  static int64_t most_indices(int64_t rows, int taps);

  // Where they lie in the pass, for so many rows, from `at` on; `base` is in the device's memory.
  void place(const int32_t* base, int64_t at, int64_t room);
  // Writes them, in memory of the host, with the indices. `planes`: those of the states of the
  // layers that the pass runs, in order. How many sequences there are.
  Expected<int> build(const ForwardBatch& batch, const KvCache& cache, std::span<const int> planes,
                      int32_t* host, PassIndices& indices);
  // The pass that was built is on its way: the states of these planes hold what was committed.
  void advance(KvCache& cache, std::span<const int> planes) const;

  // In device memory, of the layer of this number among those of the pass.
  device::StatePass pass(int number) const;

 private:
  Status add_sequence(size_t number, const KvCache& cache, std::span<const int> planes,
                      int32_t* host, PassIndices& indices);
  Status add_rows(size_t number, const KvCache& cache, device::PassStateRow* rows,
                  PassIndices& indices);
  Status add_row(int32_t row, int32_t before, device::PassStateRow* rows, PassIndices& indices);
  void trace(int32_t row, size_t count);

  size_t most_inputs_;  // before a row's own
  StatePlan plan_;
  const int32_t* base_ = nullptr;
  int64_t rows_at_ = 0, sequences_at_ = 0, bases_at_ = 0, room_ = 0;
  // Scratch of a row: its ancestors' inputs, the newest first, and their records, likewise.
  std::vector<int32_t> sources_, records_;
};

}  // namespace aerie
