// UTF-8 (Unicode 15, section 3.9, table 3-7): bytes that are meant to be, and characters of what
// is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace aerie {

enum class Utf8Kind : uint8_t {
  kValid,       // one character
  kInvalid,     // a maximal invalid part: what one U+FFFD stands for
  kIncomplete,  // all that is left is the beginning of a character
};

struct Utf8Unit {
  Utf8Kind kind;
  uint8_t length;  // in bytes, at least 1
};

// What `bytes` begins with. Requires that it is not empty.
Utf8Unit utf8_next(std::string_view bytes);

// The length of the longest prefix that is valid UTF-8.
size_t utf8_valid_prefix(std::string_view bytes);

// The first character of `text`, which must be valid and not empty, and its length in bytes.
struct Utf8Character {
  uint32_t code;
  uint32_t length;
};
Utf8Character utf8_first(std::string_view text);

// The length in bytes of a character from its first byte; 1 for a byte that begins none.
size_t utf8_length(char first);

void append_utf8(uint32_t code, std::string& out);

}  // namespace aerie
