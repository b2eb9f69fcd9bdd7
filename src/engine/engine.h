// The one entrance for programs: open a model with its tokenizer and drafter, then generate.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "decode/decoder.h"
#include "engine/engine_options.h"
#include "engine/opened_model.h"
#include "engine/reply.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

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

  const EngineOptions& options() const { return opened_.options; }  // with the defaults filled in
  const ModelConfig& config() const { return opened_.model->config(); }
  const Tokenizer& tokenizer() const { return *opened_.source.tokenizer; }
  const ModelFile& file() const { return *opened_.source.file; }
  // kUnsupported with the reason if the model has no template that can be rendered.
  const Expected<ChatTemplate>& chat_template() const { return opened_.source.chat_template; }
  Model& model() { return *opened_.model; }
  // Of EngineOptions::speculation; null: none.
  const Drafter* drafter() const { return opened_.speculations.front().drafter.get(); }
  // What passes cost, as far as known; null unless a speculation decides by it.
  const PassCost* pass_cost() const { return opened_.cost.get(); }

  // Calls `on_text` with every piece of text as it becomes final. On an error nothing is kept.
  using OnText = std::function<void(std::string_view text)>;
  Expected<Generation> generate(const GenerateRequest& request, const OnText& on_text);

  // Drafters drop what they learned from generations so far (Drafter::forget()).
  void forget();

 private:
  explicit Engine(OpenedModel opened) : opened_(std::move(opened)) {}
  Status run(Decoder& decoder, Sequence& sequence, const GenerateRequest& request, Reply& reply,
             const OnText& on_text, Generation& out);

  OpenedModel opened_;
};

}  // namespace aerie
