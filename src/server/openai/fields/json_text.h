// JSON that is sent.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "format/json.h"

namespace aerie::server {

// On one line. Bytes that are no UTF-8 become U+FFFD.
std::string json_text(const Json& value);

// An event of a stream: "data: ...\n\n".
std::string event_text(const Json& value);

// `bytes` with U+FFFD in the place of what is no UTF-8.
std::string valid_text(std::string_view bytes);

// Characters of valid UTF-8.
size_t character_count(std::string_view text);

}  // namespace aerie::server
