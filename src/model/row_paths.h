// The batch as attention sees it: for each row, its position, its sequence's pages and the slots of
// its ancestors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/forward_batch.h"
#include "kernels/backend.h"

namespace aerie {

class RowPaths {
 public:
  // Reserves for batches of that many rows.
  explicit RowPaths(int max_rows);

  // The result holds until the next call.
  std::span<const kernels::AttentionRow> build(const ForwardBatch& batch);
  // Of the batch of the last build(), in which rows that are not alone are chains: the same with
  // rows that see as far as the last one of their chain does.
  std::span<const kernels::AttentionRow> whole_chains(const ForwardBatch& batch);

 private:
  // Ancestors of a chain lie one after the other, so its rows share one run of slots; a branch
  // copies its parent's.
  std::vector<int32_t> slots_;
  std::vector<size_t> starts_;
  std::vector<kernels::AttentionRow> rows_, chains_;
};

}  // namespace aerie
