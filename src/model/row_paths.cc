#include "model/row_paths.h"

#include <cassert>

namespace aerie {

RowPaths::RowPaths(int max_rows) {
  const auto rows = static_cast<size_t>(max_rows);
  // The worst batch: a third of the rows a chain, the others in turn at the ends of two that go on
  // from it, so that each copies all its ancestors. Ancestors of earlier passes take no more where
  // they are fewer than a third of the rows; else the first such pass allocates.
  slots_.reserve(rows * rows / 3 + 2 * rows);
  starts_.reserve(rows);
  rows_.reserve(rows);
  chains_.reserve(rows);
}

std::span<const kernels::AttentionRow> RowPaths::build(const ForwardBatch& batch) {
  slots_.clear();
  starts_.clear();
  rows_.clear();
  for (const BatchRow& row : batch.rows) {
    const BatchSequence& sequence = batch.sequences[static_cast<size_t>(row.sequence)];
    const auto ancestors = static_cast<size_t>(row.position - sequence.committed);
    const auto in_place = [&](int position, int32_t slot) {
      const auto page = static_cast<size_t>(position / kernels::kPagePositions);
      return page < sequence.pages.size() &&
             slot == sequence.pages[page] * kernels::kPagePositions +
                         position % kernels::kPagePositions;
    };
    size_t start = slots_.size();
    bool linear = true;
    if (row.parent < 0) {
      for (size_t i = 0; i < ancestors; ++i) {
        linear = linear && in_place(sequence.committed + static_cast<int>(i), row.above[i]);
        slots_.push_back(row.above[i]);
      }
    } else {
      const auto parent = static_cast<size_t>(row.parent);
      start = starts_[parent];
      linear = rows_[parent].linear;
      if (start + ancestors != slots_.size()) {
        const size_t from = start;
        start = slots_.size();
        for (size_t i = 0; i < ancestors; ++i) slots_.push_back(slots_[from + i]);
      }
    }
    slots_.push_back(row.slot);
    starts_.push_back(start);

    linear = linear && in_place(row.position, row.slot);
    kernels::AttentionRow out;
    out.position = row.position;
    out.committed = sequence.committed;
    out.pages = sequence.pages.data();
    out.linear = linear;
    out.group = row.sequence;
    rows_.push_back(out);
  }
  for (size_t r = 0; r < rows_.size(); ++r) rows_[r].tail = slots_.data() + starts_[r];
  return rows_;
}

std::span<const kernels::AttentionRow> RowPaths::whole_chains(const ForwardBatch& batch) {
  chains_.assign(rows_.begin(), rows_.end());
  for (size_t r = chains_.size(); r-- > 1;) {
    const int32_t parent = batch.rows[r].parent;
    if (parent < 0) continue;
    assert(starts_[r] == starts_[static_cast<size_t>(parent)]);
    chains_[static_cast<size_t>(parent)] = chains_[r];
  }
  return chains_;
}

}  // namespace aerie
