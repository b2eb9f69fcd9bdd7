#include "server/openai/openai_chat.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/http/http_target.h"
#include "server/openai/fields/chat_prompt.h"
#include "server/openai/fields/generation_settings.h"
#include "server/openai/fields/json_text.h"
#include "server/openai/fields/tool_calls.h"
#include "server/openai/openai_reply.h"

namespace aerie::server {
namespace {

constexpr std::string_view kChunk = "chat.completion.chunk";

struct ChatWords : ReplyWords {
  bool logprobs = false;
  bool tools = false;  // calls are looked for
  ToolNames tool_names;
  bool parallel = true;
};

class ChatFormat final : public ReplyFormat {
 public:
  explicit ChatFormat(ChatWords words) : words_(std::move(words)) {}

  std::string opening(const std::vector<Choice>& choices) override {
    parsers_.resize(choices.size(), ToolCallParser(words_.tool_names));
    call_counts_.resize(choices.size());
    std::string out;
    for (const Choice& choice : choices) {
      Json event = chunk(choice, {{"role", "assistant"}, {"content", ""}});
      if (words_.return_token_ids && choice.index == 0) {
        event["prompt_token_ids"] = words_.prompts.front();
      }
      out += event_text(event);
    }
    return out;
  }

  std::string delta(const Choice& choice, const ReplyDelta& delta) override {
    return said(choice, delta, false);
  }

  std::string closing(const Choice& choice, const ReplyDelta& last) override {
    std::string out = said(choice, last, true);
    Json event = chunk(choice, Json::object());
    const bool called = call_counts_[static_cast<size_t>(choice.index)] > 0;
    add_finish(choice, reason_of(choice, called), event["choices"][0]);
    if (!words_.include_usage) event["aerie"] = figures_of({choice});
    return out + event_text(event);
  }

  std::string ending(const std::vector<Choice>& choices) override {
    return stream_ending(words_, kChunk, choices);
  }

  std::string failure(const ApiError& error) override { return stream_failure(error); }

  std::string whole(const std::vector<Choice>& choices) override {
    Json list = Json::array();
    for (const Choice& choice : choices) list.push_back(whole_choice(choice));
    Json out = envelope(words_, "chat.completion", std::move(list));
    if (words_.return_token_ids) out["prompt_token_ids"] = words_.prompts.front();
    out["usage"] = usage_of(words_, choices);
    out["aerie"] = figures_of(choices);
    return json_text(out);
  }

 private:
  static std::string_view reason_of(const Choice& choice, bool called) {
    if (called && choice.end.finish == FinishReason::kStop) return "tool_calls";
    return finish_reason_name(choice.end.finish);
  }

  Json chunk(const Choice& choice, Json delta) const {
    Json one = {{"index", choice.index}, {"delta", std::move(delta)}};
    if (words_.logprobs) one["logprobs"] = nullptr;
    one["finish_reason"] = nullptr;
    Json out = envelope(words_, kChunk, Json::array({std::move(one)}));
    if (words_.include_usage) out["usage"] = nullptr;
    return out;
  }

