// What the rows of a pass do to the states of layers with linear attention: the same in all of
// these layers, but for what each layer's states have taken in already (StateStore::base()).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/forward_batch.h"
#include "kernels/delta_rule.h"
#include "kv/kv_cache.h"

namespace aerie {

// Not thread-safe. Allocates in its constructor alone, but for rows with more ancestors of earlier
// passes than ever before.
class StatePlan {
 public:
  // A sequence of the cache; those of the batch may be several that differ in what they take for
  // committed.
  struct Sequence {
    int32_t id = -1;
    int end = 0;                     // what is committed: records before it go into the state
    int settled = 0;                 // rows that will be
    size_t first_row = 0, rows = 0;  // in order()
  };

  // Reserves for batches of that many rows.
  explicit StatePlan(int max_rows);

  // Of a batch for a cache that has states. What it gives holds until the next call; rows' second
  // `into`, and what follows from that, is left out: the state of a sequence that is settled goes
  // to its own slot.
  void build(const ForwardBatch& batch, const KvCache& cache);

  std::span<const Sequence> sequences() const { return sequences_; }
  // Index of the row's sequence.
  size_t sequence_of(size_t row) const {
    return static_cast<size_t>(sequence_of_[static_cast<size_t>(batch_->rows[row].sequence)]);
  }
  std::span<const int32_t> order() const { return order_; }  // rows by sequence
  std::span<const int32_t> rows_of(const Sequence& sequence) const {
    return order().subspan(sequence.first_row, sequence.rows);
  }
  std::span<kernels::StateRow> rows() { return rows_; }
  std::span<const kernels::StateRow> rows() const { return rows_; }

 private:
  void plan_sequences(const KvCache& cache);
  void plan_rows(const StateStore& states);
  void plan_children();

  const ForwardBatch* batch_ = nullptr;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> sequence_of_;  // [batch's sequence]
  std::vector<int32_t> order_;
  std::vector<int32_t> above_;
  std::vector<size_t> above_at_;  // [row]: where its part of above_ begins
  std::vector<int32_t> next_;     // [row]: the row of the sequence that comes next
  std::vector<kernels::StateRow> rows_;
};

}  // namespace aerie
