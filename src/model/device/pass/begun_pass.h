// A pass that was begun before its tokens were known: whether another is the same one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/forward_batch.h"
#include "core/found_tokens.h"
#include "kv/kv_cache.h"

namespace aerie {

// Of passes from the first layer to the last, of rows without `above`.
class BegunPass {
 public:
  void reserve(int rows) {
    rows_.reserve(static_cast<size_t>(rows));
    found_rows_.reserve(static_cast<size_t>(rows));
    sequences_.reserve(static_cast<size_t>(rows));
  }
  void set(const ForwardBatch& batch, const KvCache& cache, const FoundTokens& found,
           std::span<const int32_t> found_rows) {
    cache_ = &cache;
    found_ = found;
    rows_ = batch.rows;
    sequences_ = batch.sequences;
    taps_ = batch.tap_layers;
    found_rows_.assign(found_rows.begin(), found_rows.end());
  }
  // Whether there is one, which there is not from now on.
  bool take() { return std::exchange(cache_, nullptr) != nullptr; }
  // Once what finds the tokens has been waited for.
  bool is(const ForwardBatch& batch, const KvCache& cache) const {
    if (cache_ != &cache || batch.rows.size() != rows_.size()) return false;
    if (batch.first_layer != 0 || batch.end_layer != ForwardBatch::kAllLayers) return false;
    if (!batch.skipped_layers.empty() || batch.tap_layers != taps_) return false;
    if (!std::ranges::equal(batch.sequences, sequences_, same_sequence)) return false;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const int32_t found = found_rows_[r];
      const int32_t token = found < 0 ? rows_[r].token : found_.token(found);
      if (batch.rows[r].token != token || !same_row(batch.rows[r], rows_[r])) return false;
    }
    return true;
  }

 private:
  static bool same_sequence(const BatchSequence& a, const BatchSequence& b) {
    return a.pages.data() == b.pages.data() && a.committed == b.committed && a.id == b.id &&
           a.settled == b.settled;
  }
  // But for the token.
  static bool same_row(const BatchRow& a, const BatchRow& b) {
    return a.sequence == b.sequence && a.position == b.position && a.slot == b.slot &&
           a.parent == b.parent && a.above.empty() && a.wants_logits == b.wants_logits &&
           a.wants_state == b.wants_state && a.wants_taps == b.wants_taps &&
           a.snapshot == b.snapshot;
  }

  const KvCache* cache_ = nullptr;  // null: there is none
  FoundTokens found_;
  std::vector<BatchRow> rows_;
  std::vector<BatchSequence> sequences_;
  std::vector<int32_t> taps_, found_rows_;
};

}  // namespace aerie
