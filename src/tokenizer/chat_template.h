// Messages to the prompt that a chat model was trained on.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// ChatML in the forms that are in use: each message as <|im_start|>role, a newline, the content,
// <|im_end|> and a newline; with or without a default system message; and Qwen1.5's, which leaves
// an unanswered last message open. Immutable.
class ChatTemplate {
 public:
  // `source` is the Jinja text of tokenizer.chat_template. kUnsupported for a template that is not
  // exactly one of the forms (but for its layout): it would be rendered wrongly.
  static Expected<ChatTemplate> parse(std::string_view source);

  // The prompt's text; control tokens appear by name, so encode it with parse_special. With
  // `add_generation_prompt` it ends where the assistant's reply begins. As with Hugging Face and
  // llama.cpp, a control token's name inside a message becomes that token too: a caller that does
  // not trust a message removes such names from it. kInvalidArgument where the template itself
  // fails (Qwen1.5's, without messages).
  Expected<std::string> render(std::span<const ChatMessage> messages,
                               bool add_generation_prompt) const;

 private:
  friend class ChatMlParser;
  ChatTemplate() = default;

  // Put before a conversation that does not begin with a system message.
  bool has_default_system_ = false;
  std::string default_system_;
  // Qwen1.5: the last message is closed only if a reply follows, and a reply is not begun after the
  // assistant's own message.
  bool open_end_ = false;
  bool continues_assistant_ = false;
};

}  // namespace aerie
