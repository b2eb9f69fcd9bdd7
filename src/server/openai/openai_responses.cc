#include "server/openai/openai_responses.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/http/http_target.h"
#include "server/openai/fields/chat_request.h"
#include "server/openai/fields/json_text.h"
#include "server/openai/fields/response_input.h"
#include "server/openai/openai_reply.h"
#include "server/openai/response_items.h"

namespace aerie::server {
namespace {

struct ResponseWords : ReplyWords {
  const ApiState* state = nullptr;  // outlives every answer
  ReplyShape shape;
};

// One reply. In a stream each event has a type and a number.
class ResponseFormat final : public ReplyFormat {
 public:
  ResponseFormat(ResponseWords words, const Json& request)
      : words_(std::move(words)), reader_(*words_.state, words_.shape), items_(*words_.state) {
    frame_ = {{"id", words_.id},       {"object", "response"},   {"created_at", words_.created},
              {"status", nullptr},     {"error", nullptr},       {"incomplete_details", nullptr},
              {"model", words_.model}, {"output", Json::array()}};
    frame_.update(request);
  }

  std::string opening(const std::vector<Choice>&) override {
    Json begun = frame_;
    begun["status"] = "in_progress";
    std::string out = event("response.created", {{"response", begun}});
    return out + event("response.in_progress", {{"response", begun}});
  }

  std::string delta(const Choice&, const ReplyDelta& delta) override { return said(delta, false); }

  std::string closing(const Choice& choice, const ReplyDelta& last) override {
    std::string out = said(last, true);
    items_.finish(status_of(choice), sayer(out));
    return out;
  }

  std::string ending(const std::vector<Choice>& choices) override {
    Json whole = response(choices.front());
    const std::string type = "response." + whole["status"].get<std::string>();
    return event(type.c_str(), {{"response", std::move(whole)}});
  }

  std::string failure(const ApiError& error) override {
    Json failed = frame_;
    failed["status"] = "failed";
    failed["error"] = error_of_response(error);
    return event("response.failed", {{"response", std::move(failed)}});
  }

  std::string whole(const std::vector<Choice>& choices) override {
    const Choice& choice = choices.front();
    const auto unsaid = [](const char*, const Json&) {};
    for (const chat::ReplyPart& part : reader_.read(choice.text, choice.tokens, true)) {
      items_.add(part, Json::object(), unsaid);
    }
    items_.finish(status_of(choice), unsaid);
    return json_text(response(choice));
  }

 private:
  static Json error_of_response(const ApiError& error) {
    return {{"code", error.code.empty() ? "server_error" : error.code}, {"message", error.message}};
  }
  static const char* status_of(const Choice& choice) {
    return choice.end.finish == FinishReason::kStop ? "completed" : "incomplete";
  }

  std::string event(const char* type, const Json& more) {
    Json out = {{"type", type}, {"sequence_number", number_++}};
    out.update(more);
    return "event: " + std::string(type) + "\n" + event_text(out);
  }
  ResponseItems::Say sayer(std::string& out) {
    return [this, &out](const char* type, const Json& more) { out += event(type, more); };
  }

  std::string said(const ReplyDelta& delta, bool is_end) {
    std::string out;
    const ResponseItems::Say say = sayer(out);
    Json extra = Json::object();
    if (words_.trace && !delta.tokens.empty()) extra["trace"] = trace_of(words_, delta);
    const auto parts = reader_.read(delta.text, delta.tokens, is_end);
    for (const chat::ReplyPart& part : parts) {
      items_.add(part, extra, say);
      const bool is_said =
          part.kind != chat::ReplyPart::Kind::kCall && part.kind != chat::ReplyPart::Kind::kCallEnd;
      if (is_said) extra.clear();
    }
    // Tokens without a text are shown with a text that is empty.
    if (!extra.empty()) items_.add({chat::ReplyPart::Kind::kContent, ""}, extra, say);
    return out;
  }

