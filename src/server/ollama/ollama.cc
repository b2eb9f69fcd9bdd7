#include "server/ollama/ollama.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/ollama/ollama_input.h"
#include "server/openai/fields/chat_prompt.h"
#include "server/openai/fields/chat_request.h"
#include "server/openai/fields/json_text.h"

namespace aerie::server {
namespace {

using Kind = chat::ReplyPart::Kind;

struct OllamaWords {
  const ApiState* state = nullptr;  // outlives every answer
  ReplyShape shape;
  std::string model;
  bool is_generate = false;  // the text is "response", not a message
};

std::string time_text(std::time_t time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time));
}

int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

// One reply; in a stream a line of JSON for each piece.
class OllamaFormat final : public ReplyFormat {
 public:
  explicit OllamaFormat(OllamaWords words)
      : words_(std::move(words)), reader_(*words_.state, words_.shape) {}

  std::string_view stream_type() const override { return "application/x-ndjson"; }
  std::string opening(const std::vector<Choice>&) override { return ""; }

  std::string delta(const Choice&, const ReplyDelta& delta) override {
    return said(reader_.read(delta.text, delta.tokens, false));
  }

  std::string closing(const Choice& choice, const ReplyDelta& last) override {
    std::string out = said(reader_.read(last.text, last.tokens, true));
    return out + line(finished(choice, piece({})));
  }

  std::string ending(const std::vector<Choice>&) override { return ""; }

  std::string failure(const ApiError& error) override { return line({{"error", error.message}}); }

  std::string whole(const std::vector<Choice>& choices) override {
    const Choice& choice = choices.front();
    return json_text(finished(choice, piece(reader_.read(choice.text, choice.tokens, true))));
  }

 private:
  static std::string line(const Json& value) { return json_text(value) + "\n"; }

  std::string said(const std::vector<chat::ReplyPart>& parts) {
    Json one = piece(parts);
    const Json& where = words_.is_generate ? one : one["message"];
    const bool says =
        where[text_key()] != "" || where.contains("thinking") || where.contains("tool_calls");
    return says ? line(one) : "";
  }

  const char* text_key() const { return words_.is_generate ? "response" : "content"; }

  // Calls come whole: until one is, its arguments are held back.
  Json piece(const std::vector<chat::ReplyPart>& parts) {
    std::string text, thinking;
    Json calls = Json::array();
    for (const chat::ReplyPart& part : parts) {
      if (part.kind == Kind::kContent) text += part.text;
      if (part.kind == Kind::kReasoning) thinking += part.text;
      if (part.kind == Kind::kCall) std::tie(call_, arguments_) = std::pair(part.text, "");
      if (part.kind == Kind::kArguments) arguments_ += part.text;
      if (part.kind != Kind::kCallEnd) continue;
      const auto value = parse_json(arguments_, "arguments");
      calls.push_back(
          {{"function", {{"name", call_}, {"arguments", value.ok() ? *value : Json::object()}}}});
    }
    Json out = {{"model", words_.model}, {"created_at", time_text(std::time(nullptr))}};
    Json message = {{"role", "assistant"}, {"content", text}};
    Json& where = words_.is_generate ? out : message;
    where[text_key()] = text;
    if (!thinking.empty()) where["thinking"] = std::move(thinking);
    if (!calls.empty()) where["tool_calls"] = std::move(calls);
    if (!words_.is_generate) out["message"] = std::move(message);
    out["done"] = false;
    return out;
  }

  static Json finished(const Choice& choice, Json out) {
    const ReplyEnd& end = choice.end;
    out["done"] = true;
    out["done_reason"] = end.finish == FinishReason::kLength ? "length" : "stop";
    if (end.finish == FinishReason::kError) {
      out["error"] = constraint_error(end.status).message;
    }
    out["total_duration"] =
        nanoseconds(end.queue_seconds + end.prompt_seconds + end.generation_seconds);
    out["load_duration"] = 0;
    out["prompt_eval_count"] = end.prompt_tokens;
    out["prompt_eval_duration"] = nanoseconds(end.prompt_seconds);
    out["eval_count"] = end.generated_tokens;
    out["eval_duration"] = nanoseconds(end.generation_seconds);
    return out;
  }

  const OllamaWords words_;
  ReplyReader reader_;
  std::string call_;
  std::string arguments_;
};

ReplyTask task_of(GenerationSettings settings, OllamaWords words) {
  words.model = settings.model;
  return one_reply(std::move(settings), std::make_unique<OllamaFormat>(std::move(words)));
}

ReplyTask read_chat_form(FieldReader& request, ApiState& state, const HttpRequest& from,
                         bool is_generate) {
  const Json body = chat_of_ollama(request, is_generate);
  if (request.failed()) return {};
  FieldReader fields(body, request.error());
  ChatRequest chat = read_chat_request(fields, state, from);
  if (request.failed()) return {};
  OllamaWords words;
  words.state = &state;
  words.shape = std::move(chat.shape);
  words.is_generate = is_generate;
  return task_of(std::move(chat.settings), std::move(words));
}

Json model_of(std::time_t started, const std::string& name) {
  return {{"name", name},
          {"model", name},
          {"modified_at", time_text(started)},
          {"size", 0},
          {"digest", ""},
          {"details",
           {{"parent_model", ""},
            {"format", "gguf"},
            {"family", ""},
            {"families", Json::array()},
            {"parameter_size", ""},
            {"quantization_level", ""}}}};
}

}  // namespace

ReplyTask read_ollama_chat(FieldReader& request, ApiState& state, const HttpRequest& from) {
  return read_chat_form(request, state, from, false);
}

ReplyTask read_ollama_generate(FieldReader& request, ApiState& state, const HttpRequest& from) {
  for (const char* key : {"suffix", "context", "template"}) {
    if (request.has(key)) request.refuse(key, "is not supported");
  }
  if (!request.boolean("raw", false)) return read_chat_form(request, state, from, true);
  const Json body = completion_of_ollama(request);
  if (request.failed()) return {};
  FieldReader fields(body, request.error());
  GenerationSettings settings = read_settings(fields, state, from, {});
  settings.grammar = read_grammar(fields);
  settings.request.prompt =
      encode_text(fields, state, fields.string("prompt", ""), {true, true}, "prompt");
  check_length(fields, state, settings.request.prompt.size(), "prompt");
  if (request.failed()) return {};
  OllamaWords words;
  words.state = &state;
  words.is_generate = true;
  words.shape.is_raw = true;
  return task_of(std::move(settings), std::move(words));
}

Json ollama_models(const ModelHost& host, std::time_t started) {
  Json list = Json::array();
  for (size_t i = 0; i < host.count(); ++i) {
    for (const std::string& name : host.names(i)) list.push_back(model_of(started, name));
  }
  return {{"models", std::move(list)}};
}

Json ollama_model(FieldReader& request, ApiState& state, const HttpRequest&) {
  const Json named = {{"model", ollama_name(request)}};
  if (named["model"] == "") request.refuse("model", "is missing");
  FieldReader reader(named, request.error());
  Json out = model_of(state.server.started, read_model(reader, state));
  const auto& chat = state.service.chat_template();
  out["template"] = chat.ok() ? chat->source() : "";
  out["parameters"] = "";
  out["model_info"] = {{"general.context_length", state.service.context()}};
  out["capabilities"] = {"completion"};
  if (chat.ok() && chat->mentions("tools")) out["capabilities"].push_back("tools");
  if (!state.dialect.reasoning.close.empty() || state.dialect.harmony) {
    out["capabilities"].push_back("thinking");
  }
  return out;
}

}  // namespace aerie::server
