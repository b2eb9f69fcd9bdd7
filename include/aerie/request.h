// What is asked of an engine, and how the reply arrives.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aerie/grammar.h"
#include "aerie/reply.h"
#include "aerie/sampling.h"
#include "aerie/status.h"

namespace aerie {

// A part of the output, between two texts, that may have so many tokens: then the closing one has
// to come. For what a model thinks before it answers.
struct SpanLimit {
  std::string open = {};   // as of `close`
  std::string close = {};  // a control token's name, or plain text
  bool is_open = false;    // the output begins within the part
  int max_tokens = 0;
  bool repeats = false;  // there may be several; else one, at the output's beginning
};

// Members without another default have an empty one, so that a list may name just some of them.
struct Request {
  std::vector<int32_t> prompt = {};
  SamplingParams sampling = {};
  Pooling pooling = Pooling::kNone;       // else nothing is generated (Engine::submit() alone)
  int max_tokens = 0;                     // 0: as many as the context holds
  std::vector<std::string> stop = {};     // text ends before the first of these
  std::vector<int32_t> stop_tokens = {};  // ends with the first of these, which is kept in the ids
                                          // and has no text
  bool ignore_eos = false;
  std::shared_ptr<const Grammar> grammar = {};  // null: any text
  std::optional<SpanLimit> span_limit = {};
  std::vector<int32_t> shown_tokens = {};  // control tokens that the text has by their names
  std::vector<int32_t> prediction =
      {};  // what the output is expected to be, for drafters that use it

  bool speculate = true;    // false: plain decoding, whatever drafter is loaded
  int speculation = 0;      // 0: the engine's first one; n: the n-th of those opened beside it
  int shadow = -1;          // a setting that drafts beside it on paper; negative: none
  int max_draft_depth = 0;  // no node deeper than this; 0: as the method has it

  // Of requests that are answered together.
  int priority = 0;         // lower ones first, as in vLLM
  std::string client = {};  // requests of one client share its turn; empty: one client of them all
  // Whose text it is, any name. What the engine keeps of prompts and learns of replies serves
  // requests of the same tenant alone; empty: one tenant of them all.
  std::string tenant = {};
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  // Prompt and reply may be kept for training where the engine keeps any.
  bool learn = true;

  bool trace = false;  // ReplyDelta::tree is wanted

  // For generate() alone: asked before every pass; true ends the reply with FinishReason::kNone.
  // May be null; must outlive the call.
  const std::atomic<bool>* cancel = nullptr;
};

// A node of a round's draft, for showing.
struct TracedNode {
  int32_t token = 0;
  int32_t parent = -1;  // index of an earlier node; -1: the root
  float probability = 1.0f;
  bool accepted = false;
};

// What one pass brought.
struct ReplyDelta {
  std::string text;                  // became final: without end tokens and stop strings
  std::vector<EmittedToken> tokens;  // ids, how each came about, logprobs if asked for
  std::vector<TracedNode> tree;      // if asked for; empty for the prompt's pass
  // Of the first delta, if asked for: by token of the prompt, as EmittedToken::logprobs; empty for
  // the first token, which nothing comes before.
  std::vector<std::vector<TokenLogprob>> prompt_logprobs = {};
};

enum class ReplyOutcome : uint8_t {
  kDone,       // ReplyEnd::finish says how
  kCancelled,  // by its caller, or the engine ends
  kDeadline,   // passed
  kFailed,     // ReplyEnd::status says why
};

struct ReplyEnd {
  ReplyOutcome outcome = ReplyOutcome::kDone;
  Status status;                              // ok unless kFailed or FinishReason::kError
  FinishReason finish = FinishReason::kNone;  // kNone unless kDone
  std::string text;                           // became final with the end
  std::string stop_string;       // of Request::stop, the one that ended it; empty: none did
  std::vector<float> embedding;  // as Request::pooling wants it, of no certain length
  SequenceStats stats;
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of the prompt, taken from earlier requests
  int generated_tokens = 0;
  int preemptions = 0;
  double queue_seconds = 0.0;       // until the prompt's first pass began
  double prompt_seconds = 0.0;      // from then to the first token
  double generation_seconds = 0.0;  // after it
};

// Where a reply goes. Called by the thread that decodes, one call at a time. Must not block, for
// all replies wait, and must not generate; it may submit and cancel. Not called any more after
// on_end(), and not within submit() or cancel().
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void on_delta(ReplyDelta delta) = 0;
  virtual void on_end(ReplyEnd end) = 0;
};

// A round as its caller sees it: what it emitted, and the time from one round's end to the next.
struct RoundTime {
  int tokens = 0;
  double seconds = 0.0;
};

// A whole reply.
struct Generation {
  std::vector<int32_t> tokens;  // generated ids, an end token included
  std::string text;             // without end tokens and stop strings
  std::vector<EmittedToken> emitted =
      {};  // the same tokens, how each came about, logprobs if asked for
  std::vector<std::vector<TokenLogprob>> prompt_logprobs = {};  // ReplyDelta's, if asked for
  FinishReason finish = FinishReason::kNone;                    // kNone: it was cancelled
  std::string problem = {};                                     // why, of FinishReason::kError
  SequenceStats stats;
  // Of these three nothing is known where other requests shared the passes.
  StageTimes times;
  StageTimes prompt_times;  // the part of them until the first token
  int64_t target_passes = 0;
  std::vector<RoundTime> rounds;  // their seconds add up to about generation_seconds
  int prompt_tokens = 0;
  int cached_tokens = 0;            // of the prompt, taken from earlier requests
  double prompt_seconds = 0.0;      // until the first token
  double generation_seconds = 0.0;  // after it

  // Tokens after the first for each second spent on them; 0 if there are none.
  double tokens_per_second() const {
    const auto after_first = static_cast<double>(tokens.size()) - 1.0;
    return after_first > 0.0 && generation_seconds > 0.0 ? after_first / generation_seconds : 0.0;
  }
  // Of the tokens that had to be read.
  double prompt_tokens_per_second() const {
    return prompt_seconds > 0.0 ? (prompt_tokens - cached_tokens) / prompt_seconds : 0.0;
  }
};

}  // namespace aerie
