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
#include "decode/pass_cost.h"
#include "decode/sequence.h"
#include "decode/stage_clock.h"
#include "draft/drafter.h"
#include "draft/tree_growth.h"
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
};

// Not thread-safe. Model, cache and drafter are not owned and must outlive it.
class Decoder {
 public:
  // `drafter` may be null: plain decoding.
  Decoder(Model& model, KvCache& cache, Drafter* drafter, const DecoderOptions& options);
  ~Decoder();

  // A sequence with its prompt, which must hold 1 to max_positions - 1 tokens of the vocabulary.
  // Nothing is computed yet. Sampling parameters are checked.
  Expected<std::unique_ptr<Sequence>> open(std::span<const int32_t> prompt,
                                           const SequenceOptions& options);
  void close(Sequence& sequence);

  // Runs the prompt through the target and emits the first token. kCancelled, with the sequence fit
  // for close() alone, once `cancel` (may be null) is seen to be true between chunks.
  Status prefill(Sequence& sequence, const std::atomic<bool>* cancel = nullptr);

  // One round for all of them in one target pass; each emits at least one token. Requires
  // prefilled, unfinished sequences. On an error no sequence has changed. Once warmed up it
  // allocates nothing (but for logprobs and the caller's stop condition).
  Status round(std::span<Sequence* const> sequences);

  const StageTimes& times() const { return clock_.times(); }
  // Target passes so far, prefill included.
  int64_t target_passes() const { return target_passes_; }

 private:
  class Target;

  Status draft(std::span<Sequence* const> sequences);
  void cut_to_chain(TokenTree& tree);
  void check_tree(const Sequence& sequence, int max_nodes, TokenTree& tree) const;
  int node_limit(const Sequence& sequence) const;
  Status reserve_roots(std::span<Sequence* const> sequences);
  void reserve_nodes(std::span<Sequence* const> sequences);
  void add_rows(const Sequence& sequence, const TokenTree& tree);
  void verify(std::span<Sequence* const> sequences, const ForwardOutputs& outputs);
  void emit(Sequence& sequence, const TokenTree& tree, const Target& target);
  bool append(Sequence& sequence, int32_t token, TokenOrigin origin);
  void count(Sequence& sequence, const TokenTree& tree, int kept) const;
  void commit(Sequence& sequence, size_t index, int kept, const ForwardOutputs& outputs,
              int first_row);
  std::span<const int32_t> rank_tokens(const TokenTree& tree, const Target& target);
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
};

}  // namespace aerie
