// Small parts of HTTP that need no library: targets, request ids, status lines.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace aerie::server {

struct HttpTarget {
  std::string path;
  std::map<std::string, std::string> query;
};

// "/v1/models?limit=3", percent-decoded. Nothing if it is no path, or decodes to what no path holds
// (a NUL).
std::optional<HttpTarget> parse_target(std::string_view target);

// Whether a client's x-request-id can be logged and sent back as it is.
bool is_request_id(std::string_view id);

// `bytes` random bytes in hexadecimal; for ids, not for secrets.
std::string random_hex(int bytes);

std::string_view reason_phrase(int status);

// Now, as the header Date wants it.
std::string http_date();

}  // namespace aerie::server
