// Reading bytes that are meant to be UTF-8 (Unicode 15, section 3.9, table 3-7).
#pragma once

#include <cstdint>
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

}  // namespace aerie
