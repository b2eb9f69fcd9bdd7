#include "server/openai/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/anthropic/messages.h"
#include "server/http/routes.h"
#include "server/llama_cpp/llama_completion.h"
#include "server/ollama/ollama.h"
#include "server/openai/api_state.h"
#include "server/openai/fields/chat_prompt.h"
#include "server/openai/fields/generation_settings.h"
#include "server/openai/fields/json_text.h"
#include "server/openai/openai_chat.h"
#include "server/openai/openai_completions.h"
#include "server/openai/openai_reply.h"
#include "server/openai/openai_responses.h"
#include "server/page/page.h"

namespace aerie::server {

struct Api::State : ApiState {
  using ApiState::ApiState;
};

namespace {

using AnswerPtr = std::shared_ptr<Answer>;
using StatePtr = std::shared_ptr<ApiState>;

// Twice what 128 prompts of 4,096 ids take. What a body of the largest size may hold would be
// twenty times that.
constexpr size_t kMaxBodyTree = size_t{32} << 20;

Expected<Json> parse_body(const HttpRequest& request) {
  return parse_json(request.body, "the request's body", kMaxBodyTree);
}

void send_json(Answer& answer, const Json& value, int status = 200) {
  answer.send(status, "application/json", json_text(value));
}

// By which Holdback tells requests apart.
std::string read_traffic_class(FieldReader& request) {
  constexpr size_t kMostBytes = 64;
  std::string name = request.string("traffic_class", "");
  if (name.size() > kMostBytes) {
    request.refuse("traffic_class", "may have at most {} bytes", kMostBytes);
  }
  return name;
}

// Text of a length that the client chooses.
void answer_text(const StatePtr& state, const HttpRequest& request, const AnswerPtr& answer,
                 ReplyTask (*read)(FieldReader&, ApiState&, const HttpRequest&)) {
  if (state->draining.load()) {
    return send_error(*answer, error_of(503, "the server is ending: nothing new is taken"));
  }
  auto body = parse_body(request);
  if (!body.ok()) return send_error(*answer, error_of(400, body.status().message()));
  std::optional<ApiError> error;
  FieldReader reader(*body, error);
  ReplyTask task = read(reader, *state, request);
  task.traffic_class = read_traffic_class(reader);
  task.account = request.account;
  if (error) return send_error(*answer, *error);
  run_task(state, std::move(task), answer);
}

Json model_json(const ApiState& state, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", state.started},
          {"owned_by", "aerie"},
          {"root", state.service.model_name()},
          {"max_model_len", state.service.context()},
          {"aerie",
           {{"speculations", state.service.speculations()}, {"trace", state.options.allow_trace}}}};
}

void answer_models(const StatePtr& state, Answer& answer) {
  Json list = Json::array();
  for (const std::string& name : state->model_names) list.push_back(model_json(*state, name));
  send_json(answer, {{"object", "list"}, {"data", std::move(list)}});
}

void answer_model(const StatePtr& state, std::string_view name, Answer& answer) {
  for (const std::string& known : state->model_names) {
    if (known == name) return send_json(answer, model_json(*state, known));
  }
  send_error(answer, error_of(404, "there is no such model", "model", "model_not_found"));
}

// What is told at once of what a request asks.
void answer_value(const StatePtr& state, const HttpRequest& request, Answer& answer,
                  Json (*value_of)(FieldReader&, ApiState&, const HttpRequest&)) {
  auto body = parse_body(request);
  if (!body.ok()) return send_error(answer, error_of(400, body.status().message()));
  std::optional<ApiError> error;
  FieldReader reader(*body, error);
  const Json value = value_of(reader, *state, request);
  if (error) return send_error(answer, *error);
  send_json(answer, value);
}

Json tokens_of(FieldReader& reader, ApiState& state, const HttpRequest&) {
  read_model(reader, state);
  std::vector<int32_t> ids;
  const Tokenizer& tokenizer = state.service.tokenizer();
  if (const Json* messages = reader.find("messages")) {
    ChatPrompt prompt;
    prompt.messages = read_messages(reader, *messages, "messages");
    prompt.extra = reader.object("chat_template_kwargs");
    prompt.add_generation_prompt = reader.boolean("add_generation_prompt", true);
    ids = encode_chat(reader, state, std::move(prompt)).ids;
  } else {
    // llama.cpp calls it otherwise, and leaves special tokens out.
    const bool is_theirs = reader.has("content") && !reader.has("prompt");
    const char* text = is_theirs ? "content" : "prompt";
    if (!reader.has(text)) reader.refuse("prompt", "is missing");
    EncodeOptions options;
    options.add_special = is_theirs ? reader.boolean("add_special", false)
                                    : reader.boolean("add_special_tokens", true);
    options.parse_special = reader.boolean("parse_special", true);
    const Status encoded = tokenizer.encode(reader.string(text, ""), options, ids);
    if (!encoded.ok()) reader.refuse(error_of(encoded, "prompt"));
  }
  const bool show = reader.boolean("return_token_strs", false);
  if (reader.failed()) return {};
  Json out = {{"count", ids.size()},
              {"max_model_len", state.service.context()},
              {"tokens", ids},
              {"token_strs", nullptr}};
  if (show) {
    out["token_strs"] = Json::array();
    for (const int32_t id : ids) out["token_strs"].push_back(valid_text(tokenizer.piece(id)));
  }
  return out;
}

// As vLLM has it: for clients that cut texts with this server's tokenizer.
void answer_tokenizer_info(const ApiState& state, Answer& answer) {
  const Tokenizer& tokenizer = state.service.tokenizer();
  const auto name = [&](int32_t id) {
    return id < 0 ? Json() : Json(valid_text(tokenizer.piece(id)));
  };
  const auto& chat = state.service.chat_template();
  send_json(answer, {{"tokenizer_class", "aerie"},
                     {"bos_token", name(tokenizer.bos())},
                     {"eos_token", name(tokenizer.eos())},
                     {"pad_token", name(tokenizer.pad())},
                     {"unk_token", name(tokenizer.unk())},
                     {"model_max_length", state.service.context()},
                     {"chat_template", chat.ok() ? Json(chat->source()) : Json()}});
}

// As many tokens as that many contexts have may be made text.
constexpr int kContexts = 16;

Json detokenized(FieldReader& reader, ApiState& state, const HttpRequest&) {
  read_model(reader, state);
  const Json* tokens = reader.array("tokens");
  if (tokens == nullptr) reader.refuse("tokens", "is missing");
  if (reader.failed()) return {};
  const std::vector<int32_t> ids = read_ids(reader, *tokens, state, "tokens");
  if (ids.size() > kContexts * static_cast<size_t>(state.service.context())) {
    reader.refuse("tokens", "may be at most {}", kContexts * state.service.context());
  }
  if (reader.failed()) return {};
  const std::string text = text_of(state.service.tokenizer(), ids);
  return {{"prompt", text}, {"content", text}};
}

void answer_metrics(const ApiState& state, Answer& answer) {
  std::string text = state.metrics.text(state.service.stats(), state.holdback.figures());
  if (state.options.more_metrics) text += state.options.more_metrics();
  answer.send(200, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
}

void answer_ready(const StatePtr& state, Answer& answer) {
  if (state->draining.load()) return send_error(answer, error_of(503, "the server is ending"));
  send_json(answer, {{"status", "ready"}});
}

void answer_route(RouteName name, const StatePtr& state, const HttpRequest& request,
                  const AnswerPtr& answer) {
  switch (name) {
    case RouteName::kChat:
      return answer_text(state, request, answer, read_chat);
    case RouteName::kCompletions:
      return answer_text(state, request, answer, read_completion);
    case RouteName::kResponses:
      return answer_text(state, request, answer, read_response);
    case RouteName::kMessages:
      return answer_text(state, request, answer, read_anthropic_message);
    case RouteName::kMessageTokens:
      return answer_value(state, request, *answer, count_message_tokens);
    case RouteName::kLlamaCompletion:
      return answer_text(state, request, answer, read_llama_completion);
    case RouteName::kLlamaProps:
      return send_json(*answer, llama_props(*state));
    case RouteName::kOllamaChat:
      return answer_text(state, request, answer, read_ollama_chat);
    case RouteName::kOllamaGenerate:
      return answer_text(state, request, answer, read_ollama_generate);
    case RouteName::kOllamaTags:
      return send_json(*answer, ollama_models(*state));
    case RouteName::kOllamaShow:
      return answer_value(state, request, *answer, ollama_model);
    case RouteName::kOllamaVersion:
      return send_json(*answer, {{"version", AERIE_VERSION}});
    case RouteName::kModels:
      return answer_models(state, *answer);
    case RouteName::kModel:
      return answer_model(state, std::string_view(request.path).substr(kModelPrefix.size()),
                          *answer);
    case RouteName::kTokenize:
      return answer_value(state, request, *answer, tokens_of);
    case RouteName::kDetokenize:
      return answer_value(state, request, *answer, detokenized);
    case RouteName::kTokenizerInfo:
      return answer_tokenizer_info(*state, *answer);
    case RouteName::kHealth:
      return send_json(*answer, {{"status", "ok"}});
    case RouteName::kReady:
      return answer_ready(state, *answer);
    case RouteName::kMetrics:
      return answer_metrics(*state, *answer);
    case RouteName::kVersion:
      return send_json(*answer, {{"version", AERIE_VERSION}});
    case RouteName::kDescription:
      return answer->send(200, "application/json", std::string(openapi_text()));
    case RouteName::kPage:
      return send_page(request.path, *answer);
  }
}

size_t longest_piece_of(const Tokenizer& tokenizer) {
  size_t most = 1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    most = std::max(most, tokenizer.piece(id).size());
  }
  return most;
}

// Names that are not known were refused where the options were read.
chat::Dialect dialect_of(const Service& service, const ApiOptions& options) {
  chat::Dialect dialect;
  const auto& chat = service.chat_template();
  if (chat.ok()) dialect = chat::detect_dialect(chat->source());
  (void)chat::choose_calls(options.tool_call_parser, dialect);
  (void)chat::choose_reasoning(options.reasoning_parser, dialect);
  return dialect;
}

std::vector<std::string> names_of(const Service& service, const ApiOptions& options) {
  if (!options.model_names.empty()) return options.model_names;
  return {service.model_name()};
}

}  // namespace

