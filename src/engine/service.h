// Many requests at once on one model: what a server is made of. A thread of its own decodes all of
// them together (scheduler/scheduler.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/sampling_params.h"
#include "decode/sequence.h"
#include "engine/engine.h"
#include "grammar/grammar.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

struct ServiceRequest {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int max_tokens = 0;             // 0: as many as the context holds
  std::vector<std::string> stop;  // text ends before the first of these
  bool ignore_eos = false;
  std::shared_ptr<const Grammar> grammar;  // null: any text
  std::vector<int32_t> prediction;         // GenerateRequest::prediction

  bool speculate = true;    // false: plain decoding
  int speculation = 0;      // an index into Service::speculations()
  int max_draft_depth = 0;  // no node deeper than this; 0: as the method has it

  int priority = 0;    // lower ones first, as in vLLM
  std::string client;  // requests of one client share its turn; empty: one client of them all
  std::optional<std::chrono::steady_clock::time_point> deadline;

  bool trace = false;  // ReplyDelta::tree is wanted
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
};

enum class ReplyOutcome : uint8_t {
  kDone,       // ReplyEnd::finish says how
  kCancelled,  // by cancel(), or the service ends
  kDeadline,   // passed
  kFailed,     // ReplyEnd::status says why
};

struct ReplyEnd {
  ReplyOutcome outcome = ReplyOutcome::kDone;
  Status status;                              // ok unless kFailed
  FinishReason finish = FinishReason::kNone;  // kNone unless kDone
  std::string text;                           // became final with the end
  SequenceStats stats;
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of the prompt, taken from earlier requests
  int generated_tokens = 0;
  int preemptions = 0;
  double queue_seconds = 0.0;       // until the prompt's first pass began
  double prompt_seconds = 0.0;      // from then to the first token
  double generation_seconds = 0.0;  // after it
};

// Called by the service's thread, one call at a time; must not block, for all replies wait. Not
// called any more after on_end(), and not within submit() or cancel().
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void on_delta(ReplyDelta delta) = 0;
  virtual void on_end(ReplyEnd end) = 0;
};

// Counters only rise.
struct ServiceStats {
  int running = 0;
  int waiting = 0;
  double cache_usage = 0.0;  // of the pages, those of running requests, in [0, 1]
  int64_t requests = 0;      // that ended, however
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t prefix_queries = 0;  // prompt tokens that were looked up in the cache
  int64_t prefix_hits = 0;     // and found
  int64_t preemptions = 0;
  int64_t passes = 0;           // of the target
  double pass_seconds = 0.0;    // spent in them
  double decode_seconds = 0.0;  // in these, in drafting, sampling and committing
  double busy_seconds = 0.0;    // in all that, and in scheduling and handing out
  // Speculation.
  int64_t drafts = 0;  // rounds of a sequence that drafted
  int64_t draft_tokens = 0;
  int64_t accepted_tokens = 0;
  std::vector<int64_t> accepted_at;  // by depth
};

struct ServiceOptions {
  int max_sequences = 64;  // decoded together
  int max_waiting = 2048;  // more are refused with kResourceExhausted
  // Rows of a pass: rounds first, then pieces of prompts. 0: as many as take a quarter of a second
  // where that is known (a speculation decides by it), within kLeastPassTokens and kMostPassTokens.
  int max_pass_tokens = 0;
  int64_t cache_positions = 0;  // of all sequences together; 0: what fits half of the free memory
  bool prefix_cache = true;

  static constexpr int kLeastPassTokens = 64;
  static constexpr int kMostPassTokens = 512;
};

// submit(), cancel(), stats() and drain() from any thread.
class Service {
 public:
  using Id = uint64_t;

  virtual ~Service() = default;  // cancels what is left, calling on_end()

  virtual const std::string& model_name() const = 0;  // the file's or folder's, without its ending
  virtual int context() const = 0;                    // positions of a sequence at most
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const Expected<ChatTemplate>& chat_template() const = 0;
  virtual std::shared_ptr<const TokenTrie> token_trie() const = 0;
  // The short forms (draft/speculative_config.h) that requests may pick from, the default first;
  // "none": plain decoding.
  virtual const std::vector<std::string>& speculations() const = 0;

  // kInvalidArgument for a request that cannot be served (an empty or too long prompt, a setting
  // out of range), kResourceExhausted if too many wait (the last places are for clients that have
  // few requests), kCancelled after drain(). On success the
  // sink hears of the request until on_end(), and is kept until then.
  virtual Expected<Id> submit(ServiceRequest request, std::shared_ptr<ReplySink> sink) = 0;
  // Within one pass. One that has ended is no error.
  virtual void cancel(Id id) = 0;
  virtual ServiceStats stats() const = 0;
  // From now on nothing is taken; what was taken goes on.
  virtual void drain() = 0;
};

// Opens the model of `engine` (as Engine::open() does) and starts the thread.
Expected<std::unique_ptr<Service>> open_service(const EngineOptions& engine,
                                                const ServiceOptions& options);

}  // namespace aerie
