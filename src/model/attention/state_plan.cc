#include "model/attention/state_plan.h"

#include <algorithm>
#include <cassert>

namespace aerie {

using kernels::StateRow;

namespace {

// The position in its sequence that a slot stands for.
int position_of(const BatchSequence& sequence, int32_t slot) {
  const int32_t page = slot / kernels::kPagePositions;
  auto index = static_cast<size_t>(sequence.committed / kernels::kPagePositions);
  while (index < sequence.pages.size() && sequence.pages[index] != page) ++index;
  assert(index < sequence.pages.size());
  return static_cast<int>(index) * kernels::kPagePositions + slot % kernels::kPagePositions;
}

}  // namespace

StatePlan::StatePlan(int max_rows) {
  const auto rows = static_cast<size_t>(max_rows);
  for (std::vector<int32_t>* list : {&sequence_of_, &order_, &next_}) list->reserve(rows);
  sequences_.reserve(rows);
  above_.reserve(8 * rows);
  above_at_.reserve(rows + 1);
  rows_.reserve(rows);
}

void StatePlan::build(const ForwardBatch& batch, const KvCache& cache) {
  batch_ = &batch;
  plan_sequences(cache);
  plan_rows(*cache.states());
  plan_children();
}

// One for each sequence of the cache, with its rows in order_.
void StatePlan::plan_sequences(const KvCache& cache) {
  sequences_.clear();
  sequence_of_.clear();
  for (const BatchSequence& part : batch_->sequences) {
    assert(part.id >= 0);
    const auto known = std::ranges::find(sequences_, part.id, &Sequence::id);
    const auto index = static_cast<int32_t>(known - sequences_.begin());
    if (known == sequences_.end()) {
      sequences_.push_back({part.id, cache.committed(part.id), 0, 0, 0});
    }
    Sequence& sequence = sequences_[static_cast<size_t>(index)];
    // What is taken for committed, and is not, is not settled; what is settled by this pass may
    // count as committed already.
    sequence.end = std::min(sequence.end, static_cast<int>(part.committed));
    sequence.settled += part.settled;
    sequence_of_.push_back(index);
  }
  order_.resize(batch_->rows.size());
  for (const BatchRow& row : batch_->rows) {
    ++sequences_[static_cast<size_t>(sequence_of_[static_cast<size_t>(row.sequence)])].rows;
  }
  size_t first = 0;
  for (Sequence& sequence : sequences_) {
    sequence.first_row = first;
    first += sequence.rows;
    sequence.rows = 0;
  }
  for (size_t r = 0; r < batch_->rows.size(); ++r) {
    const auto part = static_cast<size_t>(batch_->rows[r].sequence);
    Sequence& sequence = sequences_[static_cast<size_t>(sequence_of_[part])];
    order_[sequence.first_row + sequence.rows++] = static_cast<int32_t>(r);
  }
}

// What each row goes on from, and where its record goes.
void StatePlan::plan_rows(const StateStore& states) {
  rows_.assign(batch_->rows.size(), {});
  above_.clear();
  above_at_.clear();
  for (size_t r = 0; r < batch_->rows.size(); ++r) {
    const BatchRow& row = batch_->rows[r];
    const auto part_index = static_cast<size_t>(row.sequence);
    const BatchSequence& part = batch_->sequences[part_index];
    const Sequence& sequence = sequences_[static_cast<size_t>(sequence_of_[part_index])];
    above_at_.push_back(above_.size());
    rows_[r].parent = row.parent;
    if (row.parent < 0) {
      const auto between = states.records(part.id, sequence.end, part.committed);
      above_.insert(above_.end(), between.begin(), between.end());
      for (const int32_t slot : row.above) {
        const int position = position_of(part, slot);
        above_.push_back(states.records(part.id, position, position + 1).front());
      }
    }
    rows_[r].into[0] = row.snapshot;
    if (part.settled > 0) continue;
    const int position = position_of(part, row.slot);
    rows_[r].record = states.records(part.id, position, position + 1).front();
    assert(rows_[r].record >= 0);
  }
  above_at_.push_back(above_.size());
  for (size_t r = 0; r < rows_.size(); ++r) {
    rows_[r].above = std::span(above_).subspan(above_at_[r], above_at_[r + 1] - above_at_[r]);
  }
}

// Which states are needed after their row, and kept for later.
void StatePlan::plan_children() {
  next_.assign(rows_.size(), -1);
  for (const Sequence& sequence : sequences_) {
    const auto rows = std::span(order_).subspan(sequence.first_row, sequence.rows);
    assert(sequence.settled == 0 || sequence.settled == static_cast<int>(rows.size()));
    int32_t kept = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto r = static_cast<size_t>(rows[i]);
      if (i + 1 < rows.size()) next_[r] = rows[i + 1];
      if (rows_[r].into[0] >= 0) rows_[r].needed = true;
      if (rows_[r].parent < 0) continue;
      StateRow& parent = rows_[static_cast<size_t>(rows_[r].parent)];
      const bool comes_next = next_[static_cast<size_t>(rows_[r].parent)] == rows[i];
      parent.needed = true;
      if (!comes_next && parent.keep < 0) parent.keep = kept++;
    }
  }
}

}  // namespace aerie
