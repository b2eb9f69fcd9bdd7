#include "jinja/syntax/string_literal.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace aerie::jinja {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Unescaper {
 public:
  explicit Unescaper(std::string_view text) : rest_(text) {}

  Expected<std::string> run() {
    while (!rest_.empty()) {
      const size_t plain = std::min(rest_.find('\\'), rest_.size());
      result_ += rest_.substr(0, plain);
      rest_.remove_prefix(plain);
      if (rest_.empty()) break;
      AERIE_RETURN_IF_ERROR(escape(rest_[1]));  // the lexer does not end a string after '\'
    }
    return std::move(result_);
  }

 private:
  Status escape(char kind) {
    constexpr std::string_view kLetters = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    const size_t simple = kLetters.find(kind);
    if (simple != kLetters.npos) {
      result_ += kValues[simple];
      rest_.remove_prefix(2);
    } else if (kind == '\n') {
      rest_.remove_prefix(2);
    } else if (kind == 'x') {
      return code_point(2);
    } else if (kind == 'u') {
      return code_point(4);
    } else if (kind == 'U') {
      return code_point(8);
    } else if (kind >= '0' && kind <= '7') {
      octal();
    } else if (kind == 'N') {
      return {StatusCode::kUnsupported, "a string with \\N: write the character itself"};
    } else {
      result_ += '\\';
      rest_.remove_prefix(1);
    }
    return {};
  }

  void octal() {
    char32_t code = 0;
    size_t digits = 0;
    while (digits < 3 && digits + 1 < rest_.size() && rest_[digits + 1] >= '0' &&
           rest_[digits + 1] <= '7') {
      code = code * 8 + static_cast<char32_t>(rest_[++digits] - '0');
    }
    append_utf8(static_cast<uint32_t>(code), result_);
    rest_.remove_prefix(1 + digits);
  }

  Status code_point(size_t digits) {
    char32_t code = 0;
    for (size_t i = 0; i < digits; ++i) {
      const int digit = i + 2 < rest_.size() ? hex_digit(rest_[i + 2]) : -1;
      if (digit < 0) {
        return {StatusCode::kInvalidData,
                fmt::format("a string with \\{} that lacks its {} digits", rest_[1], digits)};
      }
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      return {StatusCode::kInvalidData, fmt::format("a string with U+{:04X}, which is no character",
                                                    static_cast<uint32_t>(code))};
    }
    append_utf8(static_cast<uint32_t>(code), result_);
    rest_.remove_prefix(2 + digits);
    return {};
  }

  std::string_view rest_;
  std::string result_;
};

}  // namespace

Expected<std::string> unescape(std::string_view text) {
  return Unescaper(text).run();
}

}  // namespace aerie::jinja
