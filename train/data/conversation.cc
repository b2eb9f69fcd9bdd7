#include "train/data/conversation.h"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "format/json.h"

namespace aerie::train {
namespace {

constexpr const char* kExampleMessage = "{prompt}";

// Some templates write the date. Samples must not depend on the day on which they are made.
std::tm fixed_day() {
  std::tm day = {};
  day.tm_year = 2025 - 1900;
  day.tm_mday = 1;
  day.tm_wday = 3;
  return day;
}

std::vector<ChatMessage> opening(const Prompt& prompt) {
  std::vector<ChatMessage> messages;
  if (!prompt.system.empty()) messages.push_back({"system", prompt.system});
  messages.push_back({"user", prompt.turns[0]});
  return messages;
}

// Something that no text of the conversation has in it.
std::string placeholder(const Prompt& prompt, const std::vector<std::string>& replies) {
  const auto has = [](const std::vector<std::string>& texts, const std::string& word) {
    for (const std::string& text : texts) {
      if (text.find(word) != std::string::npos) return true;
    }
    return false;
  };
  for (int i = 0;; ++i) {
    std::string word = fmt::format("(reply {})", i);
    if (!has(prompt.turns, word) && !has(replies, word) &&
        prompt.system.find(word) == std::string::npos) {
      return word;
    }
  }
}

}  // namespace

Expected<ConversationFormat> ConversationFormat::make(const ModelSource& source,
                                                      bool use_template) {
  ConversationFormat format(source);
  if (!use_template) return format;
  if (!source.chat_template.ok()) {
    return Status(source.chat_template.status().code(),
                  source.chat_template.status().message() + " (--no-template)");
  }
  AERIE_ASSIGN_OR_RETURN(format.example_, format.render({{"user", kExampleMessage}}));
  return format;
}

int ConversationFormat::turns(const Prompt& prompt) const {
  return prompt.chat ? static_cast<int>(prompt.turns.size()) : 1;
}

Expected<std::string> ConversationFormat::render(const std::vector<ChatMessage>& messages) const {
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  ChatInput input;
  input.messages = &list;
  input.now = fixed_day();
  return source_->chat_template->render(input);
}

Expected<std::vector<int32_t>> ConversationFormat::first(const Prompt& prompt) const {
  std::vector<int32_t> ids;
  if (!prompt.chat) {
    AERIE_RETURN_IF_ERROR(source_->tokenizer->encode(prompt.turns[0], {true, false}, ids));
    return ids;
  }
  AERIE_ASSIGN_OR_RETURN(const std::string text, render(opening(prompt)));
  AERIE_RETURN_IF_ERROR(source_->tokenizer->encode(text, {true, true}, ids));
  return ids;
}

// The reply's own tokens stay as they were generated: encoded anew, its text could become others.
// So only what the template writes behind the reply is wanted.
Expected<std::vector<int32_t>> ConversationFormat::next(const Prompt& prompt,
                                                        const std::vector<std::string>& replies,
                                                        int32_t ended_with) const {
  const std::string mark = placeholder(prompt, replies);
  std::vector<ChatMessage> messages = opening(prompt);
  for (size_t i = 0; i < replies.size(); ++i) {
    messages.push_back({"assistant", i + 1 == replies.size() ? mark : replies[i]});
    messages.push_back({"user", prompt.turns[i + 1]});
  }
  AERIE_ASSIGN_OR_RETURN(const std::string text, render(messages));
  const size_t at = text.find(mark);
  if (at == std::string::npos || text.find(mark, at + 1) != std::string::npos) {
    return Status(StatusCode::kInvalidArgument,
                  prompt.name +
                      ": the chat template does not show an earlier reply once, as it "
                      "is, so that there can be no second turn");
  }
  std::vector<int32_t> ids;
  AERIE_RETURN_IF_ERROR(
      source_->tokenizer->encode(text.substr(at + mark.size()), {false, true}, ids));
  if (!ids.empty() && ids.front() == ended_with) ids.erase(ids.begin());
  return ids;
}

}  // namespace aerie::train
