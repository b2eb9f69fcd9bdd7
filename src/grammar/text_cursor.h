// Reading a notation character by character.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/utf8.h"

namespace aerie {

// Hexadecimal digit's value, or -1.
inline int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

struct TextCursor {
  std::string_view text;
  size_t at = 0;

  bool done() const { return at >= text.size(); }
  // 0 past the end.
  char peek(size_t ahead = 0) const { return at + ahead < text.size() ? text[at + ahead] : '\0'; }
  bool starts_with(std::string_view what) const { return text.substr(at).starts_with(what); }
  bool take(std::string_view what) {
    if (!starts_with(what)) return false;
    at += what.size();
    return true;
  }
  // Exactly that many digits; false, without moving, if they are not there.
  bool take_hex(int digits, char32_t& value) {
    char32_t read = 0;
    for (int i = 0; i < digits; ++i) {
      const int digit = hex_value(peek(static_cast<size_t>(i)));
      if (digit < 0) return false;
      read = read * 16 + static_cast<char32_t>(digit);
    }
    at += static_cast<size_t>(digits);
    value = read;
    return true;
  }
  // A number of at most nine digits.
  bool take_number(int& value) {
    size_t end = at;
    int read = 0;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9' && end - at < 9) {
      read = read * 10 + (text[end++] - '0');
    }
    const bool more = end < text.size() && text[end] >= '0' && text[end] <= '9';
    if (end == at || more) return false;
    at = end;
    value = read;
    return true;
  }
};

// Requires valid UTF-8 and that the cursor is not at the end.
inline char32_t take_character(TextCursor& in) {
  const size_t length = utf8_next(in.text.substr(in.at)).length;
  const auto lead = static_cast<uint8_t>(in.text[in.at]);
  char32_t value = length == 1 ? lead : lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    value = (value << 6) | (static_cast<uint8_t>(in.text[in.at + i]) & 0x3Fu);
  }
  in.at += length;
  return value;
}

}  // namespace aerie