ApiState::ApiState(Service& service_to_ask, ApiOptions api_options)
    : service(service_to_ask),
      options(std::move(api_options)),
      model_names(names_of(service, options)),
      started(std::time(nullptr)),
      control_names(service.tokenizer()),
      dialect(dialect_of(service, options)),
      longest_piece(longest_piece_of(service.tokenizer())),
      grammars(std::make_shared<GrammarCache>()),
      metrics(model_names.front()),
      holdback(options.holdback) {}

int ApiState::max_prompt_tokens() const {
  const int most = service.context() - 1;
  return options.max_prompt_tokens > 0 ? std::min(most, options.max_prompt_tokens) : most;
}

Api::Api(Service& service, ApiOptions options)
    : state_(std::make_shared<State>(service, std::move(options))) {}
Api::~Api() = default;

void Api::handle(const HttpRequest& request, const std::shared_ptr<Answer>& answer) {
  const RouteMatch match = find_route(request.method, request.path);
  if (!match.known) {
    return send_error(*answer, error_of(404, "there is nothing at this path", "", "not_found"));
  }
  if (!match.name) {
    return send_error(
        *answer,
        error_of(405, fmt::format("this path takes {}", match.allow), "", "method_not_allowed"),
        {{"Allow", match.allow}});
  }
  // Nothing here throws by itself; the libraries may, where memory is short.
  try {
    answer_route(*match.name, state_, request, answer);
  } catch (const std::exception& error) {
    send_error(*answer, error_of(error));
  }
}

void Api::drain() {
  state_->draining.store(true);
}

int Api::open_requests() const {
  return state_->open_requests.load();
}

}  // namespace aerie::server
