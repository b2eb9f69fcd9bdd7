#include "jinja/syntax/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/errors.h"
#include "format/text.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

// Every kind of line end becomes \n, and one at the end of the template goes.
std::string normal_lines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && source.substr(i + 1).starts_with('\n')) continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

// How many bytes of `text` from `at` on are digits of `base`, single underscores between them
// included.
size_t digits_at(std::string_view text, size_t at, int base) {
  size_t end = at;
  while (end < text.size()) {
    const bool underscore = text[end] == '_' && end > at && end + 1 < text.size();
    const size_t digit = underscore ? end + 1 : end;
    if (digit_value(text[digit]) >= base) break;
    end = digit + 1;
  }
  return end - at;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normal_lines(source)) {}

  Expected<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      const Place begin = place();
      const size_t open = find_open();
      if (open == npos) {
        add_text(rest(), begin);
        at_ = source_.size();
        break;
      }
      const char kind = source_[open + 1], sign = sign_at(open + 2);
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

 private:
  static constexpr size_t npos = std::string::npos;
  using Type = Token::Type;

  std::string_view from(size_t at) const { return std::string_view(source_).substr(at); }
  std::string_view rest() const { return from(at_); }
  char char_at(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }
  // The sign of a tag that opens or closes there; '\0' if it has none.
  char sign_at(size_t at) const {
    return char_at(at) == '-' || char_at(at) == '+' ? source_[at] : '\0';
  }
  size_t after_space(size_t at) const {
    return source_.size() - strip(from(at), nullptr, {true, false}).size();
  }

  // The place of at_. Asked for in order, so that lines are counted once.
  Place place() {
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

  size_t find_open() const {
    size_t open = source_.find('{', at_);
    while (open != npos && std::string_view("%{#").find(char_at(open + 1)) == npos) {
      open = source_.find('{', open + 1);
    }
    return open;
  }

  // What stands before the tag that opens at `open`, less what the tag strips off its end.
  std::string_view text_before(size_t open, char kind, char sign) const {
    const std::string_view text = std::string_view(source_).substr(at_, open - at_);
    if (sign == '-') return strip(text, nullptr, {false, true});
    if (sign == '+' || kind == '{') return text;
    const size_t line = text.rfind('\n') + 1;  // 0 if there is none
    const bool begins_line = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    const bool blank = strip(text.substr(line), nullptr, {}).empty();
    return begins_line && blank ? text.substr(0, line) : text;
  }

  void add_text(std::string_view text, const Place& place) {
    if (!text.empty()) tokens_.push_back({Type::kText, place, std::string(text), 0, 0.0});
  }

  // Past the end of a tag, output or comment whose closing brace is at `brace`; `sign` before it.
  void close(size_t brace, char sign, bool trims_line_end) {
    at_ = sign == '-' ? after_space(brace + 1) : brace + 1;
    if (trims_line_end && sign == '\0' && rest().starts_with('\n')) ++at_;
  }

  Status skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == npos) return at_place(start_, invalid_data("a comment does not end"));
    close(end + 1, end > at_ ? sign_at(end - 1) : '\0', true);
    return {};
  }

  // {% raw %}...{% endraw %}, from behind its "{%" on; false if that is another tag.
  Expected<bool> raw_block() {
    size_t at = after_space(at_);
    if (!from(at).starts_with("raw")) return false;
    at = after_space(at + 3);
    if (from(at).starts_with("-%}")) {
      at_ = after_space(at + 3);
    } else if (from(at).starts_with("%}")) {
      at_ = at + 2;
    } else {
      return false;
    }
    const Place begin = place();
    for (size_t open = source_.find("{%", at_); open != npos; open = source_.find("{%", open + 2)) {
      const char sign = sign_at(open + 2);
      size_t end = after_space(open + (sign == '\0' ? 2 : 3));
      if (!from(end).starts_with("endraw")) continue;
      end = after_space(end + 6);
      const char closing = sign_at(end);
      if (closing != '\0') ++end;
      if (!from(end).starts_with("%}")) continue;
      add_text(text_before(open, '%', sign), begin);
      close(end + 1, closing, true);
      return true;
    }
    return at_place(begin, invalid_data("a raw block does not end"));
  }

  // From behind "{%" or "{{" on.
  Status read_tag(char kind) {
    const Place begin = start_;
    const std::string_view closing = kind == '%' ? "%}" : "}}";
    add(Type::kOperator, kind == '%' ? "{%" : "{{");
    brackets_.clear();
    for (;;) {
      at_ = after_space(at_);
      if (at_ == source_.size()) return at_place(begin, invalid_data("a tag does not end"));
      place();
      // Inside brackets, "}}" closes two of them.
      const char sign = kind == '{' && char_at(at_) == '+' ? '\0' : sign_at(at_);
      const size_t end = at_ + (sign == '\0' ? 0 : 1);
      if (brackets_.empty() && from(end).starts_with(closing)) {
        add(Type::kOperator, std::string(closing));
        close(end + 1, sign, kind == '%');
        return {};
      }
      AERIE_RETURN_IF_ERROR(read_token());
    }
  }

  Status read_token() {
    const char c = source_[at_];
    if (digit_value(c) < 10) return read_number();
    if (c == '\'' || c == '"') return read_string(c);
    size_t end = at_;
    while (end < source_.size() && is_word(next_character(from(end)).code)) {
      end += next_character(from(end)).length;
    }
    if (end == at_) return read_operator();
    add(Type::kName, source_.substr(at_, end - at_));
    at_ = end;
    return {};
  }

  Status read_number() {
    const std::string_view text = rest();
    const int prefix = prefix_base(text);
    const size_t lead = prefix == 0 ? 0 : text[2] == '_' ? 3 : 2;
    const size_t whole = lead + digits_at(text, lead, prefix == 0 ? 10 : prefix);
    size_t end = whole;
    const auto extend = [&](size_t past) {
      const size_t digits = digits_at(text, std::min(end + past, text.size()), 10);
      if (digits > 0) end += past + digits;
    };
    // x.0.1 is two subscripts.
    if (prefix == 0 && (at_ == 0 || source_[at_ - 1] != '.')) {
      if (char_at(at_ + end) == '.') extend(1);
      if ((char_at(at_ + end) | 0x20) == 'e') extend(sign_at(at_ + end + 1) == '\0' ? 1 : 2);
    }
    const std::string_view spelled = text.substr(0, end);
    add(end > whole ? Type::kFloat : Type::kInteger, std::string(spelled));
    at_ += end;
    if (end > whole) {
      tokens_.back().real = parse_float(spelled).value_or(0.0);
      return {};
    }
    if (prefix == 0 && spelled[0] == '0' && spelled.find_first_not_of("0_") != npos) {
      return at_place(start_, invalid_data("a number that begins with 0"));
    }
    const auto value = parse_int(spelled, prefix);
    if (!value) return at_place(start_, not_supported("an integer that does not fit 128 bits"));
    tokens_.back().integer = *value;
    return {};
  }

  Status read_string(char quote) {
    const size_t begin = at_ + 1;
    size_t end = begin;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return at_place(start_, invalid_data("a string does not end"));
    auto value = unescape(std::string_view(source_).substr(begin, end - begin));
    if (!value.ok()) return at_place(start_, value.status());
    at_ = end + 1;
    add(Type::kString, std::move(value).value());
    return {};
  }

  Status read_operator() {
    constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,", kOpening = "([{", kClosing = ")]}";
    const auto is_next = [&](std::string_view spelled) { return rest().starts_with(spelled); };
    const char c = rest()[0];
    const size_t length = std::ranges::any_of(kLong, is_next) ? 2 : 1;
    if (length == 1 && kShort.find(c) == npos) {
      const std::string character(rest().substr(0, next_character(rest()).length));
      return at_place(start_, invalid_data("the character '{}' in a tag", printable(character)));
    }
    if (kOpening.find(c) != npos) brackets_ += kClosing[kOpening.find(c)];
    if (kClosing.find(c) != npos) {
      if (!brackets_.ends_with(c)) return at_place(start_, invalid_data("'{}' closes nothing", c));
      brackets_.pop_back();
    }
    add(Type::kOperator, std::string(rest().substr(0, length)));
    at_ += length;
    return {};
  }

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

}  // namespace

Expected<std::vector<Token>> lex(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source_bytes) {
    return resource_exhausted("a template of {} bytes; {} are the most", source.size(),
                              limits.source_bytes);
  }
  if (!is_valid_utf8(source)) return invalid_data("a template is not UTF-8");
  return Lexer(source).run();
}

std::string description(const Place& place) {
  return fmt::format("template line {}, column {}", place.line, place.column);
}

Status at_place(const Place& place, const Status& status) {
  return status.with_context(description(place));
}

}  // namespace aerie::jinja
