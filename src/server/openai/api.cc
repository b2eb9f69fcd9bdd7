#include "server/openai/api.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/admin/admin.h"
#include "server/anthropic/messages.h"
#include "server/http/routes.h"
#include "server/llama_cpp/llama_completion.h"
#include "server/models/api_state.h"
#include "server/models/model_host.h"
#include "server/ollama/ollama.h"
#include "server/openai/fields/chat_prompt.h"
#include "server/openai/fields/generation_settings.h"
#include "server/openai/fields/json_text.h"
#include "server/openai/openai_chat.h"
#include "server/openai/openai_completions.h"
#include "server/openai/openai_embeddings.h"
#include "server/openai/openai_reply.h"
#include "server/openai/openai_responses.h"
#include "server/openai/prompt_input.h"
#include "server/page/page.h"

namespace aerie::server {

namespace {

using AnswerPtr = std::shared_ptr<Answer>;
using Lease = ModelHost::Lease;

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
void answer_text(const Lease& model, const HttpRequest& request, const Json& body,
                 const AnswerPtr& answer,
                 ReplyTask (*read)(FieldReader&, ApiState&, const HttpRequest&)) {
  if (model->server.draining.load()) {
    return send_error(*answer, error_of(503, "the server is ending: nothing new is taken"));
  }
  std::optional<ApiError> error;
  FieldReader reader(body, error);
  ReplyTask task = read(reader, *model, request);
  task.traffic_class = read_traffic_class(reader);
  task.account = request.account;
  if (error) return send_error(*answer, *error);
  run_task(model, std::move(task), answer);
}

Json model_json(ModelHost& host, size_t model, const std::string& name) {
  Json out = {{"id", name},
              {"object", "model"},
              {"created", host.server().started},
              {"owned_by", "aerie"},
              {"status", {{"value", presence_name(host.presence(model))}}}};
  if (const Lease lease = host.loaded(model, false)) {
    const ApiState& state = *lease;
    out["root"] = state.service.model_name();
    out["max_model_len"] = state.service.context();
    out["aerie"] = {{"speculations", state.service.speculations()},
                    {"trace", state.options.allow_trace}};
  }
  return out;
}

void answer_models(ModelHost& host, Answer& answer) {
  Json list = Json::array();
  for (size_t i = 0; i < host.count(); ++i) {
    for (const std::string& name : host.names(i)) list.push_back(model_json(host, i, name));
  }
  send_json(answer, {{"object", "list"}, {"data", std::move(list)}});
}

void answer_model(ModelHost& host, const std::string& name, Answer& answer) {
  if (const auto model = host.find(name)) return send_json(answer, model_json(host, *model, name));
  send_error(answer, error_of(404, "there is no such model", "model", "model_not_found"));
}

// What is told at once of what a request asks.
void answer_value(const Lease& model, const HttpRequest& request, const Json& body, Answer& answer,
                  Json (*value_of)(FieldReader&, ApiState&, const HttpRequest&)) {
  std::optional<ApiError> error;
  FieldReader reader(body, error);
  const Json value = value_of(reader, *model, request);
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

// As vLLM has it, with the ids alone: routers ask for them to see which prompts begin alike.
Json rendered_prompt(FieldReader& reader, const ApiState& state, const HttpRequest& request,
                     const std::vector<int32_t>& ids) {
  return {{"request_id", request.id},
          {"model", reader.string("model", state.model_names.front())},
          {"token_ids", ids}};
}

Json rendered_chat(FieldReader& reader, ApiState& state, const HttpRequest& request) {
  const ReplyTask task = read_chat(reader, state, request);
  if (reader.failed()) return {};
  return rendered_prompt(reader, state, request, task.requests.front().prompt);
}

Json rendered_completion(FieldReader& reader, ApiState& state, const HttpRequest& request) {
  const ReplyTask task = read_completion(reader, state, request);
  if (reader.failed()) return {};
  Json out = Json::array();
  for (size_t i = 0; i < task.requests.size(); ++i) {
    if (i > 0 && task.prompts[i] == task.prompts[i - 1]) continue;
    out.push_back(rendered_prompt(reader, state, request, task.requests[i].prompt));
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

void answer_metrics(ModelHost& host, Answer& answer) {
  std::string text = host.metrics_text();
  if (const auto& more = host.server().more_metrics) text += more();
  answer.send(200, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
}

void answer_ready(ModelHost& host, Answer& answer) {
  if (host.server().draining.load()) {
    return send_error(answer, error_of(503, "the server is ending"));
  }
  send_json(answer, {{"status", "ready"}});
}

// By vLLM's name, and by the one that its router asks for.
void answer_load(ModelHost& host, Answer& answer) {
  const int load = host.server().open_requests.load();
  send_json(answer, {{"server_load", load}, {"load", load}});
}

// What a model is asked.
void answer_by_model(RouteName name, const Lease& model, const HttpRequest& request,
                     const Json& body, const AnswerPtr& answer) {
  const auto text = [&](auto read) { answer_text(model, request, body, answer, read); };
  const auto value = [&](auto value_of) { answer_value(model, request, body, *answer, value_of); };
  switch (name) {
    case RouteName::kChat:
      return text(read_chat);
    case RouteName::kCompletions:
      return text(read_completion);
    case RouteName::kChatRender:
      return value(rendered_chat);
    case RouteName::kCompletionsRender:
      return value(rendered_completion);
    case RouteName::kEmbeddings:
      return text(read_embeddings);
    case RouteName::kResponses:
      return text(read_response);
    case RouteName::kMessages:
      return text(read_anthropic_message);
    case RouteName::kMessageTokens:
      return value(count_message_tokens);
    case RouteName::kLlamaCompletion:
      return text(read_llama_completion);
    case RouteName::kLlamaProps:
      return send_json(*answer, llama_props(*model));
    case RouteName::kOllamaChat:
      return text(read_ollama_chat);
    case RouteName::kOllamaGenerate:
      return text(read_ollama_generate);
    case RouteName::kOllamaShow:
      return value(ollama_model);
    case RouteName::kTokenize:
      return value(tokens_of);
    case RouteName::kDetokenize:
      return value(detokenized);
    case RouteName::kTokenizerInfo:
      return answer_tokenizer_info(*model, *answer);
    default:
      break;
  }
}

// What the server is asked. False: it is for a model.
bool answer_by_server(RouteName name, ModelHost& host, const HttpRequest& request,
                      const AnswerPtr& answer) {
  switch (name) {
    case RouteName::kOllamaTags:
      send_json(*answer, ollama_models(host, host.server().started));
      return true;
    case RouteName::kVersion:
    case RouteName::kOllamaVersion:
      send_json(*answer, {{"version", AERIE_VERSION}});
      return true;
    case RouteName::kModels:
      answer_models(host, *answer);
      return true;
    case RouteName::kModel:
      answer_model(host, request.path.substr(kModelPrefix.size()), *answer);
      return true;
    case RouteName::kLoad:
    case RouteName::kRouterLoad:
      answer_load(host, *answer);
      return true;
    case RouteName::kHealth:
      send_json(*answer, {{"status", "ok"}});
      return true;
    case RouteName::kReady:
      answer_ready(host, *answer);
      return true;
    case RouteName::kMetrics:
      answer_metrics(host, *answer);
      return true;
    case RouteName::kDescription:
      answer->send(200, "application/json", std::string(openapi_text()));
      return true;
    case RouteName::kPage:
      send_page(request.path, *answer);
      return true;
    case RouteName::kAdminStatus:
      send_json(*answer, admin_status(host));
      return true;
    case RouteName::kAdminLoad:
    case RouteName::kAdminUnload:
    case RouteName::kAdminCanary:
    case RouteName::kAdminPromote:
    case RouteName::kAdminRollBack:
    case RouteName::kAdminShadow:
    case RouteName::kAdminShadowEnd:
      answer_order(name, host, request, answer);
      return true;
    default:
      return false;
  }
}

// By its body, or by ?model=. Empty: it names none that could be one.
std::string asked_model(const HttpRequest& request, const Json& body) {
  const auto query = request.query.find("model");
  if (request.method == "GET") return query == request.query.end() ? "" : query->second;
  const auto field = body.is_object() ? body.find("model") : body.end();
  return field != body.end() && field->is_string() ? field->get<std::string>() : "";
}

bool is_of_ollama(RouteName name) {
  return name == RouteName::kOllamaChat || name == RouteName::kOllamaGenerate ||
         name == RouteName::kOllamaShow;
}

ApiError no_such_model(const ModelHost& host) {
  std::vector<std::string> all;
  for (size_t i = 0; i < host.count(); ++i) {
    all.insert(all.end(), host.names(i).begin(), host.names(i).end());
  }
  return error_of(404, fmt::format("there is no such model; there is {}", fmt::join(all, ", ")),
                  "model", "model_not_found");
}

// Why a model is not there. What is wrong with its files is for the server's log.
ApiError absence(const Status& status, const std::string& name) {
  if (status.code() == StatusCode::kCancelled) return error_of(503, status.message());
  const bool is_full = status.code() == StatusCode::kResourceExhausted;
  return error_of(503,
                  fmt::format("the model {} {}: try again later", name,
                              is_full ? "has no room in memory now" : "could not be loaded"),
                  "model", "model_not_loaded");
}

// Whom a model is not loaded for any more.
std::shared_ptr<const std::atomic<bool>> gone_of(Answer& answer) {
  auto gone = std::make_shared<std::atomic<bool>>(false);
  answer.on_gone([gone] { *gone = true; });
  return gone;
}

void answer_route(RouteName name, ModelHost& host, const HttpRequest& request,
                  const AnswerPtr& answer) {
  if (answer_by_server(name, host, request, answer)) return;
  Json body;
  if (request.method != "GET") {
    auto parsed = parse_body(request);
    if (!parsed.ok()) return send_error(*answer, error_of(400, parsed.status().message()));
    body = std::move(*parsed);
  }
  const std::string named = asked_model(request, body);
  std::string_view asked = named;
  constexpr std::string_view kLatest = ":latest";  // Ollama's word for what has no other
  if (is_of_ollama(name) && asked.ends_with(kLatest) && !host.find(asked))
    asked.remove_suffix(kLatest.size());
  const std::optional<size_t> model = asked.empty() ? 0 : host.find(asked);
  if (!model) return send_error(*answer, no_such_model(host));
  if (const Lease lease = host.loaded(*model)) {
    return answer_by_model(name, lease, request, body, answer);
  }
  // What waits keeps its text alone, which is a fraction of what it says.
  host.use(*model, gone_of(*answer),
           [name, request, answer, shown = std::string(asked)](const Expected<Lease>& lease) {
             if (!lease.ok()) return send_error(*answer, absence(lease.status(), shown));
             const auto again = request.method == "GET" ? Json() : parse_body(request).value();
             answer_by_model(name, *lease, request, again, answer);
           });
}

}  // namespace

Api::Api(ModelHost& host) : host_(host) {}

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
    answer_route(*match.name, host_, request, answer);
  } catch (const std::exception& error) {
    send_error(*answer, error_of(error));
  }
}

}  // namespace aerie::server
