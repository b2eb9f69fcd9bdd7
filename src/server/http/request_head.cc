#include "server/http/request_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <iterator>

namespace aerie::server {
namespace {

namespace http = boost::beast::http;

bool is_control(char c) {
  return (c >= 0 && c < ' ' && c != '\t') || c == 127;
}

// HOST, HOST:PORT, or [IPv6]:PORT; an empty one is what those say who have none.
bool is_host(std::string_view value) {
  return std::ranges::all_of(value, [](char c) {
    constexpr std::string_view kMarks = "-._~!$&'()*+;=:[]%";
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

bool is_number(std::string_view value) {
  return !value.empty() && value.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

HeadScan::Found HeadScan::look(std::string_view bytes) {
  const auto fault = [this](const char* why) {
    fault_ = why;
    return Found::kFault;
  };
  for (; seen_ < bytes.size(); ++seen_) {
    const char c = bytes[seen_];
    const char before = seen_ > 0 ? bytes[seen_ - 1] : '\0';
    if (c == '\n') {
      if (before != '\r') return fault("a line feed without a carriage return before it");
      if (!bytes.substr(0, seen_ + 1).ends_with("\r\n\r\n")) continue;
      ++seen_;
      return Found::kEnd;
    }
    if (before == '\r') return fault("a carriage return without a line feed behind it");
    if (before == '\n' && (c == ' ' || c == '\t')) {
      return fault("a line that begins with a space: fields may not go on in another line");
    }
    if (is_control(c) && c != '\r') return fault("a control character");
  }
  return Found::kNothing;
}

std::optional<HeadFault> find_fault(const http::request_header<>& head) {
  const auto count = [&](http::field name) {
    const auto [from, to] = head.equal_range(name);
    return std::distance(from, to);
  };
  for (const http::field once : {http::field::host, http::field::content_length,
                                 http::field::authorization, http::field::origin}) {
    if (count(once) > 1) return HeadFault{400, fmt::format("{} twice", http::to_string(once))};
  }
  const auto host = head.find(http::field::host);
  if (host == head.end() && head.version() >= 11) return HeadFault{400, "there is no Host"};
  if (host != head.end() && !is_host(host->value())) return HeadFault{400, "Host is no host"};
  const auto length = head.find(http::field::content_length);
  if (length != head.end() && !is_number(length->value())) {
    return HeadFault{400, "Content-Length is not one number"};
  }
  const auto coding = head.find(http::field::transfer_encoding);
  if (coding == head.end()) return std::nullopt;
  if (head.version() < 11) return HeadFault{400, "Transfer-Encoding is not of HTTP/1.0"};
  if (count(http::field::transfer_encoding) > 1 ||
      !boost::beast::iequals(coding->value(), "chunked")) {
    return HeadFault{501, "Transfer-Encoding: only chunked is known here"};
  }
  return std::nullopt;
}

bool is_chunk_extension(std::string_view text) {
  constexpr size_t kMost = 256;
  return text.size() <= kMost && std::ranges::none_of(text, is_control);
}

}  // namespace aerie::server
