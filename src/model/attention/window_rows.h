// The rows of a pass as attention sees them in layers with a window, where the cache has places for
// some pages alone (kv/window_pages.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/forward_batch.h"
#include "kernels/backend.h"
#include "kv/window_pages.h"

namespace aerie {

// Not thread-safe. Allocates in the constructor alone, but for rows with more ancestors than
// RowPaths has room for.
class WindowRows {
 public:
  // For passes of `max_rows` rows before position `max_positions`.
  WindowRows(int max_rows, int max_positions);

  // Begins a pass: nothing is known of it.
  void start() { rows_.clear(); }
  // Of a batch of at least one row, with its slots [rows] and what RowPaths made of it: the same
  // with places. Unless it is known, every page that a row sees has to have one.
  void build(const ForwardBatch& batch, std::span<const int32_t> slots,
             std::span<const kernels::AttentionRow> rows, const WindowPages& places);

  // What build() made, until the next start().
  std::span<const kernels::AttentionRow> rows() const { return rows_; }
  std::span<const int32_t> slots() const { return slots_; }

 private:
  void build_pages(const ForwardBatch& batch, const WindowPages& places);

  size_t most_pages_;  // of a sequence
  // [sequence of the batch][most_pages_], of which those are set that rows see. One for each row.
  std::unique_ptr<int32_t[]> pages_;
  std::vector<int> ends_;       // [sequence]: the last position of its rows
  std::vector<int32_t> slots_;  // [row]
  std::vector<int32_t> tails_;
  std::vector<kernels::AttentionRow> rows_;
};

}  // namespace aerie
