#include "engine/engine.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/progress.h"
#include "chat/whole_reply.h"
#include "engine/running_reply.h"
#include "engine/service.h"
#include "format/json.h"
#include "scheduler/scheduler.h"
#include "tokenizer/detokenizer.h"

namespace aerie {
namespace {

// How long a request that is answered beside others may go on after it was cancelled.
constexpr std::chrono::milliseconds kCancelPoll{20};

// Puts a reply together.
class Gatherer final : public ReplySink {
 public:
  // `decoder`, if it works for this reply alone, says what its passes cost. May be null.
  Gatherer(const Engine::OnDelta& on_delta, const Decoder* decoder)
      : show_(on_delta), decoder_(decoder) {}

  void on_delta(ReplyDelta delta) override;
  void on_end(ReplyEnd end) override;
  // The reply, or what went wrong. Requires that it has ended.
  Expected<Generation> take();

 private:
  const Engine::OnDelta& show_;
  const Decoder* decoder_;
  Generation out_;
  Status status_;
  SteadyTime start_ = steady_now();
  std::optional<SteadyTime> first_;  // the first token's
  SteadyTime last_;                  // the last round's
};

void Gatherer::on_delta(ReplyDelta delta) {
  const SteadyTime now = steady_now();
  if (!first_) {
    out_.prompt_seconds = seconds_between(start_, now);
    if (decoder_ != nullptr) out_.prompt_times = decoder_->times();
  } else {
    out_.rounds.push_back({static_cast<int>(delta.tokens.size()), seconds_between(last_, now)});
    last_ = now;
  }
  out_.text += delta.text;
  if (show_) show_(delta);
  for (EmittedToken& token : delta.tokens) {
    out_.tokens.push_back(token.id);
    out_.emitted.push_back(std::move(token));
  }
  if (!first_) {
    out_.prompt_logprobs = std::move(delta.prompt_logprobs);
    first_ = last_ = steady_now();
  }
}

void Gatherer::on_end(ReplyEnd end) {
  if (first_) out_.generation_seconds = seconds_since(*first_);
  out_.finish = end.finish;
  out_.stats = std::move(end.stats);
  out_.prompt_tokens = end.prompt_tokens;
  out_.cached_tokens = end.cached_tokens;
  if (decoder_ != nullptr) {
    out_.times = decoder_->times();
    out_.target_passes = decoder_->target_passes();
  }
  // Tokens that are there already are worth having.
  if (end.finish == FinishReason::kError && !out_.tokens.empty()) {
    out_.problem = end.status.message();
  } else {
    status_ = std::move(end.status);
  }
  out_.text += end.text;
  if (!end.text.empty() && show_) show_({std::move(end.text), {}, {}});
}

Expected<Generation> Gatherer::take() {
  if (!status_.ok()) return status_;
  return std::move(out_);
}

// Keeps what arrives for another thread.
class Mailbox final : public ReplySink {
 public:
  void on_delta(ReplyDelta delta) override {
    const std::lock_guard lock(mutex_);
    deltas_.push_back(std::move(delta));
    mail_.notify_one();
  }
  void on_end(ReplyEnd end) override {
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
    mail_.notify_one();
  }

  // Hands on what there is, after a while if need be. Whether that was the end.
  bool hand_on(ReplySink& sink) {
    std::deque<ReplyDelta> deltas;
    std::optional<ReplyEnd> end;
    {
      std::unique_lock lock(mutex_);
      mail_.wait_for(lock, kCancelPoll, [&] { return end_ || !deltas_.empty(); });
      deltas.swap(deltas_);
      end.swap(end_);
    }
    for (ReplyDelta& delta : deltas) sink.on_delta(std::move(delta));
    if (end) sink.on_end(std::move(*end));
    return end.has_value();
  }

 private:
  std::mutex mutex_;
  std::condition_variable mail_;
  std::deque<ReplyDelta> deltas_;
  std::optional<ReplyEnd> end_;
};

bool is_cancelled(const Request& request) {
  return request.cancel != nullptr && request.cancel->load();
}

// Shows how much of a prompt has been read, until all of it has.
class PromptProgress {
 public:
  explicit PromptProgress(size_t tokens)
      : tokens_(static_cast<int64_t>(tokens)),
        shown_(std::in_place, "reading the prompt", tokens_, ProgressUnit::kTokens) {}

  // After every step.
  void update(const Scheduler& scheduler) {
    if (!shown_) return;
    const int64_t read = tokens_ - scheduler.unread();
    if (read >= tokens_) return shown_.reset();
    const int64_t reused = scheduler.stats().reused_tokens;
    if (!std::exchange(began_, true) && reused > 0) shown_->skip(reused);
    shown_->set(read);
  }

