#include "server/openai/openai_responses.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/http/http_target.h"
#include "server/openai/fields/chat_prompt.h"
#include "server/openai/fields/generation_settings.h"
#include "server/openai/fields/json_text.h"
#include "server/openai/openai_reply.h"

namespace aerie::server {
namespace {

// One reply. In a stream each event has a type and a number.
class ResponseFormat final : public ReplyFormat {
 public:
  ResponseFormat(ReplyWords words, const Json& request) : words_(std::move(words)) {
    frame_ = {{"id", words_.id},       {"object", "response"},   {"created_at", words_.created},
              {"status", nullptr},     {"error", nullptr},       {"incomplete_details", nullptr},
              {"model", words_.model}, {"output", Json::array()}};
    frame_.update(request);
  }

  std::string opening(const std::vector<Choice>&) override {
    std::string out;
    Json begun = frame_;
    begun["status"] = "in_progress";
    out += event("response.created", {{"response", begun}});
    out += event("response.in_progress", {{"response", begun}});
    Json item = message("in_progress");
    item["content"] = Json::array();
    out += event("response.output_item.added", {{"output_index", 0}, {"item", item}});
    out += about_part("response.content_part.added", {{"part", part("")}});
    return out;
  }

  std::string delta(const Choice&, const ReplyDelta& delta) override {
    const bool has_trace = words_.trace && !delta.tokens.empty();
    if (delta.text.empty() && !has_trace) return "";
    Json more = {{"delta", delta.text}, {"logprobs", Json::array()}};
    if (has_trace) more["trace"] = trace_of(words_, delta);
    return about_part("response.output_text.delta", more);
  }

  std::string closing(const Choice& choice, const ReplyDelta& last) override {
    std::string out = delta(choice, last);
    out += about_part("response.output_text.done",
                      {{"text", choice.text}, {"logprobs", Json::array()}});
    out += about_part("response.content_part.done", {{"part", part(choice.text)}});
    out +=
        event("response.output_item.done", {{"output_index", 0}, {"item", whole_message(choice)}});
    return out;
  }

  std::string ending(const std::vector<Choice>& choices) override {
    Json whole = response(choices);
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
    return json_text(response(choices));
  }

 private:
  static Json error_of_response(const ApiError& error) {
    return {{"code", error.code.empty() ? "server_error" : error.code}, {"message", error.message}};
  }
  std::string event(const char* type, const Json& more) {
    Json out = {{"type", type}, {"sequence_number", number_++}};
    out.update(more);
    return "event: " + std::string(type) + "\n" + event_text(out);
  }
  std::string about_part(const char* type, const Json& more) {
    Json out = {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
    out.update(more);
    return event(type, out);
  }

  static Json part(const std::string& text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}};
  }
  Json message(const char* status) const {
    return {{"type", "message"}, {"id", item_id_}, {"status", status}, {"role", "assistant"}};
  }
  Json whole_message(const Choice& choice) const {
    const bool cut = choice.end.finish != FinishReason::kStop;
    Json item = message(cut ? "incomplete" : "completed");
    item["content"] = Json::array({part(choice.text)});
    return item;
  }

  Json response(const std::vector<Choice>& choices) const {
    const Choice& choice = choices.front();
    const FinishReason finish = choice.end.finish;
    Json out = frame_;
    out["status"] = finish == FinishReason::kStop ? "completed" : "incomplete";
    if (finish == FinishReason::kLength) {
      out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    } else if (finish == FinishReason::kError) {
      out["status"] = "failed";
      out["error"] = error_of_response(constraint_error(choice.end.status));
    }
    out["output"].push_back(whole_message(choice));
    const ReplyEnd& end = choice.end;
    out["usage"] = {{"input_tokens", end.prompt_tokens},
                    {"input_tokens_details", {{"cached_tokens", end.cached_tokens}}},
                    {"output_tokens", end.generated_tokens},
                    {"output_tokens_details", {{"reasoning_tokens", 0}}},
                    {"total_tokens", end.prompt_tokens + end.generated_tokens}};
    out["aerie"] = figures_of(choices);
    return out;
  }

  const ReplyWords words_;
  Json frame_;  // of the response
  const std::string item_id_ = "msg_" + random_hex(12);
  int number_ = 0;
};

// "input": a string, or messages as items; "instructions" go before them.
Json read_input(FieldReader& request) {
  Json messages = Json::array();
  const std::string instructions = request.string("instructions", "");
  if (!instructions.empty()) messages.push_back({{"role", "system"}, {"content", instructions}});
  const Json* input = request.find("input");
  if (input == nullptr) {
    request.refuse("input", "is missing");
  } else if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else {
    Json items = *input;
    if (items.is_array()) {
      for (Json& item : items) {
        FieldReader reader(item, request.error(), "input");
        if (reader.string("type", "message") != "message") {
          reader.refuse("type", "must be \"message\": there are no other items here");
        }
        if (item.is_object()) item.erase("type");
      }
    }
    if (request.failed()) return messages;
    for (Json& message : read_messages(request, items, "input")) {
      messages.push_back(std::move(message));
    }
  }
  return messages;
}

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
  const Json* tools = request.array("tools");
  if (tools != nullptr && !tools->empty()) {
    request.refuse("tools", "are not supported here: use /v1/chat/completions");
  }
}

// What a response repeats of its request.
Json frame_of(FieldReader& request, const GenerationSettings& settings) {
  const auto given = [&](const char* key) {
    const Json* value = request.find(key);
    return value != nullptr ? *value : Json();
  };
  const Json* text = request.find("text");
  return {{"instructions", given("instructions")},
          {"max_output_tokens", given("max_output_tokens")},
          {"metadata", request.has("metadata") ? given("metadata") : Json::object()},
          {"parallel_tool_calls", true},
          {"previous_response_id", nullptr},
          {"temperature", settings.request.sampling.temperature},
          {"top_p", settings.request.sampling.top_p},
          {"text", text != nullptr ? *text : Json{{"format", {{"type", "text"}}}}},
          {"tool_choice", "auto"},
          {"tools", Json::array()},
          {"truncation", "disabled"},
          {"store", false},
          {"usage", nullptr}};
}

}  // namespace

ReplyTask read_response(FieldReader& request, ApiState& state, const HttpRequest& from) {
  ReplyTask task;
  SettingsForm form;
  form.max_tokens = {"max_output_tokens"};
  GenerationSettings settings = read_settings(request, state, from, form);
  if (settings.n != 1) request.refuse("n", "must be 1 here");
  refuse_what_is_not_kept(request);
  if (request.failed()) return task;
  task.grammar = read_text_format(request);
  ChatPrompt prompt;
  prompt.messages = read_input(request);
  prompt.extra = request.object("chat_template_kwargs");
  settings.request.prompt = encode_chat(request, state, std::move(prompt));
  if (request.failed()) return task;
  ReplyWords words;
  words.tokenizer = &state.service.tokenizer();
  words.id = "resp_" + random_hex(12);
  words.model = settings.model;
  words.created = std::time(nullptr);
  words.trace = settings.request.trace;
  task.stream = settings.stream;
  task.format = std::make_unique<ResponseFormat>(std::move(words), frame_of(request, settings));
  task.requests.push_back(std::move(settings.request));
  return task;
}

}  // namespace aerie::server
