#include "grammar/notation_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/automaton/code_points.h"
#include "grammar/grammar_rules.h"

namespace aerie::grammar {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Status NotationReader::error(std::string_view what, StatusCode code) const {
  const std::string_view before = text_.substr(0, at_);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_start = before.rfind('\n');
  const size_t column = line_start == std::string_view::npos ? at_ + 1 : at_ - line_start;
  return {code, fmt::format("line {}, column {}: {}", line, column, what)};
}

bool NotationReader::take(std::string_view what) {
  if (!peek(what)) return false;
  at_ += what.size();
  return true;
}

Expected<int> NotationReader::take_count() {
  const size_t begin = at_;
  int value = 0;
  for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
    value = value * 10 + (text_[at_] - '0');
    if (value > kMaxRepeat) {
      return error(fmt::format("more than {} repetitions", kMaxRepeat),
                   StatusCode::kResourceExhausted);
    }
  }
  if (at_ == begin) return error("a number is expected");
  return value;
}

Expected<uint32_t> NotationReader::take_hex(int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const int digit = at_ < text_.size() ? hex_digit(text_[at_]) : -1;
    if (digit < 0) return error(fmt::format("{} hexadecimal digits are expected", digits));
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value > kMaxCodePoint || surrogate) return error("the escape is not a character");
  return value;
}

Expected<uint32_t> NotationReader::take_character() {
  std::string_view rest = text_.substr(at_);
  uint32_t code_point = 0;
  if (!take_code_point(rest, code_point)) return error("the text is not valid UTF-8");
  at_ = text_.size() - rest.size();
  return code_point;
}

}  // namespace aerie::grammar
