// A template's source to tokens, as Hugging Face sets Jinja up: trim_blocks (a line end after a tag
// or comment goes), lstrip_blocks (white space before a tag or comment that begins its line goes),
// and the last line end of the source goes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "jinja/limits.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

struct Place {
  int line = 1;
  int column = 1;  // in bytes
};

struct Token {
  enum class Type : uint8_t {
    kText,  // outside of tags
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,  // {{, }}, {% and %} too
    kEnd,
  };
  Type type = Type::kEnd;
  Place place;
  std::string text;  // what it spells; a string's value
  Int integer = 0;
  double real = 0.0;
};

// The last token is kEnd. kInvalidData where the source is no Jinja, kUnsupported for a number or
// escape that is beyond this implementation, kResourceExhausted for too long a source.
Expected<std::vector<Token>> lex(std::string_view source, const Limits& limits);

// What stands between the quotes of a string, with Python's escapes resolved. An unknown escape
// stays as it is; a broken \x, \u or \U is kInvalidData; \N{...} is kUnsupported.
Expected<std::string> unescape(std::string_view text);

std::string description(const Place& place);  // "template line 3, column 5"
// "template line 3, column 5: reason".
Status at_place(const Place& place, const Status& status);

}  // namespace aerie::jinja
