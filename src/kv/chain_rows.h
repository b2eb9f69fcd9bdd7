// Rows of a forward pass for the tokens that come next in a sequence of a cache.
#pragma once

#include <cstdint>
#include <span>

#include "core/forward_batch.h"
#include "kv/kv_cache.h"

namespace aerie {

// Adds a chain of `rows` rows behind what is committed of the sequence, in its next slots, which
// must be reserved. Their tokens and what is wanted of them are the caller's to fill in; the span
// holds until another row is added. `settled`: see BatchSequence.
inline std::span<BatchRow> add_chain(ForwardBatch& batch, const KvCache& cache, KvCache::Id id,
                                     int rows, bool settled = false) {
  const int first = cache.committed(id);
  batch.sequences.push_back({cache.pages(id), first, id, settled ? rows : 0});
  for (int i = 0; i < rows; ++i) {
    BatchRow row;
    row.sequence = static_cast<int32_t>(batch.sequences.size()) - 1;
    row.position = first + i;
    row.slot = cache.slot(id, i);
    row.parent = i == 0 ? -1 : batch.size() - 1;
    batch.rows.push_back(row);
  }
  return std::span(batch.rows).last(static_cast<size_t>(rows));
}

}  // namespace aerie