 private:
  int64_t tokens_;
  bool began_ = false;
  std::optional<Progress> shown_;
};

// In this thread, with nothing beside it.
Expected<Generation> answer_alone(OpenedModel& opened, const Request& request,
                                  const Engine::OnDelta& on_delta) {
  const OpenedModel::Speculation& speculation =
      opened.speculations[static_cast<size_t>(request.speculation)];
  // Without its drafter, a plain run computes nothing that only the drafter wants.
  Drafter* drafter = request.speculate ? speculation.drafter.get() : nullptr;
  DecoderOptions decoder_options = opened.decoder;
  decoder_options.max_nodes = speculation.max_nodes;
  Decoder decoder(*opened.model, *opened.cache, drafter, decoder_options);
  const auto gatherer = std::make_shared<Gatherer>(on_delta, &decoder);
  RunningReply reply(request, gatherer, opened.tokenizer(), nullptr);
  SchedulerOptions options;
  options.max_sequences = 1;
  options.max_pass_rows = decoder_options.prefill_chunk;
  Scheduler scheduler(decoder, *opened.cache, options);
  constexpr JobId kJob = 1;
  scheduler.add(
      reply.make_job(kJob, {drafter == nullptr ? -1 : 0}, opened.options.context, nullptr));
  PromptProgress progress(request.prompt.size());
  while (!scheduler.idle()) {
    if (is_cancelled(request)) {
      scheduler.cancel(kJob);
    } else {
      scheduler.step();
      progress.update(scheduler);
    }
  }
  return gatherer->take();
}

// By the service's thread.
Expected<Generation> answer_beside_others(Service& service, const Request& request,
                                          const Engine::OnDelta& on_delta) {
  Gatherer gatherer(on_delta, nullptr);
  const auto mailbox = std::make_shared<Mailbox>();
  AERIE_ASSIGN_OR_RETURN(const Service::Id id, service.submit(request, mailbox));
  while (!mailbox->hand_on(gatherer)) {
    if (is_cancelled(request)) service.cancel(id);
  }
  return gatherer.take();
}

}  // namespace

struct Engine::Impl {
  // As far as it runs, the service; else null.
  Service* running() const { return service_now.load(); }

  OpenedModel opened;
  Concurrency concurrency;
  std::mutex turn;  // of what touches the parts
  std::unique_ptr<Service> service;
  std::atomic<Service*> service_now = nullptr;
  std::mutex trie_mutex;
  std::shared_ptr<const TokenTrie> trie;  // null until a grammar needs it
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Expected<std::unique_ptr<Engine>> Engine::open(const OpenOptions& options) {
  AERIE_ASSIGN_OR_RETURN(const EngineOptions typed, parse_options(options));
  if (options.sequences == 1) return open(typed);
  ServiceOptions service;
  service.max_sequences = options.sequences;
  AERIE_ASSIGN_OR_RETURN(const Concurrency concurrency, concurrency_of(service));
  return open(typed, concurrency);
}

Expected<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  return open(options, Concurrency());
}

Expected<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options,
                                               const Concurrency& concurrency) {
  auto impl = std::make_unique<Impl>();
  AERIE_ASSIGN_OR_RETURN(impl->opened, open_model(options, concurrency));
  impl->concurrency = concurrency;
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

OpenedModel& Engine::parts() {
  return impl_->opened;
}

const OpenedModel& Engine::parts() const {
  return impl_->opened;
}

ModelInfo Engine::info() const {
  const OpenedModel& opened = impl_->opened;
  ModelInfo info;
  info.name = opened.name();
  info.context = opened.options.context;
  info.vocabulary = opened.config().vocab;
  info.bos = opened.tokenizer().bos();
  info.eos = opened.tokenizer().eos();
  info.has_chat_template = opened.chat_template().ok();
  return info;
}

Expected<std::vector<int32_t>> Engine::tokenize(std::string_view text,
                                                const TokenizeOptions& options) const {
  std::vector<int32_t> ids;
  AERIE_RETURN_IF_ERROR(parts().tokenizer().encode(
      text, {.add_special = options.add_special, .parse_special = options.parse_special}, ids));
  return ids;
}

std::string Engine::detokenize(std::span<const int32_t> tokens) const {
  const Tokenizer& tokenizer = parts().tokenizer();
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const int32_t token : tokens) {
    if (token >= 0 && token < tokenizer.vocab_size()) detokenizer.push(token, text);
  }
  detokenizer.finish(text);
  return text;
}

Expected<std::string> Engine::apply_chat_template(std::span<const ChatMessage> messages,
                                                  bool add_generation_prompt) const {
  const Expected<ChatTemplate>& chat_template = parts().chat_template();
  if (!chat_template.ok()) return chat_template.status();
  return chat_template->render(messages, add_generation_prompt);
}

