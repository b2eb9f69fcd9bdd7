// Numbers as Python prints and reads them.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

// Without underscores between digits; nullopt where one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
    } else if (i == 0 || i + 1 == text.size() || digit_value(text[i - 1]) > 35 ||
               digit_value(text[i + 1]) > 35) {
      return std::nullopt;
    }
  }
  return result;
}

}  // namespace

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

int prefix_base(std::string_view text) {
  if (text.size() < 3 || text[0] != '0') return 0;
  const char letter = static_cast<char>(text[1] | 0x20);
  const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  const char digit = text[2] == '_' && text.size() > 3 ? text[3] : text[2];
  return digit_value(digit) < base ? base : 0;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == text.npos) text += ".0";
  return text;
}

std::optional<Int> parse_int(std::string_view text, int base) {
  text = strip(text, nullptr, {});
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const int prefix = prefix_base(text);
  if (prefix != 0 && (base == 0 || base == prefix)) {
    base = prefix;
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
  }
  if (base == 0) base = 10;
  const auto digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  Int value = 0;
  for (const char c : *digits) {
    const int digit = digit_value(c);
    if (digit >= base || __builtin_mul_overflow(value, Int{base}, &value) ||
        __builtin_add_overflow(value, Int{digit}, &value)) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  const auto plain = without_underscores(strip(text, nullptr, {}));
  if (!plain || plain->empty()) return std::nullopt;
  const bool negative = plain->front() == '-';
  const bool sign = negative || plain->front() == '+';
  std::string_view rest = std::string_view(*plain).substr(sign ? 1 : 0);
  // "nan" and "infinity" are read too, as in Python; a second sign is not.
  if (rest.empty() || rest.front() == '-' || rest.find('(') != rest.npos) return std::nullopt;
  double value = 0.0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    // Too large or too small: which of the two does the exponent's sign tell.
    const bool small = rest.find("e-") != rest.npos || rest.find("E-") != rest.npos;
    value = small ? 0.0 : HUGE_VAL;
  }
  return negative ? -value : value;
}

}  // namespace aerie::jinja
