#include <fmt/format.h>

#include <charconv>

#include "base/utf8.h"
#include "jinja/syntax/lexer.h"

namespace aerie::jinja {
namespace {

struct Escape {
  size_t length = 0;  // of what it stands in place of
  Status status;
};

// A character by its number, whose digits begin at `lead`: `most` of them at most, and no fewer if
// they are hexadecimal.
Escape append_numbered(std::string_view text, size_t lead, size_t most, int base,
                       std::string& result) {
  const std::string_view digits = text.substr(lead, most);
  uint32_t code = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
  const auto read = static_cast<size_t>(end - digits.data());
  if (error != std::errc() || (base == 16 && read < most)) {
    return {0,
            {StatusCode::kInvalidData,
             fmt::format("a string with \\{} that lacks its {} digits", text[1], most)}};
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return {0,
            {StatusCode::kInvalidData,
             fmt::format("a string with U+{:04X}, which is no character", code)}};
  }
  append_utf8(code, result);
  return {lead + read, {}};
}

// `text` begins with a backslash and one more character: the lexer ends no string in between.
Escape append_escape(std::string_view text, std::string& result) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
  const char kind = text[1];
  if (const size_t known = kLetters.find(kind); known != kLetters.npos) {
    result += kValues[known];
    return {2, {}};
  }
  if (kind == '\n') return {2, {}};
  if (kind == 'x') return append_numbered(text, 2, 2, 16, result);
  if (kind == 'u') return append_numbered(text, 2, 4, 16, result);
  if (kind == 'U') return append_numbered(text, 2, 8, 16, result);
  if (kind >= '0' && kind <= '7') return append_numbered(text, 1, 3, 8, result);
  if (kind == 'N') {
    return {0, {StatusCode::kUnsupported, "a string with \\N: write the character itself"}};
  }
  result += '\\';
  return {1, {}};
}

}  // namespace

Expected<std::string> unescape(std::string_view text) {
  std::string result;
  for (;;) {
    const size_t plain = std::min(text.find('\\'), text.size());
    result += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) return result;
    const Escape escape = append_escape(text, result);
    AERIE_RETURN_IF_ERROR(escape.status);
    text.remove_prefix(escape.length);
  }
}

}  // namespace aerie::jinja
