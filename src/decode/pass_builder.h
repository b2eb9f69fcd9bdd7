// The rows of a target pass: roots with the nodes below them, and pieces of prompts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/forward_batch.h"
#include "decode/sequence.h"
#include "kv/kv_cache.h"

namespace aerie {

// The cache must outlive it. Allocates nothing for passes of up to `max_rows` rows.
class PassBuilder {
 public:
  // `drafter` may be null: then no taps are wanted.
  PassBuilder(const KvCache& cache, const Drafter* drafter, int max_rows);

  // What passes that begin from now on tap.
  void tap(const std::vector<int32_t>& layers) { batch_.tap_layers = layers; }

  // Begins another pass, from the first layer on.
  void clear();
  // The root of a sequence and the nodes of its tree, in slots 0, 1, ... behind what is committed.
  // Requires that they are reserved, as the rows of a piece must be.
  void add_round(const Sequence& sequence, const TokenTree& tree);
  void add_piece(const PromptPiece& piece);
  // Once all rows are there: gives those that want logits their numbers.
  void number_logits();

  ForwardBatch& batch() { return batch_; }
  const ForwardBatch& batch() const { return batch_; }
  std::span<BatchRow> last_rows(int rows) {
    return std::span(batch_.rows).last(static_cast<size_t>(rows));
  }
  bool has_taps() const { return !batch_.tap_layers.empty(); }
  // The numbers of the logits of these rows; -1: a row has none.
  std::span<const int32_t> logits_of(int first_row, int rows) const {
    return std::span(logits_at_).subspan(static_cast<size_t>(first_row), static_cast<size_t>(rows));
  }

 private:
  const KvCache& cache_;
  ForwardBatch batch_;
  std::vector<int32_t> logits_at_;  // [row]
};

}  // namespace aerie
