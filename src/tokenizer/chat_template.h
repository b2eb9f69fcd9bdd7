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

class ChatTemplate {
 public:
  // `source` is the Jinja text of tokenizer.chat_template. kUnsupported for a template that is not
  // ChatML: it would be rendered wrongly.
  static Expected<ChatTemplate> parse(std::string_view source);

  // The prompt's text; control tokens appear by name, so encode it with parse_special. With
  // `add_generation_prompt` it ends where the assistant's reply begins.
  Expected<std::string> render(std::span<const ChatMessage> messages,
                               bool add_generation_prompt) const;

 private:
  // ChatML with this system message put before a conversation that has none; may be empty for none.
  bool has_default_system_ = false;
  std::string default_system_;
};

}  // namespace aerie
