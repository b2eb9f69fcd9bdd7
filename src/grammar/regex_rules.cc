#include "grammar/regex_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

namespace aerie::grammar {
namespace {

constexpr size_t kMaxText = size_t{1} << 16;

// ECMAScript's \s and what its "." leaves out.
const CodePointSet& white_space() {
  static const CodePointSet set({{0x09, 0x0D},
                                 {0x20, 0x20},
                                 {0xA0, 0xA0},
                                 {0x1680, 0x1680},
                                 {0x2000, 0x200A},
                                 {0x2028, 0x2029},
                                 {0x202F, 0x202F},
                                 {0x205F, 0x205F},
                                 {0x3000, 0x3000},
                                 {0xFEFF, 0xFEFF}});
  return set;
}

CodePointSet line_ends() {
  return CodePointSet({{0x0A, 0x0A}, {0x0D, 0x0D}, {0x2028, 0x2029}});
}

CodePointSet word_characters() {
  return CodePointSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
}

CodePointSet one(uint32_t code_point) {
  return CodePointSet({{code_point, code_point}});
}

class Parser {
 public:
  Parser(std::string_view text, RegexMatch match, RegexFlags flags, RuleSet& rules)
      : text_(text), match_(match), flags_(flags), rules_(rules) {}

  Expected<ExprId> parse() {
    AERIE_ASSIGN_OR_RETURN(const ExprId expr, parse_alternatives(0));
    if (at_ < text_.size()) return error("')' has no '('");
    return expr;
  }

 private:
  Status error(const std::string& what, StatusCode code = StatusCode::kInvalidArgument) const {
    return {code, fmt::format("regular expression, byte {}: {}", at_, what)};
  }
  Status unsupported(const std::string& what) const {
    return error(what + " is not supported", StatusCode::kUnsupported);
  }

  bool peek(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!peek(what)) return false;
    at_ += what.size();
    return true;
  }

  Expected<ExprId> parse_alternatives(int nesting) {
    if (nesting > kMaxNesting) {
      return error(fmt::format("more than {} nested groups", kMaxNesting),
                   StatusCode::kResourceExhausted);
    }
    std::vector<ExprId> alternatives;
    do {
      AERIE_ASSIGN_OR_RETURN(const ExprId sequence, parse_sequence(nesting));
      alternatives.push_back(sequence);
    } while (take("|"));
    return rules_.alternatives(std::move(alternatives));
  }

  Expected<ExprId> parse_sequence(int nesting) {
    const bool outer = nesting == 0 && match_ != RegexMatch::kPart;
    const bool search = outer && match_ == RegexMatch::kSearch;
    const ExprId anything = rules_.repeat(rules_.char_class(CodePointSet::all()), 0, kUnbounded);
    std::vector<ExprId> parts;
    if (!(outer && take("^")) && search) parts.push_back(anything);
    bool tied = false;
    while (at_ < text_.size() && !peek("|") && !peek(")")) {
      if (outer && take("$")) {
        tied = true;
        if (at_ < text_.size() && !peek("|")) return unsupported("'$' that is not at the end");
        break;
      }
      AERIE_ASSIGN_OR_RETURN(const ExprId atom, parse_atom(nesting));
      AERIE_ASSIGN_OR_RETURN(const ExprId repeated, parse_quantifier(atom));
      parts.push_back(repeated);
    }
    if (search && !tied) parts.push_back(anything);
    return rules_.sequence(std::move(parts));
  }

  Expected<ExprId> parse_atom(int nesting) {
    const bool part = match_ == RegexMatch::kPart;
    if (peek("^")) return unsupported(part ? "'^'" : "'^' that is not at the beginning");
    if (peek("$")) return unsupported(part ? "'$'" : "'$' that is not at the end");
    if (peek("*") || peek("+") || peek("?")) return error("there is nothing to repeat");
    if (take("(")) return parse_group(nesting);
    if (take(".")) {
      return rules_.char_class(flags_.dot_takes_lines ? CodePointSet::all()
                                                      : line_ends().complement());
    }
    if (take("[")) {
      AERIE_ASSIGN_OR_RETURN(const CodePointSet set, parse_class());
      return rules_.char_class(set);
    }
    AERIE_ASSIGN_OR_RETURN(const CodePointSet set, parse_char(false));
    return rules_.char_class(flags_.ignore_case ? in_any_case(set) : set);
  }

