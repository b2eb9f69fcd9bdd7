#include "server/openai/openai_chat.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "chat/whole_reply.h"
#include "server/http/http_target.h"
#include "server/openai/fields/chat_request.h"
#include "server/openai/fields/json_text.h"
#include "server/openai/openai_reply.h"

namespace aerie::server {
namespace {

using Kind = chat::ReplyPart::Kind;

constexpr std::string_view kChunk = "chat.completion.chunk";

struct ChatWords : ReplyWords {
  const ApiState* state = nullptr;  // outlives every answer
  bool logprobs = false;
  bool prompt_logprobs = false;
  ReplyShape shape;
};

class ChatFormat final : public ReplyFormat {
 public:
  explicit ChatFormat(ChatWords words) : words_(std::move(words)) {}

  std::string opening(const std::vector<Choice>& choices) override {
    std::string out;
    for (const Choice& choice : choices) {
      readers_.emplace_back(*words_.state, words_.shape);
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
    const bool called = readers_[static_cast<size_t>(choice.index)].calls() > 0;
    add_finish(choice, reason_of(choice, called), event["choices"][0]);
    if (!words_.include_usage) event["aerie"] = figures_of({choice});
    return out + event_text(event);
  }

  std::string ending(const std::vector<Choice>& choices) override {
    return stream_ending(words_, kChunk, choices, reasoning_tokens());
  }

  std::string failure(const ApiError& error) override { return stream_failure(error); }

  std::string whole(const std::vector<Choice>& choices) override {
    Json list = Json::array();
    for (const Choice& choice : choices) list.push_back(whole_choice(choice));
    Json out = envelope(words_, "chat.completion", std::move(list));
    if (words_.return_token_ids) out["prompt_token_ids"] = words_.prompts.front();
    if (words_.prompt_logprobs) {
      out["prompt_logprobs"] =
          prompt_logprobs_json(*words_.tokenizer, choices.front().prompt_logprobs);
    }
    out["usage"] = usage_of(words_, choices, reasoning_tokens());
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

  int reasoning_tokens() const {
    int sum = 0;
    for (const ReplyReader& reader : readers_) sum += reader.reasoning_tokens();
    return sum;
  }

  Json call_json(const std::string& name, std::string arguments) const {
    return {{"id", new_call_id(*words_.state, "call_")},
            {"type", "function"},
            {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
  }

  // What a delta says of the parts.
  Json delta_of(const std::vector<chat::ReplyPart>& parts, int calls) const {
    Json out = Json::object();
    const auto append = [&](const char* key, const std::string& text) {
      out[key] = out.value(key, std::string()) + text;
    };
    for (const chat::ReplyPart& part : parts) {
      if (part.kind == Kind::kReasoning) append("reasoning_content", part.text);
      if (part.kind == Kind::kContent) append("content", part.text);
      if (part.kind == Kind::kCall) {
        Json one = {{"index", calls++}};
        one.update(call_json(part.text, ""));
        out["tool_calls"].push_back(std::move(one));
      }
      if (part.kind == Kind::kArguments) {
        out["tool_calls"].push_back(
            {{"index", calls - 1}, {"function", {{"arguments", part.text}}}});
      }
    }
    return out;
  }

  std::string said(const Choice& choice, const ReplyDelta& delta, bool is_end) {
    ReplyReader& reader = readers_[static_cast<size_t>(choice.index)];
    const int calls = reader.calls();
    Json said = delta_of(reader.read(delta.text, delta.tokens, is_end), calls);
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

  Json whole_choice(const Choice& choice) {
    ReplyReader& reader = readers_.emplace_back(*words_.state, words_.shape);
    ChatReply reply = chat::whole_reply(reader.read(choice.text, choice.tokens, true));
    Json calls = Json::array();
    for (ChatCall& call : reply.calls) {
      calls.push_back(call_json(call.name, std::move(call.arguments)));
    }
    Json message = {{"role", "assistant"}, {"content", reply.content}, {"refusal", nullptr}};
    if (reply.content.empty() && !calls.empty()) message["content"] = nullptr;
    if (!reply.reasoning.empty()) message["reasoning_content"] = std::move(reply.reasoning);
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    Json out = {{"index", choice.index}, {"message", std::move(message)}};
    out["logprobs"] = words_.logprobs ? chat_logprobs(*words_.tokenizer, choice.tokens) : Json();
    add_finish(choice, reason_of(choice, reader.calls() > 0), out);
    if (words_.return_token_ids) out["token_ids"] = ids_of(choice.tokens);
    return out;
  }

  const ChatWords words_;
  std::vector<ReplyReader> readers_;  // of the choices
};

void read_logprobs(FieldReader& request, GenerationSettings& settings, ChatWords& words) {
  words.logprobs = request.boolean("logprobs", false);
  const int top = request.integer("top_logprobs", 0, 0, 20);
  if (request.has("top_logprobs") && top > 0 && !words.logprobs) {
    return request.refuse("top_logprobs", "is only for \"logprobs\": true");
  }
  if (words.logprobs) settings.request.sampling.logprobs = top;
}

}  // namespace

ReplyTask read_chat(FieldReader& request, ApiState& state, const HttpRequest& from) {
  ReplyTask task;
  ChatRequest chat = read_chat_request(request, state, from);
  GenerationSettings& settings = chat.settings;
  ChatWords words;
  read_logprobs(request, settings, words);
  words.prompt_logprobs = read_prompt_logprobs(request, settings);
  check_prompt_logprobs(request, settings, settings.request.prompt.size());
  if (request.failed()) return task;
  words.tokenizer = &state.service.tokenizer();
  words.id = "chatcmpl-" + random_hex(12);
  words.model = settings.model;
  words.created = std::time(nullptr);
  words.include_usage = settings.include_usage;
  words.return_token_ids = settings.return_token_ids;
  words.trace = settings.request.trace;
  words.has_prediction = settings.has_prediction;
  words.state = &state;
  words.shape = std::move(chat.shape);
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
