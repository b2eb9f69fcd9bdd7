// Many requests at once on one model: what a server is made of. A thread of its own decodes all of
// them together (scheduler/scheduler.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aerie/request.h"
#include "base/status.h"
#include "draft/speculative_config.h"
#include "engine/engine_options.h"
#include "engine/learning/learning.h"
#include "engine/service_stats.h"
#include "grammar/grammar.h"
#include "model/import/suggested_sampling.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

struct OpenedModel;

struct ServiceOptions {
  int max_sequences = 64;  // decoded together
  int max_waiting = 2048;  // more are refused with kResourceExhausted
  // Rows of a pass: rounds first, then pieces of prompts. 0: as many as take a quarter of a second
  // where that is known (a speculation decides by it), within kLeastPassTokens and kMostPassTokens.
  int max_pass_tokens = 0;
  int64_t cache_positions = 0;  // of all sequences together; 0: what fits half of the free memory
  bool prefix_cache = true;
  // Of the states and masks of all constraints together. 0: a sixteenth of the free memory, within
  // kLeastGrammarBytes and kMostGrammarBytes.
  int64_t grammar_bytes = 0;
  int grammar_threads = 2;  // that prepare constraints, beside those that decode
  LearnOptions learn = {};  // what is kept of replies for training

  static constexpr int64_t kLeastGrammarBytes = int64_t{64} << 20;
  static constexpr int64_t kMostGrammarBytes = int64_t{256} << 20;
  static constexpr int kLeastPassTokens = 64;
  static constexpr int kMostPassTokens = 512;
};

// submit(), cancel(), stats(), drain() and failure() from any thread.
class Service {
 public:
  using Id = uint64_t;

  virtual ~Service() = default;  // cancels what is left, calling on_end()

  virtual const std::string& model_name() const = 0;  // the file's or folder's, without its ending
  virtual int context() const = 0;                    // positions of a sequence at most
  // What computes the model: "cpu", or "cuda:0 (NVIDIA H100 80GB HBM3)".
  virtual std::string device() const { return "cpu"; }
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const Expected<ChatTemplate>& chat_template() const = 0;
  // Of the model's files. Errors are read_suggested_sampling()'s.
  virtual Expected<SuggestedSampling> suggested_sampling() const { return SuggestedSampling(); }
  virtual std::shared_ptr<const TokenTrie> token_trie() const = 0;
  // For the grammars of its requests; null: there is none, and whoever compiles one does so itself.
  virtual std::shared_ptr<GrammarPool> grammar_pool() const { return nullptr; }
  // Of the states of requests that are pooled (Request::pooling): what the model's makers want.
  // Errors are read_pooling()'s.
  virtual Expected<Pooling> pooling() const { return Pooling::kLast; }
  virtual int embedding_size() const { return 0; }  // numbers of ReplyEnd::embedding
  // The short forms (draft/speculative_config.h) that requests may pick from, the default first;
  // "none": plain decoding; empty: one that has gone. From any thread.
  virtual std::vector<std::string> speculations() const = 0;
  // One more while it runs, from any thread, waiting for it: its number. Between two passes, so
  // that others wait as long as its files take to be opened. kUnsupported for a service that takes
  // none (EngineOptions::draft_room); errors are LiveSpeculations::add()'s.
  virtual Expected<int> add_speculation(const SpeculativeConfig& config);
  // Likewise takes one back that was added: no request begins with it from now on, and it goes with
  // the last that has. A request that names it gets the first one.
  virtual Status remove_speculation(int speculation);

  // kInvalidArgument for a request that cannot be served (an empty or too long prompt, a setting
  // out of range), kResourceExhausted if too many wait (the last places are for clients that have
  // few requests), kCancelled after drain(). On success the
  // sink hears of the request until on_end(), and is kept until then.
  virtual Expected<Id> submit(Request request, std::shared_ptr<ReplySink> sink) = 0;
  // Within one pass. One that has ended is no error.
  virtual void cancel(Id id) = 0;
  virtual ServiceStats stats() const = 0;
  // From now on nothing is taken; what was taken goes on.
  virtual void drain() = 0;
  // That its weights, cache and drafts take, as far as is known.
  virtual int64_t memory_bytes() const { return 0; }
  // Not ok once the thread has ended by itself, as where memory is used up: what it had is
  // cancelled, and nothing more is taken.
  virtual Status failure() const { return {}; }
};

// How an engine has to be opened for such a service; kInvalidArgument for options that cannot be.
Expected<Concurrency> concurrency_of(const ServiceOptions& options);

// Starts the thread. The service takes the drafters; nothing else may touch the model, which must
// outlive it. `options` are those that concurrency_of() was asked with.
Expected<std::unique_ptr<Service>> start_service(OpenedModel& opened,
                                                 const ServiceOptions& options);

// Opens the model of `engine` (as Engine::open() does) and starts the thread.
Expected<std::unique_ptr<Service>> open_service(const EngineOptions& engine,
                                                const ServiceOptions& options);

}  // namespace aerie