  Expected<ExprId> parse_group(int nesting) {
    if (take("?")) {
      if (peek("=") || peek("!") || peek("<=") || peek("<!")) return unsupported("lookaround");
      if (take("<") || take("P<")) {
        const size_t end = text_.find('>', at_);
        if (end == std::string_view::npos) return error("the group's name has no end");
        at_ = end + 1;
      } else if (!take(":")) {
        return unsupported(fmt::format("the group '(?{}'", text_.substr(at_, 1)));
      }
    } else if (peek("*")) {
      return unsupported("a verb '(*'");
    }
    AERIE_ASSIGN_OR_RETURN(const ExprId group, parse_alternatives(nesting + 1));
    if (!take(")")) return error("')' is expected");
    return group;
  }

  Expected<ExprId> parse_quantifier(ExprId atom) {
    int min = 0;
    int max = kUnbounded;
    if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (!take("*")) {
      AERIE_ASSIGN_OR_RETURN(const bool counted, parse_counts(min, max));
      if (!counted) return atom;
    }
    // A lazy one takes part in the same matches.
    take("?");
    if (peek("+")) return unsupported("a possessive quantifier");
    if (peek("*") || peek("?")) return error("there is nothing to repeat");
    return rules_.repeat(atom, min, max);
  }

  std::optional<int> parse_count() {
    const size_t begin = at_;
    int value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = std::min(value * 10 + (text_[at_] - '0'), kMaxRepeat + 1);
    }
    return at_ == begin ? std::nullopt : std::optional<int>(value);
  }

  // "{" that begins no counts is a character.
  Expected<bool> parse_counts(int& min, int& max) {
    const size_t begin = at_;
    if (!take("{")) return false;
    if (match_ == RegexMatch::kPart && peek(",")) return unsupported("'{,'");
    const std::optional<int> first = parse_count();
    std::optional<int> last = first;
    if (first && take(",")) last = peek("}") ? kUnbounded : parse_count();
    if (!first || !last || !take("}")) {
      at_ = begin;
      return false;
    }
    if (*first > kMaxRepeat || *last > kMaxRepeat) {
      return error(fmt::format("more than {} repetitions", kMaxRepeat),
                   StatusCode::kResourceExhausted);
    }
    if (*last != kUnbounded && *last < *first) {
      return error("the repetition's bounds contradict each other");
    }
    min = *first;
    max = *last;
    return true;
  }

