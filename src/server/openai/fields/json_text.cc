#include "server/openai/fields/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace aerie::server {

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string event_text(const Json& value) {
  return "data: " + json_text(value) + "\n\n";
}

std::string valid_text(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t valid = utf8_valid_prefix(bytes);
    out += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    out += "\xEF\xBF\xBD";
    bytes.remove_prefix(utf8_next(bytes).length);
  }
  return out;
}

size_t character_count(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace aerie::server