Expected<std::string> Engine::render_chat_template(std::string_view variables) const {
  constexpr size_t kMostTreeBytes = size_t{64} << 20;
  const Expected<ChatTemplate>& chat_template = parts().chat_template();
  if (!chat_template.ok()) return chat_template.status();
  AERIE_ASSIGN_OR_RETURN(const Json json,
                         parse_json(variables, "chat template's variables", kMostTreeBytes));
  ChatInput input;
  input.extra = &json;
  return chat_template->render(input);
}

namespace {

chat::Dialect dialect_of(const OpenedModel& opened) {
  const Expected<ChatTemplate>& chat_template = opened.chat_template();
  return chat_template.ok() ? chat::detect_dialect(chat_template->source()) : chat::Dialect();
}

// {"type": "function", "function": {...}}, ...
Expected<Json> functions_of(std::string_view tools) {
  constexpr size_t kMostTreeBytes = size_t{64} << 20;
  Json functions = Json::array();
  if (tools.empty()) return functions;
  AERIE_ASSIGN_OR_RETURN(Json list, parse_json(tools, "tools", kMostTreeBytes));
  if (!list.is_array()) return invalid_argument("tools: must be an array of functions");
  for (Json& tool : list) {
    const auto function = tool.is_object() ? tool.find("function") : tool.end();
    const bool has_name = tool.is_object() && function != tool.end() && function->is_object() &&
                          function->contains("name") && (*function)["name"].is_string();
    if (!has_name) {
      return invalid_argument(
          "tools: each must be {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
    functions.push_back(std::move(*function));
  }
  return functions;
}

}  // namespace

Expected<ChatReply> Engine::read_chat_reply(std::string_view text, std::string_view prompt,
                                            std::string_view tools) const {
  AERIE_ASSIGN_OR_RETURN(const Json functions, functions_of(tools));
  const chat::Dialect dialect = dialect_of(parts());
  return chat::read_reply(dialect, chat::reasoning_start(dialect, prompt),
                          chat::tools_of(functions), text);
}

std::vector<int32_t> Engine::reply_marks(bool with_calls) const {
  return chat::shown_tokens(dialect_of(parts()), with_calls, parts().tokenizer());
}

Expected<SamplingParams> Engine::suggested_sampling() const {
  AERIE_ASSIGN_OR_RETURN(const SuggestedSampling suggested,
                         read_suggested_sampling(parts().file()));
  SamplingParams params;
  suggested.apply_to(params);
  return params;
}

Expected<std::shared_ptr<const Grammar>> Engine::compile_grammar(const GrammarSpec& spec) const {
  std::shared_ptr<const TokenTrie> trie;
  {
    const std::lock_guard lock(impl_->trie_mutex);
    if (impl_->trie == nullptr) impl_->trie = make_token_trie(parts().tokenizer());
    trie = impl_->trie;
  }
  return aerie::compile_grammar(spec, std::move(trie));
}

Status Engine::check(const Request& request) const {
  return check_request(request, impl_->opened, static_cast<int>(impl_->opened.speculations.size()));
}

Expected<Generation> Engine::generate(const Request& request, const OnText& on_text) {
  if (!on_text) return generate_by_rounds(request, nullptr);
  return generate_by_rounds(request, [&](const ReplyDelta& delta) {
    if (!delta.text.empty()) on_text(delta.text);
  });
}

Expected<Generation> Engine::generate_by_rounds(const Request& request, const OnDelta& on_delta) {
  AERIE_RETURN_IF_ERROR(check(request));
  if (request.pooling != Pooling::kNone) {
    return invalid_argument("generate() is for texts: submit() a request for an embedding");
  }
  if (impl_->running() == nullptr) {
    const std::lock_guard lock(impl_->turn);
    if (impl_->running() == nullptr) return answer_alone(impl_->opened, request, on_delta);
  }
  return answer_beside_others(*impl_->running(), request, on_delta);
}

Expected<Engine::RequestId> Engine::submit(Request request, std::shared_ptr<ReplySink> sink) {
  if (impl_->running() == nullptr) {
    const std::lock_guard lock(impl_->turn);
    if (impl_->service == nullptr) {
      ServiceOptions options;
      options.max_sequences = impl_->concurrency.sequences;
      options.prefix_cache = impl_->opened.options.reuse_prefixes;
      AERIE_ASSIGN_OR_RETURN(impl_->service, start_service(impl_->opened, options));
      impl_->service_now = impl_->service.get();
    }
  }
  return impl_->running()->submit(std::move(request), std::move(sink));
}

void Engine::cancel(RequestId id) {
  if (Service* service = impl_->running()) service->cancel(id);
}

void Engine::forget() {
  const std::lock_guard lock(impl_->turn);
  if (impl_->running() != nullptr) return;
  for (const OpenedModel::Speculation& speculation : impl_->opened.speculations) {
    if (speculation.drafter != nullptr) speculation.drafter->forget();
  }
}

}  // namespace aerie
