// A message of a conversation, and the reply to it.
#pragma once

#include <string>
#include <vector>

namespace aerie {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// A function that a reply calls.
struct ChatCall {
  std::string name;
  std::string arguments;  // JSON; of a reply that was cut short what there is of it
};

struct ChatReply {
  std::string reasoning;  // what was thought before
  std::string content;    // what was said
  std::vector<ChatCall> calls;
};

}  // namespace aerie
