// The entrance for programs: open a model with its tokenizer and drafters, then ask it.
//
//   auto engine = aerie::Engine::open({.model = "model.gguf", .speculate = "auto"});
//   auto reply = (*engine)->generate({.prompt = (*engine)->tokenize("Once").value()});
//   std::puts(reply->text.c_str());
//
// Whatever can go wrong comes back as a Status (aerie/status.h); nothing is thrown, and bad files
// or requests end no program. Lengths, contexts and limits are in tokens, times in seconds, texts
// in UTF-8.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aerie/chat_message.h"
#include "aerie/drafter.h"
#include "aerie/grammar.h"
#include "aerie/request.h"
#include "aerie/status.h"

namespace aerie {

// How a model is opened. The texts are those of the flags of `aerie run` with the same names.
struct OpenOptions {
  // A GGUF file or a Hugging Face folder; or ORG/REPO[@REVISION][:QUANT or FILE], which is looked
  // up in the cache of Hugging Face's programs and fetched if it is not there.
  std::string model = {};
  std::string type = {};  // float matrices become this: "q8_0", "bf16"; empty: as they are
  int context = 0;        // positions; 0: the model's own, at most 4096
  int threads = 0;        // 0: the cores that this process may use
  // "none", "ngram", "eagle3:model=PATH,...", several with commas; or vLLM's JSON, as
  // --speculative-config takes it: {"method": "ngram", "num_speculative_tokens": 5}.
  std::string speculate = "auto";
  std::vector<std::string> more_speculations = {};  // open too, for requests that pick one
  // What method "custom" of the speculations is, which one of them must then name; null: none.
  std::shared_ptr<CustomDrafter> drafter = {};
  std::string verify = "exact";    // the verification rule
  std::string cache_type = "f16";  // keys and values: "f16", or "q8"
  std::string isa = "auto";        // the instruction set
  // What computes the model: "cpu"; "cuda" or "cuda:N", a GPU; "auto", the first GPU if there is
  // one that can, else the processor. Models that draft are computed there, too.
  std::string device = "auto";
  std::string weight_cache = {};  // a folder for packed weights; empty: none
  // A file of `aerie tune`; empty: none. Where `speculate` is "auto", its choice drafts instead.
  std::string profile = {};
  int prefill_chunk = 512;  // prompt tokens in a pass
  // Requests that are answered at the same time; more of them wait. With 1, memory is taken for one
  // context, with more for as many as may be needed, or as fit into half of what is free.
  int sequences = 1;
  bool prefix_cache = true;  // requests begin with what earlier ones that began alike have computed
};

// What a model is called and how large it is.
struct ModelInfo {
  std::string name;  // as its file has it, or the file's own
  int context = 0;   // of this engine
  int vocabulary = 0;
  int32_t bos = -1;  // -1: there is none
  int32_t eos = -1;
  bool has_chat_template = false;
};

struct TokenizeOptions {
  bool add_special = true;     // BOS and EOS where the model asks for them, never doubled
  bool parse_special = false;  // "<|im_start|>" in the text becomes the control token
};

struct EngineOptions;
struct Concurrency;
struct OpenedModel;

// All calls may come from any thread, but for what parts() says. Calls of generate() take turns
// until something is submitted; from then on a thread of the engine answers all requests together.
class Engine {
 public:
  // kInvalidArgument for an option that cannot be, naming it; kNotFound, kInvalidData,
  // kUnsupported or kResourceExhausted for files that cannot be opened, saying what and where.
  static Expected<std::unique_ptr<Engine>> open(const OpenOptions& options);
  // Cancels what is left, calling on_end(). Requires that no other call is under way.
  ~Engine();

  ModelInfo info() const;

  // kResourceExhausted if the text is beyond what the tokenizer's expressions can do.
  Expected<std::vector<int32_t>> tokenize(std::string_view text,
                                          const TokenizeOptions& options = {}) const;
  // The text of the tokens, as a reply has it: control tokens are left out. Ids outside the
  // vocabulary have no text.
  std::string detokenize(std::span<const int32_t> tokens) const;
  // The messages as the model's chat template writes them, up to where the reply begins; to be
  // tokenized with {.add_special = true, .parse_special = true}. kUnsupported or kNotFound with the
  // reason if there is no template that can be rendered; kInvalidArgument if it refuses these.
  Expected<std::string> apply_chat_template(std::span<const ChatMessage> messages,
                                            bool add_generation_prompt = true) const;
  // The same of all that the template may speak of, as a JSON object: "messages" as OpenAI's
  // programs have them, and where wanted "tools", "enable_thinking" and others. Unless it says
  // "add_generation_prompt": false, the reply begins at its end. kInvalidData for what is no JSON,
  // kInvalidArgument for JSON that is no object.
  Expected<std::string> render_chat_template(std::string_view variables) const;
  // A reply to a prompt that these two wrote, in the model's own form: reasoning and calls apart
  // from what was said. `tools`: those that the prompt offers, as a JSON array of OpenAI's; empty:
  // none, and calls are not looked for. The text must have the tokens of reply_marks() by their
  // names. kInvalidData or kInvalidArgument for tools that are no such array.
  Expected<ChatReply> read_chat_reply(std::string_view text, std::string_view prompt,
                                      std::string_view tools = {}) const;
  // For Request::shown_tokens: control tokens by which the model marks reasoning, and calls.
  std::vector<int32_t> reply_marks(bool with_calls) const;
  // What the model's makers recommend to sample with, as `aerie run` takes it over; what they do
  // not speak of has SamplingParams' defaults. kInvalidData for what is no number or out of range.
  Expected<SamplingParams> suggested_sampling() const;
  // For Request::grammar, of this engine alone. kInvalidArgument, kUnsupported or
  // kResourceExhausted with what is wrong and where.
  Expected<std::shared_ptr<const Grammar>> compile_grammar(const GrammarSpec& spec) const;

  // kInvalidArgument, saying what is possible, for a request that cannot be answered.
  Status check(const Request& request) const;

  // Answers one request. Calls `on_text`, which may be empty and must not call the engine, with
  // every piece of text as it becomes final. Errors are check()'s and those of decoding, and of a
  // grammar that asks for too much before the first token; then nothing is kept. A request that was
  // cancelled or whose deadline passed is no error.
  using OnText = std::function<void(std::string_view text)>;
  Expected<Generation> generate(const Request& request, const OnText& on_text = nullptr);
  // The same for who wants to know what each pass brought, and how each token came about.
  using OnDelta = std::function<void(const ReplyDelta& delta)>;
  Expected<Generation> generate_by_rounds(const Request& request, const OnDelta& on_delta);

  // Answers many at once: the sink, which is kept until then, hears of the request until on_end().
  // The first call starts the engine's thread. Errors are check()'s, and kResourceExhausted if too
  // many wait.
  using RequestId = uint64_t;
  Expected<RequestId> submit(Request request, std::shared_ptr<ReplySink> sink);
  // Within one pass. One that has ended, or never was, is no error.
  void cancel(RequestId id);

  // Drafters drop what they learned from replies so far. Does nothing once something was submitted.
  void forget();

  // For the programs of Aerie's own tree: typed options, and the parts themselves
  // (engine/opened_model.h), whose headers are not installed. The parts are for one thread, and not
  // to be touched during generate() or after submit().
  static Expected<std::unique_ptr<Engine>> open(const EngineOptions& options);
  static Expected<std::unique_ptr<Engine>> open(const EngineOptions& options,
                                                const Concurrency& concurrency);
  OpenedModel& parts();
  const OpenedModel& parts() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace aerie
