#include "jinja/syntax/lexer.h"

#include <fmt/format.h>

#include <array>

#include "format/text.h"
#include "jinja/syntax/string_literal.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

// Every kind of line end becomes \n, and one at the end of the template goes.
std::string normal_lines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name(char32_t code) {
  if (code < 0x80) {
    const auto c = static_cast<char>(code);
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_ascii_digit(c) || c == '_';
  }
  return is_letter(code) || is_numeric(code);
}

// How many bytes of `text` from `at` on are digits of `base`, single underscores between them
// included.
size_t digits_at(std::string_view text, size_t at, int base) {
  const auto is_digit_of = [&](char c) {
    const char lower = static_cast<char>(c | 0x20);
    if (is_ascii_digit(c)) return c - '0' < base;
    return base == 16 && lower >= 'a' && lower <= 'f';
  };
  size_t end = at;
  while (end < text.size()) {
    if (is_digit_of(text[end])) {
      ++end;
    } else if (text[end] == '_' && end + 1 < text.size() && is_digit_of(text[end + 1])) {
      end += 2;
    } else {
      break;
    }
  }
  return end - at;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normal_lines(source)) {}

  Expected<std::vector<Token>> run();

 private:
  static constexpr size_t npos = std::string::npos;
  using Type = Token::Type;

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  Place place();
  size_t find_open() const;
  std::string_view text_before(size_t open, char kind, char sign) const;
  void add_text(std::string_view text, const Place& place);
  void close(size_t brace, char sign, bool trims_line_end);
  Status skip_comment();
  Expected<bool> raw_block();
  Status read_tag(char kind);
  Status read_token();
  Status read_number();
  Status read_string(char quote);
  Status read_operator();
  void add(Type type, std::string text) {
    tokens_.push_back({type, start_, std::move(text), 0, 0.0});
  }

  std::string source_;
  size_t at_ = 0;
  Place start_;           // of the token that is being read
  size_t placed_ = 0;     // start_ belongs to this byte
  std::string brackets_;  // that are open
  std::vector<Token> tokens_;
};

// The place of at_. Asked for in order, so that lines are counted once.
Place Lexer::place() {
  for (; placed_ < at_; ++placed_) {
    if (source_[placed_] == '\n') {
      ++start_.line;
      start_.column = 1;
    } else {
      ++start_.column;
    }
  }
  return start_;
}

size_t Lexer::find_open() const {
  for (size_t i = source_.find('{', at_); i != npos; i = source_.find('{', i + 1)) {
    if (i + 1 == source_.size()) break;
    const char next = source_[i + 1];
    if (next == '%' || next == '{' || next == '#') return i;
  }
  return npos;
}

// What stands before the tag that opens at `open`, less what the tag strips off its end.
std::string_view Lexer::text_before(size_t open, char kind, char sign) const {
  const std::string_view text = std::string_view(source_).substr(at_, open - at_);
  if (sign == '-') return strip(text, nullptr, {false, true});
  if (sign == '+' || kind == '{') return text;
  const size_t line = text.rfind('\n') + 1;  // 0 if there is none
  const bool begins_line = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
  const bool blank = strip(text.substr(line), nullptr, {}).empty();
  return begins_line && blank ? text.substr(0, line) : text;
}

void Lexer::add_text(std::string_view text, const Place& place) {
  if (!text.empty()) tokens_.push_back({Type::kText, place, std::string(text), 0, 0.0});
}

// Past the end of a tag, output or comment whose closing brace is at `brace`; `sign` before it.
void Lexer::close(size_t brace, char sign, bool trims_line_end) {
  at_ = brace + 1;
  if (sign == '-') {
    at_ = source_.size() - strip(rest(), nullptr, {true, false}).size();
  } else if (trims_line_end && sign == '\0' && rest().starts_with('\n')) {
    ++at_;
  }
}

