// Between the token ids of a target and those of a draft model with another tokenizer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

// kInvalidArgument unless both tokenizers map the same ids to the same pieces, control flags
// included: says at which ids they differ. Logit widths may differ, since some files pad them.
Status check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft);

// Pairs the ids whose pieces are the same bytes (vocabulary intersection; Timor et al. 2502.05202),
// or those that the draft model's file says are the same. Immutable.
class VocabularyMap {
 public:
  // Ids from `target_logits` and `draft_logits` on are left out. The tokenizers need not outlive
  // it.
  static Expected<VocabularyMap> make(const Tokenizer& target, int target_logits,
                                      const Tokenizer& draft, int draft_logits);

  // Of a draft model whose row i stands for the target's token ids[i]. Tokens that it lacks are all
  // read as the one row behind these, or not at all if there is none. Requires
  // are_ascending_ids(ids, target_logits) and no more than draft_logits of them.
  static VocabularyMap of_ids(std::vector<int32_t> ids, int target_logits, int draft_logits);

  // What of_ids() was given: the target's ids of the draft model's first logits; else empty.
  std::span<const int32_t> ids() const { return ids_; }

  // The draft model's id of the same piece, or -1.
  int32_t to_draft(int32_t target) const { return to_draft_[static_cast<size_t>(target)]; }
  // What the draft model reads for a token of the target: its own id of the same piece, or else its
  // spelling of the bytes (none for control tokens that it does not have).
  std::span<const int32_t> spelling(int32_t target) const;

  // What the draft model wants before any text: its BOS, or nothing.
  std::span<const int32_t> beginning() const { return beginning_; }

  // The draft model's logits in the order of the target's ids; -infinity where there is no pair.
  // Requires out.size() == the target's logits.
  void translate(std::span<const float> draft_logits, std::span<float> out) const;

  int pairs() const { return pairs_; }
  int target_size() const { return static_cast<int>(to_draft_.size()); }

 private:
  std::vector<int32_t> ids_;
  std::vector<int32_t> beginning_;
  std::vector<int32_t> to_draft_;   // [target]
  std::vector<int32_t> spellings_;  // side by side
  std::vector<size_t> first_;       // [target], and the end
  int pairs_ = 0;
};

}  // namespace aerie