  Expected<CodePointSet> parse_class() {
    if (peek("]") || peek("^]")) return error("an empty character class");
    const bool negated = take("^");
    CodePointSet set;
    while (!take("]")) {
      if (at_ == text_.size()) return error("the character class has no end");
      if (peek("[:") || peek("[=") || peek("[.")) return unsupported("a POSIX class");
      if (peek("&&") || peek("--")) return unsupported("an operation on character classes");
      AERIE_ASSIGN_OR_RETURN(CodePointSet item, parse_char(true));
      if (peek("-") && !peek("-]")) {
        take("-");
        if (at_ == text_.size()) return error("the character class has no end");
        AERIE_ASSIGN_OR_RETURN(const CodePointSet last, parse_char(true));
        const auto single = [](const CodePointSet& s) {
          return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].last;
        };
        if (!single(item) || !single(last)) return error("a range needs characters at its ends");
        const CodePointRange range{item.ranges()[0].first, last.ranges()[0].first};
        if (range.last < range.first) return error("the range of characters runs backwards");
        item = CodePointSet({range});
      }
      set = set.united(item);
    }
    if (flags_.ignore_case) set = in_any_case(set);
    return negated ? set.complement() : set;
  }

  Expected<CodePointSet> parse_char(bool in_class) {
    return take("\\") ? parse_escape(in_class) : parse_itself();
  }

  Expected<CodePointSet> parse_itself() {
    std::string_view rest = text_.substr(at_);
    uint32_t code_point = 0;
    if (!take_code_point(rest, code_point)) return error("the text is not valid UTF-8");
    at_ = text_.size() - rest.size();
    return one(code_point);
  }

  Expected<CodePointSet> parse_escape(bool in_class) {
    if (at_ == text_.size()) return error("the escape is not complete");
    const char c = text_[at_++];
    static const CodePointSet digits({{'0', '9'}});
    switch (c) {
      case 'd':
        return digits;
      case 'D':
        return digits.complement();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().complement();
      case 's':
        return white_space();
      case 'S':
        return white_space().complement();
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return parse_hex(2);
      case 'u':
        return parse_unicode();
      default:
        break;
    }
    if (c == 'b' && in_class) return one('\b');
    if (c == '0' && !(at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9')) return one(0);
    --at_;
    if (c >= '1' && c <= '9') return unsupported("a backreference");
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '0';
    if (letter) return unsupported(fmt::format("the escape '\\{}'", c));
    return parse_itself();
  }

  Expected<uint32_t> hex_digits(size_t count) {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i, ++at_) {
      const size_t digit =
          at_ < text_.size()
              ? std::string_view("0123456789abcdef")
                    .find(static_cast<char>(text_[at_] >= 'A' && text_[at_] <= 'F' ? text_[at_] + 32
                                                                                   : text_[at_]))
              : std::string_view::npos;
      if (digit == std::string_view::npos) {
        return error(fmt::format("{} hexadecimal digits are expected", count));
      }
      value = value << 4 | static_cast<uint32_t>(digit);
    }
    return value;
  }

  Expected<CodePointSet> parse_hex(size_t digits) {
    AERIE_ASSIGN_OR_RETURN(const uint32_t value, hex_digits(digits));
    if (value > kMaxCodePoint || (value >= 0xD800 && value <= 0xDFFF)) {
      return error("the escape is not a character");
    }
    return one(value);
  }

  // \uXXXX, \u{X...} or two surrogates.
  Expected<CodePointSet> parse_unicode() {
    if (take("{")) {
      const size_t end = text_.find('}', at_);
      if (end == std::string_view::npos || end == at_ || end - at_ > 6) {
        return error("the escape is not complete");
      }
      AERIE_ASSIGN_OR_RETURN(const CodePointSet set, parse_hex(end - at_));
      take("}");
      return set;
    }
    const size_t begin = at_;
    AERIE_ASSIGN_OR_RETURN(const uint32_t high, hex_digits(4));
    if (high >= 0xD800 && high <= 0xDBFF && take("\\u")) {
      AERIE_ASSIGN_OR_RETURN(const uint32_t low, hex_digits(4));
      if (low >= 0xDC00 && low <= 0xDFFF) {
        return one(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
      }
    }
    at_ = begin;
    return parse_hex(4);
  }

  std::string_view text_;
  RegexMatch match_;
  RegexFlags flags_;
  RuleSet& rules_;
  size_t at_ = 0;
};

}  // namespace

CodePointSet in_any_case(const CodePointSet& set) {
  static const CodePointSet letters({{'A', 'Z'}, {'a', 'z'}});
  constexpr uint32_t kCase = 'a' - 'A';
  std::vector<CodePointRange> ranges = set.ranges();
  const CodePointSet cased = set.intersected(letters);
  for (const CodePointRange& range : cased.ranges()) {
    ranges.push_back({range.first ^ kCase, range.last ^ kCase});
  }
  return CodePointSet(ranges);
}

Expected<ExprId> parse_regex(std::string_view text, RegexMatch match, RuleSet& rules,
                             RegexFlags flags) {
  if (text.size() > kMaxText) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("the regular expression has {} bytes; at most {} are read",
                              text.size(), kMaxText));
  }
  return Parser(text, match, flags, rules).parse();
}

}  // namespace aerie::grammar
