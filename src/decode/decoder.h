// The round: draft, verify pass, verification, commit. The one place that moves the committed
// boundary, for every drafter and every rule.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "decode/early_exits.h"
#include "decode/sequence.h"
#include "decode/sequence_target.h"
#include "decode/stage_clock.h"
#include "draft/auto/pass_cost.h"
#include "draft/drafter.h"
#include "draft/tree/tree_growth.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "sampling/filters.h"
#include "verify/verifier.h"

namespace aerie {

struct DecoderOptions {
  VerifyRule rule = VerifyRule::kExact;
  int prefill_chunk = 512;  // prompt rows in a pass
  int max_positions = 0;    // the longest sequence
  int max_nodes = 0;        // the most drafted nodes of one sequence in a round
  int max_rows = 512;       // the model's limits
  int max_logits = 64;
  PassCost* cost = nullptr;  // learns from every round's pass; not owned; may be null
  // Sequences begin with what others that began alike left in the cache.
  bool reuse_prefixes = false;
};

// The next `rows` tokens that a sequence has to read (Decoder::unread()).
struct PromptPiece {
  Sequence* sequence = nullptr;
  int rows = 0;
};

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

  // How many of a prompt's tokens a sequence with these options would find in the cache.
  int reusable(std::span<const int32_t> prompt, const SequenceOptions& options);

  bool reuses_prefixes() const { return options_.reuse_prefixes; }
  // How many tokens have to be read before rounds can begin.
  int unread(const Sequence& sequence) const;

  // One target pass: a round for each of `rounds`, which have nothing unread and are unfinished,
  // and each piece of `pieces`, with 1 to unread() rows; no sequence twice. Rounds emit at least
  // one token each, and so does the piece that ends a prompt. kResourceExhausted if the cache has
  // no room for the roots and the pieces; on an error no sequence has changed. Once warmed up a
  // step without pieces allocates nothing (but for logprobs, constraints, drawn drafts that do not
  // fit and the caller's stop condition).
  Status step(std::span<Sequence* const> rounds, std::span<const PromptPiece> pieces);

  // Runs the prompt through the target and emits the first token. kCancelled, with the sequence fit
  // for close() alone, once `cancel` (may be null) is seen to be true between chunks.
  Status prefill(Sequence& sequence, const std::atomic<bool>* cancel = nullptr);

  // step() with rounds alone.
  Status round(std::span<Sequence* const> sequences) { return step(sequences, {}); }

  const StageTimes& times() const { return clock_.times(); }
  // Target passes so far, prefill included.
  int64_t target_passes() const { return target_passes_; }

 private:
  using Sequences = std::span<Sequence* const>;
  using Pieces = std::span<const PromptPiece>;

  Status attach(Sequence& sequence);
  void keep(const Sequence& sequence);
  bool drafts_for(const Sequence& sequence) const {
    return drafter_ != nullptr && sequence.options.speculate;
  }
  Status check_size(Sequences rounds, Pieces pieces) const;
  int spare_rows(Sequences sequences, Pieces pieces) const;
  void draft(Sequences sequences, Pieces pieces);
  void cut_to_chain(TokenTree& tree);
  void cut_depth(const Sequence& sequence, TokenTree& tree);
  void check_tree(const Sequence& sequence, int max_nodes, TokenTree& tree) const;
  int node_limit(const Sequence& sequence) const;
  Status reserve(Sequences rounds, Pieces pieces);
  void reserve_nodes(Sequences sequences, Pieces pieces);
  void make_room(const Sequence& sequence, int most, TokenTree& tree);
  void add_rows(const Sequence& sequence, const TokenTree& tree);
  void add_piece(const PromptPiece& piece);
  void number_logits();
  ForwardOutputs forward();
  void verify(Sequences sequences, const ForwardOutputs& outputs);
  Status read(Pieces pieces, const ForwardOutputs& outputs, int first_row);
  void emit(Sequence& sequence, const TokenTree& tree, const SequenceTarget& target);
  bool append(Sequence& sequence, int32_t token, TokenOrigin origin);
  void count(Sequence& sequence, const TokenTree& tree, int kept) const;
  void commit(Sequence& sequence, size_t index, int kept, const ForwardOutputs& outputs,
              int first_row);
  std::span<const int32_t> rank_tokens(const TokenTree& tree, const SequenceTarget& target);
  Status observe();
  void learn_cost(double seconds);

  Model& model_;
  KvCache& cache_;
  Drafter* drafter_;
  DecoderOptions options_;
  std::unique_ptr<Verifier> verifier_;
  EarlyExits exits_;
  StageClock clock_;
  int64_t target_passes_ = 0;
  bool drafter_failed_ = false;  // and that was said
  SequenceId next_id_ = 0;

  // Scratch of the round under way.
  ForwardBatch batch_;
  std::vector<int32_t> logits_at_;  // of each row, the number of its logits; -1: it has none
  std::vector<TokenTree> trees_;
  std::vector<DraftRequest> requests_;
  std::vector<DraftCommit> commits_;
  std::vector<std::vector<int32_t>> accepted_;  // what commits_ points at
  std::vector<float> taps_;
  std::vector<int32_t> top_tokens_;
  std::vector<TokenKey> keys_;
  std::vector<int32_t> path_;
  Verdict verdict_;
  TreeEditor editor_;
  std::vector<PrefixKey> prefix_keys_;
};

}  // namespace aerie
