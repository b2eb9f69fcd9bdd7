#include "chat/call_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace aerie::chat {
namespace {

const Json* schema_of(const Tool& tool, std::string_view argument) {
  if (tool.parameters == nullptr || !tool.parameters->is_object()) return nullptr;
  const auto properties = tool.parameters->find("properties");
  if (properties == tool.parameters->end() || !properties->is_object()) return nullptr;
  const auto it = properties->find(std::string(argument));
  return it == properties->end() || !it->is_object() ? nullptr : &*it;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name) {
  const auto it = std::ranges::find(tools, name, &Tool::name);
  return it == tools.end() ? nullptr : &*it;
}

bool is_text(const Json& schema) {
  if (!schema.is_object()) return false;
  const auto type = schema.find("type");
  return type != schema.end() && *type == "string";
}

std::string argument_json(const Tool& tool, std::string_view argument, std::string_view text) {
  const Json* schema = schema_of(tool, argument);
  if (schema == nullptr || !is_text(*schema)) {
    const std::string_view value = trimmed(text);
    // Models that were trained on Python.
    if (value == "True") return "true";
    if (value == "False") return "false";
    if (value == "None") return "null";
    if (parse_json(value, "argument").ok()) return std::string(value);
  }
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

size_t JsonValueEnd::push(std::string_view text) {
  size_t at = 0;
  for (; at < text.size() && !done_; ++at) {
    const char c = text[at];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        done_ = depth_ == 0;
      }
      continue;
    }
    const bool ends_plain =
        kSpace.find(c) != std::string_view::npos || c == ',' || c == '}' || c == ']' || c == ':';
    if (plain_ && ends_plain) {
      done_ = true;
      return at;
    }
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') ++depth_;
    if ((c == '}' || c == ']') && --depth_ <= 0) done_ = true;
    if (!begun_) plain_ = c != '"' && c != '{' && c != '[';
    begun_ = true;
  }
  return at;
}

std::optional<bool> begins(std::string_view text, std::string_view tag) {
  if (tag.empty()) return false;
  if (text.starts_with(tag)) return true;
  if (tag.starts_with(text)) return std::nullopt;
  return false;
}

size_t held_length(std::string_view text, std::string_view word) {
  if (word.empty()) return 0;
  for (size_t n = std::min(text.size(), word.size() - 1); n > 0; --n) {
    if (text.ends_with(word.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace aerie::chat
