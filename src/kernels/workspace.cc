#include <algorithm>

#include "kernels/backend.h"
#include "kernels/cpu/tiles.h"

namespace aerie::kernels {

Expected<Activations> Activations::allocate(int64_t capacity, int64_t max_k) {
  Activations a;
  a.max_k = max_k;
  a.capacity = capacity;
  const auto elements = static_cast<size_t>(capacity * max_k);
  const auto groups = static_cast<size_t>(capacity * (max_k / kActivationGroup));
  AERIE_ASSIGN_OR_RETURN(a.floats, Buffer::allocate(elements * sizeof(float)));
  AERIE_ASSIGN_OR_RETURN(a.ordered, Buffer::allocate(elements * sizeof(float)));
  AERIE_ASSIGN_OR_RETURN(a.codes, Buffer::allocate(elements));
  AERIE_ASSIGN_OR_RETURN(a.scales, Buffer::allocate(groups * sizeof(float)));
  AERIE_ASSIGN_OR_RETURN(a.sums, Buffer::allocate(groups * kGroupSums * sizeof(int32_t)));
  AERIE_ASSIGN_OR_RETURN(a.scaled_sums, Buffer::allocate(groups * kGroupSums * sizeof(float)));
  return a;
}

Expected<AttentionWorkspace> AttentionWorkspace::allocate(const KvLayout& layout, int heads,
                                                          int max_rows, int max_positions) {
  AttentionWorkspace w;
  w.max_chunks = (max_positions + kAttentionChunk - 1) / kAttentionChunk;
  w.partial_stride = layout.value_dim() + 16;
  w.blocks.reserve(static_cast<size_t>(max_rows) + 1);
  const int64_t split_rows = std::min<int64_t>(kSplitRows, max_rows);
  AERIE_ASSIGN_OR_RETURN(
      w.partials,
      Buffer::allocate(static_cast<size_t>(split_rows * heads * w.max_chunks * w.partial_stride) *
                       sizeof(float)));
  return w;
}

Expected<StateWorkspace> StateWorkspace::allocate(const StateLayout& layout, int threads,
                                                  int most_kept) {
  StateWorkspace w;
  w.most_kept = most_kept;
  const int64_t tiles = int64_t{threads} * (1 + most_kept);
  AERIE_ASSIGN_OR_RETURN(
      w.tiles, Buffer::allocate(static_cast<size_t>(tiles * layout.tile()) * sizeof(float)));
  return w;
}

}  // namespace aerie::kernels
