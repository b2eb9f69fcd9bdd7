#include "model/attention/window_rows.h"

#include <algorithm>
#include <cassert>

namespace aerie {
namespace {

constexpr int kPage = kernels::kPagePositions;

int32_t slot_in_place(const WindowPages& places, int32_t slot) {
  const int32_t place = places.place(slot / kPage);
  assert(place != WindowPages::kNone);
  return place * kPage + slot % kPage;
}

}  // namespace

WindowRows::WindowRows(int max_rows, int max_positions)
    : most_pages_(static_cast<size_t>(max_positions) / kPage + 1) {
  const auto rows = static_cast<size_t>(max_rows);
  // Not touched before it is needed.
  pages_ = std::make_unique_for_overwrite<int32_t[]>(rows * most_pages_);
  ends_.reserve(rows);
  slots_.reserve(rows);
  tails_.reserve(rows * rows / 3 + 2 * rows);
  rows_.reserve(rows);
}

void WindowRows::build_pages(const ForwardBatch& batch, const WindowPages& places) {
  ends_.assign(batch.sequences.size(), 0);
  for (const BatchRow& row : batch.rows) {
    int& end = ends_[static_cast<size_t>(row.sequence)];
    end = std::max(end, static_cast<int>(row.position));
  }
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const BatchSequence& sequence = batch.sequences[s];
    int32_t* own = pages_.get() + s * most_pages_;
    const auto end = std::min(sequence.pages.size(), static_cast<size_t>(ends_[s]) / kPage + 1);
    for (auto i = static_cast<size_t>(places.first_seen(sequence.committed)); i < end; ++i) {
      own[i] = places.place(sequence.pages[i]);
      assert(own[i] != WindowPages::kNone);
    }
  }
}

void WindowRows::build(const ForwardBatch& batch, std::span<const int32_t> slots,
                       std::span<const kernels::AttentionRow> rows, const WindowPages& places) {
  if (!rows_.empty()) return;
  build_pages(batch, places);
  slots_.clear();
  for (const int32_t slot : slots) slots_.push_back(slot_in_place(places, slot));
  tails_.clear();
  // A row's ancestors lie before those of the next, or are some of its.
  const int32_t* first = rows[0].tail;
  for (const kernels::AttentionRow& row : rows) {
    first = std::min(first, row.tail);
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    const kernels::AttentionRow& row = rows[r];
    const auto count = static_cast<size_t>(row.position - row.committed + 1);
    const auto from = static_cast<size_t>(row.tail - first);
    for (size_t i = tails_.size(); i < from + count; ++i) {
      tails_.push_back(slot_in_place(places, first[i]));
    }
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    kernels::AttentionRow& out = rows_.emplace_back(rows[r]);
    out.pages = pages_.get() + static_cast<size_t>(batch.rows[r].sequence) * most_pages_;
    out.tail = tails_.data() + (rows[r].tail - first);
  }
}

}  // namespace aerie
