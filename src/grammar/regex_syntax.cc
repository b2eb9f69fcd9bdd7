#include "grammar/regex_syntax.h"

#include <fmt/format.h>

#include <utility>

#include "grammar/front_ends.h"
#include "grammar/text_cursor.h"

namespace aerie {
namespace {

using Ranges = std::vector<CodePointRange>;
constexpr int kMaxGroups = 100;  // within one another

const Ranges kDigits = {{'0', '9'}};
const Ranges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpace = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680},
                       {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                       {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class RegexParser {
 public:
  explicit RegexParser(std::string_view text) : in_{text} {}

  Expected<std::vector<RegexBranch>> parse() {
    if (utf8_valid_prefix(in_.text) != in_.text.size()) return wrong("invalid UTF-8");
    std::vector<RegexBranch> branches;
    do {
      RegexBranch branch;
      branch.at_start = in_.take("^");
      AERIE_ASSIGN_OR_RETURN(branch.body, sequence());
      branch.at_end = in_.take("$");
      if (!in_.done() && in_.peek() != '|') {
        if (in_.peek() == ')') return wrong("a ')' without its '('");
        return unsupported("an anchor elsewhere than at an alternative's ends");
      }
      branches.push_back(std::move(branch));
    } while (in_.take("|"));
    return branches;
  }

 private:
  Status wrong(const std::string& what) const {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("regular expression, byte {}: {}", in_.at, what));
  }
  Status unsupported(const std::string& what) const {
    return Status(StatusCode::kUnsupported,
                  fmt::format("regular expression, byte {}: {} is not supported", in_.at, what));
  }

  Expected<RegexNode> alternatives() {
    RegexNode out;
    out.kind = RegexNode::Kind::kAnyOf;
    do {
      AERIE_ASSIGN_OR_RETURN(RegexNode branch, sequence());
      out.items.push_back(std::move(branch));
    } while (in_.take("|"));
    return out.items.size() == 1 ? std::move(out.items[0]) : std::move(out);
  }

  Expected<RegexNode> sequence() {
    RegexNode out;
    while (!in_.done() && in_.peek() != '|' && in_.peek() != ')') {
      if (in_.peek() == '$' && depth_ == 0) return out;
      AERIE_ASSIGN_OR_RETURN(RegexNode atom, this->atom());
      AERIE_ASSIGN_OR_RETURN(RegexNode item, quantified(std::move(atom)));
      out.items.push_back(std::move(item));
    }
    return out;
  }

  Expected<RegexNode> quantified(RegexNode atom) {
    int least = 0;
    int most = GrammarBuilder::kUnbounded;
    if (in_.take("*")) {
    } else if (in_.take("+")) {
      least = 1;
    } else if (in_.take("?")) {
      most = 1;
    } else if (in_.peek() != '{') {
      return atom;
    } else {
      const size_t start = in_.at;
      ++in_.at;
      bool good = in_.take_number(least);
      most = least;
      if (good && in_.take(",")) {
        most = GrammarBuilder::kUnbounded;
        if (in_.peek() != '}') good = in_.take_number(most);
      }
      if (!good || !in_.take("}")) {
        in_.at = start;
        return wrong("a '{' that begins no repetition; write \\{ for the character");
      }
      if (most != GrammarBuilder::kUnbounded && most < least) return wrong("{m,n} with m > n");
    }
    if (in_.take("?"))
      return RegexNode::repeat(std::move(atom), least, most);  // lazy: the same texts
    const char next = in_.peek();
    if (next == '+') return unsupported("a possessive repetition");
    if (next == '*' || next == '{') return wrong("nothing to repeat");
    return RegexNode::repeat(std::move(atom), least, most);
  }

  Expected<RegexNode> atom() {
    const char c = in_.peek();
    switch (c) {
      case '(':
        return group();
      case '[':
        ++in_.at;
        return char_class();
      case '.':
        ++in_.at;
        return RegexNode::of_class(complement(kLineEnds));
      case '^':
      case '$':
        return unsupported("an anchor elsewhere than at an alternative's ends");
      case '*':
      case '+':
      case '?':
      case '{':
        return wrong("nothing to repeat");
      case '\\': {
        Ranges ranges;
        AERIE_RETURN_IF_ERROR(escape(ranges, false));
        return RegexNode::of_class(std::move(ranges));
      }
      default: {
        const char32_t character = next_character();
        return RegexNode::of_class({{character, character}});
      }
    }
  }

  Expected<RegexNode> group() {
    if (in_.starts_with("(?=") || in_.starts_with("(?!")) return unsupported("lookahead");
    if (in_.starts_with("(?<=") || in_.starts_with("(?<!")) return unsupported("lookbehind");
    ++in_.at;
    if (in_.take("?")) {
      if (in_.take("<") || in_.take("P<")) {
        const size_t end = in_.text.find('>', in_.at);
        if (end == std::string_view::npos) return wrong("a group's name without '>'");
        in_.at = end + 1;
      } else if (!in_.take(":")) {
        return unsupported("a group that begins with (?" + std::string(1, in_.peek()));
      }
    }
    if (++depth_ > kMaxGroups) {
      return Status(
          StatusCode::kResourceExhausted,
          fmt::format("regular expression: more than {} groups in one another", kMaxGroups));
    }
    AERIE_ASSIGN_OR_RETURN(RegexNode body, alternatives());
    --depth_;
    if (!in_.take(")")) return wrong("a '(' without its ')'");
    return body;
  }

  Expected<RegexNode> char_class() {
    const bool negated = in_.take("^");
    Ranges ranges;
    while (!in_.take("]")) {
      if (in_.done()) return wrong("a '[' without its ']'");
      AERIE_ASSIGN_OR_RETURN(const Ranges first, class_item());
      if (in_.peek() == '-' && in_.peek(1) != ']' && in_.peek(1) != '\0') {
        ++in_.at;
        AERIE_ASSIGN_OR_RETURN(const Ranges last, class_item());
        const auto single = [](const Ranges& it) {
          return it.size() == 1 && it[0].first == it[0].last;
        };
        if (!single(first) || !single(last)) return wrong("a range whose end is a class");
        if (first[0].first > last[0].first) return wrong("a range that runs backwards");
        ranges.push_back({first[0].first, last[0].first});
      } else {
        ranges.insert(ranges.end(), first.begin(), first.end());
      }
    }
    ranges = normalized(std::move(ranges));
    return RegexNode::of_class(negated ? complement(ranges) : std::move(ranges));
  }

  Expected<Ranges> class_item() {
    Ranges ranges;
    if (in_.peek() == '\\') {
      AERIE_RETURN_IF_ERROR(escape(ranges, true));
      return ranges;
    }
    if (in_.done()) return wrong("a '[' without its ']'");
    const char32_t character = next_character();
    return Ranges{{character, character}};
  }

  Status escape(Ranges& out, bool in_class) {
    ++in_.at;
    if (in_.done()) return wrong("a '\\' at the end");
    const char c = in_.peek();
    if (c >= '1' && c <= '9') return unsupported("a reference to a group");
    ++in_.at;
    const auto one = [&](char32_t character) {
      out = {{character, character}};
      return Status();
    };
    switch (c) {
      case 'd':
        out = kDigits;
        return Status();
      case 'D':
        out = complement(kDigits);
        return Status();
      case 'w':
        out = kWord;
        return Status();
      case 'W':
        out = complement(kWord);
        return Status();
      case 's':
        out = kSpace;
        return Status();
      case 'S':
        out = complement(kSpace);
        return Status();
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'b':
        if (in_class) return one('\b');
        return unsupported("a word boundary (\\b)");
      case 'B':
        return unsupported("a word boundary (\\B)");
      case 'k':
        return unsupported("a reference to a group (\\k)");
      case 'p':
      case 'P':
        return unsupported("a Unicode property (\\p)");
      case 'x':
      case 'u':
        return hex_escape(c, out);
      case 'c': {
        const char letter = in_.peek();
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))) {
          return wrong("\\c without a letter");
        }
        ++in_.at;
        return one(static_cast<char32_t>(letter & 0x1F));
      }
      default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
          return unsupported(fmt::format("\\{}", c));
        }
        --in_.at;
        return one(next_character());
    }
  }

  Status hex_escape(char kind, Ranges& out) {
    char32_t value = 0;
    if (kind == 'u' && in_.peek() == '{') {
      ++in_.at;
      int digits = 0;
      char32_t digit = 0;
      while (digits++ < 8 && in_.take_hex(1, digit)) value = value * 16 + digit;
      if (digits == 1 || !in_.take("}")) return wrong("\\u{ without its '}'");
    } else if (!in_.take_hex(kind == 'x' ? 2 : 4, value)) {
      return wrong(kind == 'x' ? "\\x needs two hexadecimal digits"
                               : "\\u needs four hexadecimal digits");
    }
    char32_t low = 0;
    if (value >= 0xD800 && value <= 0xDBFF && in_.take("\\u")) {
      if (!in_.take_hex(4, low) || low < 0xDC00 || low > 0xDFFF) return wrong("half a character");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return wrong("not a character");
    out = {{value, value}};
    return Status();
  }

  char32_t next_character() { return take_character(in_); }

  TextCursor in_;
  int depth_ = 0;
};

}  // namespace