Status Lexer::skip_comment() {
  const size_t end = source_.find("#}", at_);
  if (end == npos) return syntax_error(start_, "a comment does not end");
  const char before = end > at_ ? source_[end - 1] : '\0';
  close(end + 1, before == '-' || before == '+' ? before : '\0', true);
  return {};
}

// {% raw %}...{% endraw %}, from behind its "{%" on; false if that is another tag.
Expected<bool> Lexer::raw_block() {
  const auto skip_space = [&](size_t at) {
    return source_.size() -
           strip(std::string_view(source_).substr(at), nullptr, {true, false}).size();
  };
  const auto is_word = [&](size_t at, std::string_view word) {
    return std::string_view(source_).substr(at).starts_with(word);
  };
  size_t at = skip_space(at_);
  if (!is_word(at, "raw")) return false;
  at = skip_space(at + 3);
  if (is_word(at, "-%}")) {
    at_ = skip_space(at + 3);
  } else if (is_word(at, "%}")) {
    at_ = at + 2;
  } else {
    return false;
  }
  const Place begin = place();
  for (size_t open = source_.find("{%", at_); open != npos; open = source_.find("{%", open + 2)) {
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    const bool signed_open = sign == '-' || sign == '+';
    size_t end = skip_space(open + (signed_open ? 3 : 2));
    if (!is_word(end, "endraw")) continue;
    end = skip_space(end + 6);
    const char closing = is_word(end, "-%}") ? '-' : is_word(end, "+%}") ? '+' : '\0';
    if (closing == '\0' && !is_word(end, "%}")) continue;
    add_text(text_before(open, '%', signed_open ? sign : '\0'), begin);
    close(end + (closing == '\0' ? 1 : 2), closing, true);
    return true;
  }
  return syntax_error(begin, "a raw block does not end");
}

Status Lexer::read_number() {
  const std::string_view text = source_;
  const char second = at_ + 1 < text.size() ? static_cast<char>(text[at_ + 1] | 0x20) : '\0';
  const int base = text[at_] != '0' ? 10
                   : second == 'x'  ? 16
                   : second == 'o'  ? 8
                   : second == 'b'  ? 2
                                    : 10;
  size_t end = 0;
  bool real = false;
  if (base != 10) {
    const size_t lead = at_ + 2 < text.size() && text[at_ + 2] == '_' ? 3 : 2;
    const size_t digits = digits_at(text, at_ + lead, base);
    end = digits == 0 ? at_ + 1 : at_ + lead + digits;
  } else {
    end = at_ + digits_at(text, at_, 10);
    // x.0.1 is two subscripts.
    const bool may_be_real = at_ == 0 || text[at_ - 1] != '.';
    if (may_be_real && end < text.size() && text[end] == '.') {
      const size_t digits = digits_at(text, end + 1, 10);
      real = digits > 0;
      if (real) end += 1 + digits;
    }
    if (may_be_real && end < text.size() && (text[end] | 0x20) == 'e') {
      const size_t sign =
          end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-') ? 1 : 0;
      const size_t digits = digits_at(text, end + 1 + sign, 10);
      if (digits > 0) {
        real = true;
        end += 1 + sign + digits;
      }
    }
  }
  std::string spelled(text.substr(at_, end - at_));
  at_ = end;
  if (real) {
    add(Type::kFloat, spelled);
    tokens_.back().real = parse_float(spelled).value_or(0.0);
    return {};
  }
  const bool leading_zero =
      base == 10 && spelled[0] == '0' && spelled.find_first_not_of("0_") != npos;
  if (leading_zero) return syntax_error(start_, "a number that begins with 0");
  const auto value = parse_int(spelled, base == 10 ? 10 : 0);
  if (!value) {
    return at_place(start_, {StatusCode::kUnsupported, "an integer that does not fit 128 bits"});
  }
  add(Type::kInteger, std::move(spelled));
  tokens_.back().integer = *value;
  return {};
}

Status Lexer::read_string(char quote) {
  const size_t begin = at_ + 1;
  size_t end = begin;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) return syntax_error(start_, "a string does not end");
  auto value = unescape(std::string_view(source_).substr(begin, end - begin));
  if (!value.ok()) return at_place(start_, value.status());
  at_ = end + 1;
  add(Type::kString, std::move(value).value());
  return {};
}

