#include "tools/run/dialogue.h"

#include <nlohmann/json.hpp>
#include <span>

#include "base/errors.h"
#include "format/json.h"
#include "format/output_file.h"

namespace aerie {

void Dialogue::set_system(const std::string& text) {
  if (first() == 1) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {"system", text});
}

std::optional<std::string> Dialogue::take_back() {
  while (messages_.size() > first()) {
    ChatMessage last = std::move(messages_.back());
    messages_.pop_back();
    if (last.role == "user") return std::move(last.content);
  }
  return std::nullopt;
}

Status Dialogue::save(const std::string& path) const {
  Json list = Json::array();
  for (const ChatMessage& message : messages_) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  const std::string text =
      Json{{"messages", std::move(list)}}.dump(2, ' ', false, Json::error_handler_t::replace) +
      "\n";
  AERIE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path));
  AERIE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Expected<Dialogue> Dialogue::load(const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(const Json json, read_json(path));
  const Json* list = &json;
  if (json.is_object() && json.contains("messages")) list = &json["messages"];
  if (!list->is_array()) return invalid_data("{}: holds no array of messages", path);
  Dialogue out;
  for (const Json& one : *list) {
    const std::string name = path + ": a message";
    AERIE_ASSIGN_OR_RETURN(const JsonObject message, JsonObject::view(one, name));
    AERIE_ASSIGN_OR_RETURN(const std::string_view role, message.string("role"));
    AERIE_ASSIGN_OR_RETURN(const std::string_view content, message.string("content"));
    const bool is_first = out.messages_.empty();
    if (role != "user" && role != "assistant" && !(role == "system" && is_first)) {
      return message.error(StatusCode::kInvalidData, "role",
                           "is neither user nor assistant, and only the first may be system");
    }
    out.add(std::string(role), std::string(content));
  }
  return out;
}

}  // namespace aerie