RegexNode RegexNode::of_class(std::vector<CodePointRange> ranges) {
  RegexNode out;
  out.kind = Kind::kClass;
  out.ranges = normalized(std::move(ranges));
  return out;
}

RegexNode RegexNode::repeat(RegexNode item, int least, int most) {
  RegexNode out;
  out.kind = Kind::kRepeat;
  out.least = least;
  out.most = most;
  out.items.push_back(std::move(item));
  return out;
}

RegexNode RegexNode::anything() {
  return repeat(of_class({{0, 0x10FFFF}}), 0, GrammarBuilder::kUnbounded);
}

Expected<std::vector<RegexBranch>> parse_regex(std::string_view text) {
  return RegexParser(text).parse();
}

GrammarBuilder::Expr build(const RegexNode& regex, GrammarBuilder& builder) {
  std::vector<GrammarBuilder::Expr> items;
  for (const RegexNode& item : regex.items) items.push_back(build(item, builder));
  switch (regex.kind) {
    case RegexNode::Kind::kClass:
      return builder.code_points(regex.ranges);
    case RegexNode::Kind::kSequence:
      return builder.sequence(std::move(items));
    case RegexNode::Kind::kAnyOf:
      return builder.any_of(std::move(items));
    case RegexNode::Kind::kRepeat:
      return builder.repeat(items[0], regex.least, regex.most);
  }
  return builder.never();
}

Expected<GrammarBuilder::Rule> build_regex(std::string_view text, GrammarBuilder& builder) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<RegexBranch> branches, parse_regex(text));
  std::vector<GrammarBuilder::Expr> bodies;
  for (const RegexBranch& branch : branches) bodies.push_back(build(branch.body, builder));
  const GrammarBuilder::Rule root = builder.add_rule("regex");
  builder.define(root, builder.any_of(std::move(bodies)));
  return root;
}

}  // namespace aerie
