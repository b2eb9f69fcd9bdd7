// The round: draft, verify pass, verification, commit. The one place that moves the committed
// boundary, for every drafter and every rule.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "decode/decoder_options.h"
#include "decode/early_exits.h"
#include "decode/pass_ahead.h"
#include "decode/pass_builder.h"
#include "decode/round_drafts.h"
#include "decode/sequence.h"
#include "decode/sequence_target.h"
#include "decode/stage_clock.h"
#include "draft/drafter.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "sampling/filters.h"
#include "verify/verifier.h"

namespace aerie {

// What is asked of a sequence: sampling parameters in range, a prompt of 1 to max_positions - 1
// tokens, max_tokens above 0, and no token outside the vocabulary; else kInvalidArgument, saying
// what is possible.
Status check_sequence(std::span<const int32_t> prompt, const SequenceOptions& options, int vocab,
                      int max_positions);

// Not thread-safe. Model, cache and drafter are not owned and must outlive it.
class Decoder {
 public:
  // `drafter` may be null: plain decoding.
  Decoder(Model& model, KvCache& cache, Drafter* drafter, const DecoderOptions& options);
  ~Decoder();

  // A sequence with its prompt. Nothing is computed yet. Errors are check_sequence()'s, and
  // kResourceExhausted if as many are open as can be.
  Expected<std::unique_ptr<Sequence>> open(std::span<const int32_t> prompt,
                                           const SequenceOptions& options);
  void close(Sequence& sequence);

  // Gives up what was computed for a sequence, which may be taken from the prefix cache again.
  void suspend(Sequence& sequence);
  // Goes on with a suspended sequence, which then has to read all of its tokens but the root again.
  Status resume(Sequence& sequence);

  // The drafter wants more or less of passes than it did; between steps.
  void on_new_needs();

  // How many of a prompt's tokens a sequence with these options would find in the cache.
  int reusable(std::span<const int32_t> prompt, const SequenceOptions& options);

  bool reuses_prefixes() const { return options_.reuse_prefixes; }
  // Whether another with these options will be able to begin with the first `length` tokens of a
  // sequence of its tenant, once that has read them: where layers keep states, only if it has not
  // yet; where they have windows, if it has not or what these see is there still; and if the
  // drafter can. Then expect_branch() says that one will.
  bool can_branch(const Sequence& sequence, int length, const SequenceOptions& options) const;
  void expect_branch(Sequence& sequence, int length);
  // Rows of a pass that may want logits: one for each round and each piece, and of a sequence that
  // scores its prompt, or takes the mean of its states, one for each row of its piece.
  int max_logits() const { return std::min(options_.max_rows, options_.max_logits); }
  // How many tokens have to be read before rounds can begin.
  int unread(const Sequence& sequence) const;
  // Whether a sequence may have a round, or the piece that ends its prompt, now: its constraint may
  // have to be waited for. If it never will be ready, the sequence has ended with kError.
  bool prepare(Sequence& sequence) const;

  // One target pass: a round for each of `rounds`, which have nothing unread and are unfinished,
  // and each piece of `pieces`, with 1 to unread() rows; no sequence twice. Rounds emit at least
  // one token each, and so does the piece that ends a prompt, but for a sequence that ends
  // there, with kError or since it pools. Requires of both that prepare() said yes, or a constraint
  // that never has to be waited for. kResourceExhausted if the cache has no room for the roots and
  // the pieces: then no sequence has changed. Other errors are the model's or a drafter's: then
  // these sequences are fit for close() alone, and others go on. Once warmed up a step without
  // pieces allocates nothing (but for logprobs, constraints, drawn drafts that do not fit and the
  // caller's stop condition).
  Status step(Rounds rounds, Pieces pieces);

  // Runs the prompt through the target and emits the first token. kCancelled, with the sequence fit
  // for close() alone, once `cancel` (may be null) is seen to be true between chunks.
  Status prefill(Sequence& sequence, const std::atomic<bool>* cancel = nullptr);

  // step() with rounds alone.
  Status round(Rounds sequences) { return step(sequences, {}); }

  const StageTimes& times() const { return clock_.times(); }
  // Target passes so far, prefill included.
  int64_t target_passes() const { return target_passes_; }

 private:
  void reserve_for_needs();
  Status attach(Sequence& sequence);
  void keep(const Sequence& sequence);
  bool drafts_for(const Sequence& sequence) const {
    return drafter_ != nullptr && sequence.options.speculate;
  }
  Status check_size(Rounds rounds, Pieces pieces) const;
  Status reserve(Rounds rounds, Pieces pieces);
  Status run(Rounds rounds, Pieces pieces);
  void forget(Rounds rounds, Pieces pieces);
  ForwardOutputs forward(Pieces pieces);
  void claim_snapshots(const PromptPiece& piece);
  void mark_branch(const PromptPiece& piece);
  Status verify(Rounds sequences, const ForwardOutputs& outputs);
  void score(Sequence& sequence, int first, int rows, int row, const ForwardOutputs& outputs);
  static void pool(Sequence& sequence, int first, int rows, const ForwardOutputs& outputs,
                   int& state);
  Status read(Pieces pieces, const ForwardOutputs& outputs, int first_row);
  void emit(Sequence& sequence, const TokenTree& tree, const SequenceTarget& target);
  bool append(Sequence& sequence, int32_t token, TokenOrigin origin);
  void count(Sequence& sequence, const TokenTree& tree, int kept) const;
  void commit(Sequence& sequence, size_t index, int kept, const ForwardOutputs& outputs,
              int first_row);
  std::span<const int32_t> rank_tokens(const TokenTree& tree, const SequenceTarget& target);
  Status observe();
  void learn_cost(double seconds, int64_t experts);

  Model& model_;
  KvCache& cache_;
  Drafter* drafter_;
  DecoderOptions options_;
  std::unique_ptr<Verifier> verifier_;
  RoundDrafts drafts_;
  PassAhead ahead_;
  EarlyExits exits_;
  StageClock clock_;
  int64_t target_passes_ = 0;
  SequenceId next_id_ = 0;

  // Scratch of the round under way.
  PassBuilder pass_;
  std::vector<TokenTree> trees_;
  std::vector<DraftCommit> commits_;
  std::vector<std::vector<int32_t>> accepted_;  // what commits_ points at
  std::vector<float> taps_;
  std::vector<int32_t> top_tokens_;
  std::vector<TokenKey> keys_;
  std::vector<int32_t> path_;
  Verdict verdict_;
  std::vector<PrefixKey> prefix_keys_;
};

}  // namespace aerie
