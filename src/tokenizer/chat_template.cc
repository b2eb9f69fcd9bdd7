#include "tokenizer/chat_template.h"

#include <fmt/format.h>

#include <utility>

#include "tokenizer/jinja_lexer.h"

namespace aerie {
namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>\n";
constexpr std::string_view kSystem = "<|im_start|>system\n";
constexpr std::string_view kReply = "<|im_start|>assistant\n";

}  // namespace

// Matches a template's steps one after the other. A failure leaves the place where it stopped.
class ChatMlParser {
 public:
  explicit ChatMlParser(std::vector<JinjaStep> steps) : steps_(std::move(steps)) {}

  bool parse(ChatTemplate& result) {
    return preamble() && tag("for message in messages") && default_system(result) &&
           message(result) && tag("endfor") && reply(result) && at_ == steps_.size();
  }

 private:
  bool step(JinjaStep::Kind kind, std::string_view text) {
    if (at_ == steps_.size() || steps_[at_].kind != kind || steps_[at_].text != text) return false;
    ++at_;
    return true;
  }
  bool tag(std::string_view text) { return step(JinjaStep::Kind::kTag, text); }
  bool text(std::string_view text) { return step(JinjaStep::Kind::kText, text); }
  bool output(std::string_view text) { return step(JinjaStep::Kind::kOutput, text); }

  // Optional; rendering always has a value for it.
  bool preamble() {
    if (!tag("if not add_generation_prompt is defined") &&
        !tag("if add_generation_prompt is not defined")) {
      return true;
    }
    return tag("set add_generation_prompt = false") && tag("endif");
  }

  bool default_system(ChatTemplate& result) {
    if (!tag("if loop [ 'first' ] and messages [ 0 ] [ 'role' ] != 'system'")) return true;
    if (at_ == steps_.size() || steps_[at_].kind != JinjaStep::Kind::kText) return false;
    std::string_view whole = steps_[at_].text;
    if (whole.size() < kSystem.size() + kEnd.size() || !whole.starts_with(kSystem) ||
        !whole.ends_with(kEnd)) {
      return false;
    }
    whole.remove_prefix(kSystem.size());
    whole.remove_suffix(kEnd.size());
    result.has_default_system_ = true;
    result.default_system_ = whole;
    ++at_;
    return tag("endif");
  }

  bool message(ChatTemplate& result) {
    if (!text(kStart) || !output("message [ 'role' ]") || !text("\n") ||
        !output("message [ 'content' ]")) {
      return false;
    }
    if (text(kEnd)) return true;
    result.open_end_ = true;
    return tag("if ( loop [ 'last' ] and add_generation_prompt ) or not loop [ 'last' ]") &&
           text(kEnd) && tag("endif");
  }

  bool reply(ChatTemplate& result) {
    if (!tag("if add_generation_prompt")) {
      result.continues_assistant_ = true;
      if (!tag("if add_generation_prompt and messages [ - 1 ] [ 'role' ] != 'assistant'")) {
        return false;
      }
    }
    return text(kReply) && tag("endif");
  }

  std::vector<JinjaStep> steps_;
  size_t at_ = 0;
};

Expected<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  constexpr const char* kMessage =
      "this chat template is not one of the ChatML forms that are supported{}; use a raw prompt";
  auto steps = lex_jinja(source);
  if (!steps.ok()) {
    return Status(StatusCode::kUnsupported,
                  fmt::format(fmt::runtime(kMessage), " (" + steps.status().message() + ")"));
  }
  ChatTemplate result;
  if (!ChatMlParser(std::move(steps).value()).parse(result)) {
    return Status(StatusCode::kUnsupported, fmt::format(fmt::runtime(kMessage), ""));
  }
  return result;
}

Expected<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                           bool add_generation_prompt) const {
  if (messages.empty() && add_generation_prompt && continues_assistant_) {
    return Status(StatusCode::kInvalidArgument, "this chat template needs at least one message");
  }
  std::string text;
  if (has_default_system_ && !messages.empty() && messages[0].role != "system") {
    text.append(kSystem).append(default_system_).append(kEnd);
  }
  for (const ChatMessage& message : messages) {
    text.append(kStart).append(message.role).append("\n").append(message.content);
    const bool open = open_end_ && &message == &messages.back() && !add_generation_prompt;
    if (!open) text.append(kEnd);
  }
  const bool begun =
      continues_assistant_ && !messages.empty() && messages.back().role == "assistant";
  if (add_generation_prompt && !begun) text.append(kReply);
  return text;
}

}  // namespace aerie
