// A request while it is being decoded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/constraint.h"
#include "core/sampling_params.h"
#include "core/token_tree.h"
#include "draft/drafter.h"
#include "kv/kv_cache.h"
#include "sampling/sampler.h"

namespace aerie {

enum class FinishReason : uint8_t {
  kNone,    // still going
  kStop,    // a stop condition
  kLength,  // max_tokens, or the context is full
};
std::string_view finish_reason_name(
    FinishReason reason);  // "none", "stop", "length": OpenAI's words

// How an emitted token came about.
enum class TokenOrigin : uint8_t {
  kTarget,      // no draft was at stake: the prompt's first token, or plain decoding
  kAccepted,    // drafted and accepted
  kCorrection,  // the target's own, where a draft was refused
  kBonus,       // the target's own, after a draft that was accepted whole
};

struct EmittedToken {
  int32_t id = 0;
  TokenOrigin origin = TokenOrigin::kTarget;
  std::vector<TokenLogprob> logprobs;  // empty unless asked for
};

// Figures of one sequence.
struct SequenceStats {
  int64_t rounds = 0;        // target passes after the prompt
  int64_t round_tokens = 0;  // tokens that those emitted
  int64_t drafted = 0;       // nodes proposed
  int64_t accepted = 0;      // nodes accepted and emitted
  // By depth, from the root's children: rounds that proposed so deep, rounds accepted so deep.
  std::vector<int64_t> proposed_at;
  std::vector<int64_t> accepted_at;

  // Tokens for each target pass, the correction or bonus counted; 0 before the first round.
  double mean_accepted_length() const {
    return rounds == 0 ? 0.0 : static_cast<double>(round_tokens) / static_cast<double>(rounds);
  }
  double acceptance_rate() const {
    return drafted == 0 ? 0.0 : static_cast<double>(accepted) / static_cast<double>(drafted);
  }
};

struct SequenceOptions {
  SamplingParams sampling;
  int max_tokens = 0;             // to generate; >= 1
  StopCondition* stop = nullptr;  // not owned; may be null
  bool trace = false;             // Sequence::draft is wanted
  bool speculate = true;
  int drafter = 0;          // DraftSequence::drafter
  int max_draft_depth = 0;  // no node deeper than this; 0: as the drafter has it
  // What the output must keep to, in the state before it; null: any text. Not changed.
  std::shared_ptr<const TokenConstraint> constraint;
  // What the output is expected to be (DraftSequence::prediction). Read by Decoder::open().
  std::span<const int32_t> prediction;
};

// Made by Decoder::open(). Read it freely; only the decoder changes it.
struct Sequence {
  Sequence(SequenceId sequence_id, const SequenceOptions& sequence_options, int vocab)
      : id(sequence_id), options(sequence_options), sampler(sequence_options.sampling, vocab) {
    if (options.constraint != nullptr) constraint = options.constraint->fork();
  }

  SequenceId id;
  SequenceOptions options;
  Sampler sampler;
  KvCache::Id cache = -1;                       // -1: suspended, or closed
  std::unique_ptr<TokenConstraint> constraint;  // in the state behind the tokens; may be null

  std::vector<int32_t> tokens;  // prompt and output; the last one is the root
  int prompt_length = 0;
  int reused = 0;  // of the prompt, that were in the cache when it was opened
  FinishReason finish = FinishReason::kNone;
  std::vector<EmittedToken> emitted;  // by the last pass that it was in
  TokenTree draft;                    // of the last round, if it is traced
  std::vector<int32_t> accepted;      // of its nodes, from the root's child down
  SequenceStats stats;
  Distribution distribution;  // the verifier's, at the node it looks at

  int generated() const { return static_cast<int>(tokens.size()) - prompt_length; }
};

}  // namespace aerie
