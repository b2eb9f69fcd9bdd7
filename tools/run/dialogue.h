// What was said in a chat.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aerie/chat_message.h"
#include "base/status.h"

namespace aerie {

// A system message, if there is one, then messages of user and assistant in turn.
class Dialogue {
 public:
  std::span<const ChatMessage> messages() const { return messages_; }
  bool empty() const { return messages_.size() == first(); }

  // Replaces the system message; empty: there is none.
  void set_system(const std::string& text);
  std::string system() const { return first() == 1 ? messages_.front().content : ""; }
  // Forgets everything but the system message.
  void clear() { messages_.resize(first()); }

  void add(std::string role, std::string text) {
    messages_.push_back({std::move(role), std::move(text)});
  }
  // Takes the last message of the user back, with what was replied to it: that message, or nothing
  // if there is none.
  std::optional<std::string> take_back();

  // As OpenAI's API has them: {"messages": [{"role": ..., "content": ...}, ...]}.
  Status save(const std::string& path) const;
  // kNotFound or kInvalidData, saying what is wrong; an array of messages will do.
  static Expected<Dialogue> load(const std::string& path);

 private:
  size_t first() const { return !messages_.empty() && messages_.front().role == "system" ? 1 : 0; }

  std::vector<ChatMessage> messages_;
};

}  // namespace aerie