  Json call_json(const ToolCall& call) const {
    return {{"id", "call_" + random_hex(12)},
            {"type", "function"},
            {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
  }

  // New text and calls of a stream; with no tools all is text.
  void parse(const Choice& choice, const std::string& text, bool is_end, std::string& out,
             std::vector<ToolCall>& calls) {
    if (!words_.tools) {
      out = text;
      return;
    }
    ToolCallParser& parser = parsers_[static_cast<size_t>(choice.index)];
    parser.push(text, out, calls);
    if (is_end) parser.finish(out, calls);
  }

  std::string said(const Choice& choice, const ReplyDelta& delta, bool is_end) {
    std::string text;
    std::vector<ToolCall> calls;
    parse(choice, delta.text, is_end, text, calls);
    Json said = Json::object();
    if (!text.empty()) said["content"] = std::move(text);
    int& count = call_counts_[static_cast<size_t>(choice.index)];
    for (const ToolCall& call : calls) {
      if (!words_.parallel && count > 0) break;
      Json one = {{"index", count++}};
      one.update(call_json(call));
      said["tool_calls"].push_back(std::move(one));
    }
    const bool has_tokens = !delta.tokens.empty();
    const bool about_tokens = words_.logprobs || words_.return_token_ids || words_.trace;
    if (said.empty() && !(has_tokens && about_tokens)) return "";
    if (said.empty()) said["content"] = "";
    Json event = chunk(choice, std::move(said));
    Json& one = event["choices"][0];
    if (words_.logprobs && has_tokens) {
      one["logprobs"] = chat_logprobs(*words_.tokenizer, delta.tokens);
    }
    if (words_.return_token_ids) one["token_ids"] = ids_of(delta.tokens);
    if (words_.trace && has_tokens) event["trace"] = trace_of(words_, delta);
    return event_text(event);
  }

  Json whole_choice(const Choice& choice) const {
    std::string text;
    std::vector<ToolCall> calls;
    if (words_.tools) {
      ToolCallParser parser(words_.tool_names);
      parser.push(choice.text, text, calls);
      parser.finish(text, calls);
      if (!words_.parallel && calls.size() > 1) calls.resize(1);
    } else {
      text = choice.text;
    }
    Json message = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
    if (!calls.empty()) {
      if (text.find_first_not_of(" \t\r\n") == std::string::npos) message["content"] = nullptr;
      for (const ToolCall& call : calls) message["tool_calls"].push_back(call_json(call));
    }
    Json out = {{"index", choice.index}, {"message", std::move(message)}};
    out["logprobs"] = words_.logprobs ? chat_logprobs(*words_.tokenizer, choice.tokens) : Json();
    add_finish(choice, reason_of(choice, !calls.empty()), out);
    if (words_.return_token_ids) out["token_ids"] = ids_of(choice.tokens);
    return out;
  }

  const ChatWords words_;
  std::vector<ToolCallParser> parsers_;  // of a stream's choices
  std::vector<int> call_counts_;
};

void read_logprobs(FieldReader& request, GenerationSettings& settings, ChatWords& words) {
  words.logprobs = request.boolean("logprobs", false);
  const int top = request.integer("top_logprobs", 0, 0, 20);
  if (request.has("top_logprobs") && top > 0 && !words.logprobs) {
    return request.refuse("top_logprobs", "is only for \"logprobs\": true");
  }
  if (words.logprobs) settings.request.sampling.logprobs = top;
}

// Tools, or what else constrains the reply; whether tools are for the template.
ToolRequest read_form(FieldReader& request, ApiState& state, GenerationSettings& settings) {
  ToolRequest tools = read_tools(request);
  if (request.failed()) return tools;
  settings.grammar = read_grammar(request);
  if (tools.choice == ToolChoice::kNone || request.failed()) return tools;
  const auto& chat = state.service.chat_template();
  if (!chat.ok() || !chat->mentions("tools")) {
    request.refuse("tools", "this model's chat template has no place for tools");
    return tools;
  }
  if (tools.choice != ToolChoice::kRequired) return tools;
  if (settings.grammar) {
    request.refuse("tool_choice", "constrains the output, and so does another field: give one");
    return tools;
  }
  const auto grammar = tool_grammar(tools.forced);
  if (!grammar.ok()) {
    request.refuse("tools", grammar.status().message());
  } else {
    settings.grammar = NamedGrammar{*grammar, "tools"};
  }
  return tools;
}

}  // namespace

ReplyTask read_chat(FieldReader& request, ApiState& state, const HttpRequest& from) {
  ReplyTask task;
  GenerationSettings settings = read_settings(request, state, from, {});
  ChatWords words;
  read_logprobs(request, settings, words);
  if (request.failed()) return task;
  const ToolRequest tools = read_form(request, state, settings);
  if (request.failed()) return task;
  ChatPrompt prompt;
  const Json* messages = request.find("messages");
  prompt.messages = read_messages(request, messages != nullptr ? *messages : Json(), "messages");
  if (tools.choice != ToolChoice::kNone) prompt.tools = tools.tools;
  prompt.extra = request.object("chat_template_kwargs");
  prompt.add_generation_prompt = request.boolean("add_generation_prompt", true);
  settings.request.prompt = encode_chat(request, state, std::move(prompt));
  if (request.failed()) return task;

  words.tokenizer = &state.service.tokenizer();
  words.id = "chatcmpl-" + random_hex(12);
  words.model = settings.model;
  words.created = std::time(nullptr);
  words.include_usage = settings.include_usage;
  words.return_token_ids = settings.return_token_ids;
  words.trace = settings.request.trace;
  words.has_prediction = settings.has_prediction;
  // A reply that has to be something else is none.
  words.tools = tools.choice == ToolChoice::kRequired ||
                (tools.choice == ToolChoice::kAuto && !settings.grammar);
  words.tool_names = tools.names;
  words.parallel = tools.parallel;
  if (words.return_token_ids) words.prompts = {settings.request.prompt};
  for (int i = 0; i < settings.n; ++i) {
    task.requests.push_back(settings.request);
    task.requests.back().sampling.choice = static_cast<uint32_t>(i);
  }
  task.grammar = std::move(settings.grammar);
  task.stream = settings.stream;
  task.keep_text = !settings.stream;
  task.format = std::make_unique<ChatFormat>(std::move(words));
  return task;
}

}  // namespace aerie::server
