// The one entrance for programs: open a model with its tokenizer and drafter, then generate.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "decode/decoder.h"
#include "draft/speculative_config.h"
#include "engine/model_source.h"
#include "engine/reply.h"
#include "engine/speculation.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

struct EngineOptions {
  std::string model;                 // a GGUF file or a Hugging Face folder
  std::optional<DType> weight_type;  // float matrices become this; none: they stay as they are
  int context = 0;                   // positions; 0: the model's own, at most kDefaultContext
  int threads = 0;                   // 0: available_cpus()
  int prefill_chunk = 512;           // prompt tokens in a pass
  kernels::Isa isa = kernels::best_isa();
  std::string weight_cache;  // a folder for packed weights (model/weight_cache.h); empty: none
  kernels::KvType cache_type = kernels::KvType::kF16;  // a draft model's too
  SpeculativeConfig speculation;
  // A file of `aerie tune` (engine/profile.h): Combination::kAuto takes the costs of passes from it
  // rather than measuring them. One of another model or machine is a warning. Empty: none.
  std::string profile;
  std::vector<SpeculativeConfig> more_speculations;  // open too, for requests that pick one
  VerifyRule rule = VerifyRule::kExact;

  static constexpr int kDefaultContext = 4096;
};

struct GenerateRequest {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int max_tokens = 0;             // 0: as many as the context holds
  std::vector<std::string> stop;  // text ends before the first of these
  bool ignore_eos = false;
  bool speculate = true;  // false: plain decoding, whatever drafter is loaded
  int speculation = 0;    // 0: EngineOptions::speculation; n: the n-th of more_speculations
  std::vector<int32_t> prediction;  // what the output is expected to be, for drafters that use it
  // Asked before every round; true ends the reply with FinishReason::kNone. May be null.
  const std::atomic<bool>* cancel = nullptr;
};

// A round as its caller sees it: what it emitted, and the time from one round's end to the next.
struct RoundTime {
  int tokens = 0;
  double seconds = 0.0;
};

struct Generation {
  std::vector<int32_t> tokens;        // generated ids, an end token included
  std::string text;                   // without end tokens and stop strings
  std::vector<EmittedToken> emitted;  // the same tokens, how each came about, logprobs if asked for
  FinishReason finish = FinishReason::kNone;
  SequenceStats stats;
  StageTimes times;
  StageTimes prompt_times;        // the part of them until the first token
  std::vector<RoundTime> rounds;  // their seconds add up to about generation_seconds
  int prompt_tokens = 0;
  int64_t target_passes = 0;
  double prompt_seconds = 0.0;      // until the first token
  double generation_seconds = 0.0;  // after it

  // Tokens after the first for each second spent on them; 0 if there are none.
  double tokens_per_second() const;
  double prompt_tokens_per_second() const;
};

// Not thread-safe: one generation at a time.
class Engine {
 public:
  static Expected<std::unique_ptr<Engine>> open(const EngineOptions& options);
  ~Engine();

  const EngineOptions& options() const { return options_; }  // with the defaults filled in
  const ModelConfig& config() const { return model_->config(); }
  const Tokenizer& tokenizer() const { return *source_.tokenizer; }
  const ModelFile& file() const { return *source_.file; }
  // kUnsupported with the reason if the model has no template that can be rendered.
  const Expected<ChatTemplate>& chat_template() const { return source_.chat_template; }
  Model& model() { return *model_; }
  // Of EngineOptions::speculation; null: none.
  const Drafter* drafter() const { return speculations_.front().drafter.get(); }
  // What passes cost, as far as known; null unless a speculation decides by it.
  const PassCost* pass_cost() const { return cost_.get(); }

  // Calls `on_text` with every piece of text as it becomes final. On an error nothing is kept.
  using OnText = std::function<void(std::string_view text)>;
  Expected<Generation> generate(const GenerateRequest& request, const OnText& on_text);

  // Drafters drop what they learned from generations so far (Drafter::forget()).
  void forget();

 private:
  struct Speculation {
    std::vector<ModelSource> sources;  // of models that the drafter runs
    std::unique_ptr<Drafter> drafter;
    int max_nodes = 0;
  };

  Engine() = default;
  Status load();
  Status open_drafters(DraftTarget& target);
  Expected<PassCost> find_pass_cost(int max_rows);
  Status run(Decoder& decoder, Sequence& sequence, const GenerateRequest& request, Reply& reply,
             const OnText& on_text, Generation& out);

  EngineOptions options_;
  std::unique_ptr<ThreadPool> pool_;
  ModelSource source_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<PassCost> cost_;         // null unless a speculation decides by it
  std::vector<Speculation> speculations_;  // options_.speculation, then more_speculations
  DecoderOptions decoder_options_;
};

}  // namespace aerie