  Json response(const Choice& choice) const {
    const FinishReason finish = choice.end.finish;
    Json out = frame_;
    out["status"] = status_of(choice);
    if (finish == FinishReason::kLength) {
      out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    } else if (finish == FinishReason::kError) {
      out["status"] = "failed";
      out["error"] = error_of_response(constraint_error(choice.end.status));
    }
    out["output"] = items_.items();
    const ReplyEnd& end = choice.end;
    out["usage"] = {{"input_tokens", end.prompt_tokens},
                    {"input_tokens_details", {{"cached_tokens", end.cached_tokens}}},
                    {"output_tokens", end.generated_tokens},
                    {"output_tokens_details", {{"reasoning_tokens", reader_.reasoning_tokens()}}},
                    {"total_tokens", end.prompt_tokens + end.generated_tokens}};
    out["aerie"] = figures_of({choice});
    return out;
  }

  const ResponseWords words_;
  ReplyReader reader_;
  ResponseItems items_;
  Json frame_;  // of the response
  int number_ = 0;
};

std::optional<NamedGrammar> read_text_format(FieldReader& request) {
  const Json* text = request.object("text");
  if (text == nullptr) return read_grammar(request);
  FieldReader reader(*text, request.error(), "text");
  const Json* format = reader.object("format");
  if (format == nullptr) return read_grammar(request);
  return read_response_format(*format, "text.format", request.error());
}

void refuse_what_is_not_kept(FieldReader& request) {
  for (const char* key : {"previous_response_id", "conversation", "prompt"}) {
    if (request.has(key)) request.refuse(key, "is not supported: nothing is kept here");
  }
  if (request.boolean("background", false)) request.refuse("background", "is not supported");
}

ReasoningSettings read_response_reasoning(FieldReader& request) {
  ReasoningSettings out = read_reasoning(request);
  const Json* reasoning = request.object("reasoning");
  if (reasoning == nullptr) return out;
  FieldReader reader(*reasoning, request.error(), "reasoning");
  const std::string effort = read_effort(reader, "effort");
  if (!effort.empty()) out.effort = effort;
  return out;
}

// What a response repeats of its request.
Json frame_of(FieldReader& request, const GenerationSettings& settings, bool parallel) {
  const auto given = [&](const char* key) {
    const Json* value = request.find(key);
    return value != nullptr ? *value : Json();
  };
  const Json* text = request.find("text");
  return {{"instructions", given("instructions")},
          {"max_output_tokens", given("max_output_tokens")},
          {"metadata", request.has("metadata") ? given("metadata") : Json::object()},
          {"parallel_tool_calls", parallel},
          {"previous_response_id", nullptr},
          {"temperature", settings.request.sampling.temperature},
          {"top_p", settings.request.sampling.top_p},
          {"text", text != nullptr ? *text : Json{{"format", {{"type", "text"}}}}},
          {"tool_choice", request.has("tool_choice") ? given("tool_choice") : Json("auto")},
          {"tools", request.has("tools") ? given("tools") : Json::array()},
          {"reasoning", given("reasoning")},
          {"truncation", "disabled"},
          {"store", false},
          {"usage", nullptr}};
}

}  // namespace

ReplyTask read_response(FieldReader& request, ApiState& state, const HttpRequest& from) {
  SettingsForm form;
  form.max_tokens = {"max_output_tokens"};
  ChatRequest chat;
  GenerationSettings& settings = chat.settings;
  settings = read_settings(request, state, from, form);
  if (settings.n != 1) request.refuse("n", "must be 1 here");
  refuse_what_is_not_kept(request);
  ChatParts parts;
  const Json chat_tools = response_tools(request);
  FieldReader tool_fields(chat_tools, request.error());
  parts.tools = read_tools(tool_fields, state);
  parts.reasoning = read_response_reasoning(request);
  settings.grammar = read_text_format(request);
  if (request.failed()) return {};
  parts.messages = read_response_input(request);
  const bool parallel = parts.tools.parallel;
  complete_chat(request, state, std::move(parts), chat);
  if (request.failed()) return {};
  ResponseWords words;
  words.state = &state;
  words.shape = std::move(chat.shape);
  words.tokenizer = &state.service.tokenizer();
  words.id = "resp_" + random_hex(12);
  words.model = settings.model;
  words.created = std::time(nullptr);
  words.trace = settings.request.trace;
  Json frame = frame_of(request, settings, parallel);
  return one_reply(std::move(settings),
                   std::make_unique<ResponseFormat>(std::move(words), std::move(frame)));
}

}  // namespace aerie::server
