// A request while it is being decoded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aerie/reply.h"
#include "core/constraint.h"
#include "core/sampling_params.h"
#include "core/token_tree.h"
#include "draft/drafter.h"
#include "kv/kv_cache.h"
#include "sampling/sampler.h"

namespace aerie {

std::string_view token_origin_name(TokenOrigin origin);  // "target", "accepted", ...

struct SequenceOptions {
  SamplingParams sampling;
  // Whose text it is (DraftSequence::tenant): pages of the cache and what drafters learn are shared
  // with others of the same tenant alone.
  std::string tenant = {};
  int max_tokens = 0;                // to generate; >= 1
  StopCondition* stop = nullptr;     // not owned; may be null
  Pooling pooling = Pooling::kNone;  // else it ends with its prompt, and speculates not
  bool trace = false;                // Sequence::draft is wanted
  bool speculate = true;
  bool learn = false;  // DraftSequence::learn
  int drafter = 0;     // DraftSequence::drafter, and shadow
  int shadow = -1;
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
  // Where another is known to go on otherwise: what states hold there is worth keeping. 0: nowhere.
  int branch = 0;
  FinishReason finish = FinishReason::kNone;
  std::vector<EmittedToken> emitted;  // by the last pass that it was in
  // If asked for, once the prompt was read: ReplyDelta::prompt_logprobs.
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  std::vector<double> pooled;     // the sum of the states of so much of the prompt as is read
  TokenTree draft;                // of the last round, if it is traced
  std::vector<int32_t> accepted;  // of its nodes, from the root's child down
  SequenceStats stats;
  Distribution distribution;  // the verifier's, at the node it looks at

  bool scores_prompt() const { return options.sampling.prompt_logprobs >= 0 && generated() == 0; }
  // Whether all rows of its prompt want logits or states. What earlier requests left is then of no
  // use.
  bool wants_all_rows() const { return scores_prompt() || options.pooling == Pooling::kMean; }
  int generated() const { return static_cast<int>(tokens.size()) - prompt_length; }
};

// The next `rows` tokens that a sequence has to read (Decoder::unread()).
struct PromptPiece {
  Sequence* sequence = nullptr;
  int rows = 0;
};

// How many of its rows may want logits or states.
inline int logit_rows(const PromptPiece& piece) {
  return piece.sequence->wants_all_rows() ? piece.rows : 1;
}

// The sequences of a pass: those that have a round, and those that read.
using Rounds = std::span<Sequence* const>;
using Pieces = std::span<const PromptPiece>;

}  // namespace aerie
