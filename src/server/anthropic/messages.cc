#include "server/anthropic/messages.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/anthropic/message_input.h"
#include "server/http/http_target.h"
#include "server/openai/fields/chat_request.h"
#include "server/openai/fields/json_text.h"
#include "server/openai/openai_reply.h"

namespace aerie::server {
namespace {

using Kind = chat::ReplyPart::Kind;

struct MessageWords {
  const ApiState* state = nullptr;  // outlives every answer
  ReplyShape shape;
  std::string id;
  std::string model;
  int prompt_tokens = 0;
};

// One reply, as blocks of thinking, text and uses of tools.
class MessageFormat final : public ReplyFormat {
 public:
  explicit MessageFormat(MessageWords words)
      : words_(std::move(words)), reader_(*words_.state, words_.shape) {}

  std::string opening(const std::vector<Choice>&) override {
    Json begun = message();
    begun["usage"] = {{"input_tokens", words_.prompt_tokens}, {"output_tokens", 0}};
    return event("message_start", {{"message", std::move(begun)}});
  }

  std::string delta(const Choice&, const ReplyDelta& delta) override { return said(delta, false); }

  std::string closing(const Choice& choice, const ReplyDelta& last) override {
    std::string out = said(last, true);
    close_block(out);
    const Json end = {{"stop_reason", stop_reason(choice)}, {"stop_sequence", stop_of(choice)}};
    out += event("message_delta", {{"delta", end}, {"usage", usage_of(choice)}});
    return out;
  }

  std::string ending(const std::vector<Choice>& choices) override {
    const Choice& choice = choices.front();
    if (choice.end.finish == FinishReason::kError)
      return failure(constraint_error(choice.end.status));
    return event("message_stop", {{"aerie", figures_of(choices)}});
  }

  std::string failure(const ApiError& error) override {
    return event("error", {{"error", {{"type", error.type}, {"message", error.message}}}});
  }

  std::string whole(const std::vector<Choice>& choices) override {
    const Choice& choice = choices.front();
    Json out = message();
    Json& blocks = out["content"];
    for (const chat::ReplyPart& part : reader_.read(choice.text, choice.tokens, true)) {
      if (part.kind == Kind::kArguments) {
        const auto input = parse_json(part.text, "arguments");
        // Of a call that was cut off there may be half of it.
        if (input.ok() && input->is_object()) blocks.back()["input"] = *input;
      } else if (part.kind != Kind::kCallEnd) {
        blocks.push_back(block(part.kind, part.text));
        if (part.kind == Kind::kReasoning) blocks.back()["thinking"] = part.text;
        if (part.kind == Kind::kContent) blocks.back()["text"] = part.text;
      }
    }
    out["stop_reason"] = stop_reason(choice);
    out["stop_sequence"] = stop_of(choice);
    out["usage"] = usage_of(choice);
    if (choice.end.finish == FinishReason::kError) {
      out["error"] = error_json(constraint_error(choice.end.status));
    }
    out["aerie"] = figures_of(choices);
    return json_text(out);
  }

 private:
  static std::string event(const char* type, const Json& more) {
    Json out = {{"type", type}};
    out.update(more);
    return "event: " + std::string(type) + "\n" + event_text(out);
  }

  Json message() const {
    return {{"id", words_.id},         {"type", "message"},        {"role", "assistant"},
            {"model", words_.model},   {"content", Json::array()}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr}};
  }

  // A block in which nothing was said yet.
  Json block(Kind kind, const std::string& name) const {
    if (kind == Kind::kReasoning)
      return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    if (kind == Kind::kContent) return {{"type", "text"}, {"text", ""}};
    return {{"type", "tool_use"},
            {"id", new_call_id(*words_.state, "toolu_")},
            {"name", name},
            {"input", Json::object()}};
  }

  std::string stop_reason(const Choice& choice) const {
    switch (choice.end.finish) {
      case FinishReason::kLength:
        return "max_tokens";
      case FinishReason::kError:
        return "refusal";
      default:
        if (reader_.calls() > 0) return "tool_use";
        return choice.end.stop_string.empty() ? "end_turn" : "stop_sequence";
    }
  }
  static Json stop_of(const Choice& choice) {
    const std::string& stop = choice.end.stop_string;
    return stop.empty() ? Json() : Json(stop);
  }

  static Json usage_of(const Choice& choice) {
    const ReplyEnd& end = choice.end;
    return {{"input_tokens", end.prompt_tokens - end.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", end.cached_tokens},
            {"output_tokens", end.generated_tokens}};
  }

  void open_block(Kind kind, const std::string& name, std::string& out) {
    close_block(out);
    is_open_ = true;
    kind_ = kind;
    out += event("content_block_start", {{"index", index_}, {"content_block", block(kind, name)}});
  }
  void close_block(std::string& out) {
    if (!std::exchange(is_open_, false)) return;
    out += event("content_block_stop", {{"index", index_++}});
  }

  std::string said(const ReplyDelta& delta, bool is_end) {
    std::string out;
    for (const chat::ReplyPart& part : reader_.read(delta.text, delta.tokens, is_end)) {
      if (part.kind == Kind::kCallEnd) {
        close_block(out);
        continue;
      }
      const Kind kind = part.kind == Kind::kArguments ? Kind::kCall : part.kind;
      const bool goes_on = is_open_ && kind_ == kind && part.kind != Kind::kCall;
      if (!goes_on) open_block(kind, part.text, out);
      if (part.kind == Kind::kCall) continue;
      Json more = {{"type", "text_delta"}, {"text", part.text}};
      if (kind == Kind::kReasoning) more = {{"type", "thinking_delta"}, {"thinking", part.text}};
      if (kind == Kind::kCall) more = {{"type", "input_json_delta"}, {"partial_json", part.text}};
      out += event("content_block_delta", {{"index", index_}, {"delta", std::move(more)}});
    }
    return out;
  }

  const MessageWords words_;
  ReplyReader reader_;
  bool is_open_ = false;
  Kind kind_ = Kind::kContent;  // of the open block; kCall for uses of tools
  int index_ = 0;
};

}  // namespace

ReplyTask read_anthropic_message(FieldReader& request, ApiState& state, const HttpRequest& from) {
  const Json body = chat_of_messages(request);
  if (request.failed()) return {};
  FieldReader fields(body, request.error());
  ChatRequest chat = read_chat_request(fields, state, from);
  if (chat.settings.n != 1) fields.refuse("n", "must be 1 here");
  if (request.failed()) return {};
  MessageWords words;
  words.state = &state;
  words.shape = std::move(chat.shape);
  words.id = "msg_" + random_hex(12);
  words.model = chat.settings.model;
  words.prompt_tokens = static_cast<int>(chat.settings.request.prompt.size());
  return one_reply(std::move(chat.settings), std::make_unique<MessageFormat>(std::move(words)));
}

Json count_message_tokens(FieldReader& request, ApiState& state, const HttpRequest& from) {
  Json body = request.json();
  if (body.is_object() && !body.contains("max_tokens")) body["max_tokens"] = 1;
  FieldReader with_limit(body, request.error());
  const ReplyTask task = read_anthropic_message(with_limit, state, from);
  if (request.failed()) return {};
  return {{"input_tokens", task.requests.front().prompt.size()}};
}

}  // namespace aerie::server
