#include <charconv>

#include "base/errors.h"
#include "base/utf8.h"
#include "jinja/syntax/lexer.h"
#include "jinja/values/characters.h"

namespace aerie::jinja {
namespace {

// A character by its number: `most` digits that `text` begins with, or fewer if they are octal.
Status take_numbered(std::string_view& text, char kind, size_t most, int base,
                     std::string& result) {
  const std::string_view digits = text.substr(0, most);
  uint32_t code = 0;
  const char* end = std::from_chars(digits.data(), digits.data() + digits.size(), code, base).ptr;
  const auto read = static_cast<size_t>(end - digits.data());
  if (base == 16 && read < most) {
    return invalid_data("a string with \\{} that lacks its {} digits", kind, most);
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return invalid_data("a string with U+{:04X}, which is no character", code);
  }
  append_utf8(code, result);
  text.remove_prefix(read);
  return {};
}

// `text` begins with a backslash and one more character: the lexer ends no string in between.
Status take_escape(std::string_view& text, std::string& result) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
  const char kind = text[1];
  if (kind >= '0' && kind <= '7') {
    text.remove_prefix(1);
    return take_numbered(text, kind, 3, 8, result);
  }
  text.remove_prefix(2);
  if (kind == 'x') return take_numbered(text, kind, 2, 16, result);
  if (kind == 'u') return take_numbered(text, kind, 4, 16, result);
  if (kind == 'U') return take_numbered(text, kind, 8, 16, result);
  if (kind == 'N') return not_supported("a string with \\N: write the character itself");
  const size_t known = kLetters.find(kind);
  if (known != kLetters.npos) {
    result += kValues[known];
  } else if (kind != '\n') {
    result += {'\\', kind};
  }
  return {};
}

}  // namespace

Expected<std::string> unescape(std::string_view text) {
  std::string result;
  for (;;) {
    result += take_until(text, "\\");
    if (text.empty()) return result;
    AERIE_RETURN_IF_ERROR(take_escape(text, result));
  }
}

}  // namespace aerie::jinja