Status Lexer::read_operator() {
  constexpr std::array<std::string_view, 25> kOperators = {
      "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
  for (const std::string_view spelled : kOperators) {
    if (!rest().starts_with(spelled)) continue;
    at_ += spelled.size();
    add(Type::kOperator, std::string(spelled));
    const char c = spelled[0];
    if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty() || brackets_.back() != c) {
        return syntax_error(start_, fmt::format("'{}' closes nothing", c));
      }
      brackets_.pop_back();
    }
    return {};
  }
  const size_t length = next_character(rest()).length;
  return syntax_error(
      start_, fmt::format("the character '{}' in a tag", printable(rest().substr(0, length))));
}

Status Lexer::read_token() {
  const char c = source_[at_];
  if (is_ascii_digit(c)) return read_number();
  if (c == '\'' || c == '"') return read_string(c);
  size_t length = 0;
  while (at_ + length < source_.size()) {
    const Character character = next_character(rest().substr(length));
    if (!is_name(character.code)) break;
    length += character.length;
  }
  if (length == 0) return read_operator();
  add(Type::kName, std::string(rest().substr(0, length)));
  at_ += length;
  return {};
}

// From behind "{%" or "{{" on.
Status Lexer::read_tag(char kind) {
  const Place begin = start_;
  const char first = kind == '%' ? '%' : '}';
  add(kind == '%' ? Type::kTagBegin : Type::kOutputBegin, "");
  brackets_.clear();
  for (;;) {
    at_ = source_.size() - strip(rest(), nullptr, {true, false}).size();
    if (at_ == source_.size()) return syntax_error(begin, "a tag does not end");
    place();
    // Inside brackets, "}}" closes two of them.
    if (brackets_.empty()) {
      const bool has_sign = rest()[0] == '-' || (rest()[0] == '+' && kind == '%');
      const std::string_view end = rest().substr(has_sign ? 1 : 0);
      if (end.size() > 1 && end[0] == first && end[1] == '}') {
        add(kind == '%' ? Type::kTagEnd : Type::kOutputEnd, "");
        close(at_ + (has_sign ? 2 : 1), has_sign ? rest()[0] : '\0', kind == '%');
        return {};
      }
    }
    AERIE_RETURN_IF_ERROR(read_token());
  }
}

Expected<std::vector<Token>> Lexer::run() {
  while (at_ < source_.size()) {
    const Place begin = place();
    const size_t open = find_open();
    if (open == npos) {
      add_text(rest(), begin);
      at_ = source_.size();
      break;
    }
    const char kind = source_[open + 1];
    const char after = open + 2 < source_.size() ? source_[open + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    add_text(text_before(open, kind, sign), begin);
    at_ = open;
    place();
    at_ = open + (sign == '\0' ? 2 : 3);
    if (kind == '#') {
      AERIE_RETURN_IF_ERROR(skip_comment());
      continue;
    }
    if (kind == '%') {
      AERIE_ASSIGN_OR_RETURN(const bool raw, raw_block());
      if (raw) continue;
    }
    AERIE_RETURN_IF_ERROR(read_tag(kind));
  }
  place();
  add(Type::kEnd, "");
  return std::move(tokens_);
}

}  // namespace

Expected<std::vector<Token>> lex(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source_bytes) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("a template of {} bytes; {} are the most", source.size(), limits.source_bytes));
  }
  if (!is_valid_utf8(source)) return Status(StatusCode::kInvalidData, "a template is not UTF-8");
  return Lexer(source).run();
}

Status at_place(const Place& place, const Status& status) {
  return status.with_context(fmt::format("template line {}, column {}", place.line, place.column));
}

Status syntax_error(const Place& place, std::string reason) {
  return at_place(place, {StatusCode::kInvalidData, std::move(reason)});
}

}  // namespace aerie::jinja
