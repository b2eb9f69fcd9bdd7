// A message of a conversation.
#pragma once

#include <string>

namespace aerie {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

}  // namespace aerie
