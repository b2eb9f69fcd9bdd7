// llama.cpp's notation: name ::= alternatives, over several lines within parentheses or after '|'.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "grammar/front_ends.h"
#include "grammar/text_cursor.h"

namespace aerie {
namespace {

using Expr = GrammarBuilder::Expr;
using Rule = GrammarBuilder::Rule;
constexpr int kMaxGroups = 100;  // within one another

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser {
 public:
  GbnfParser(std::string_view text, GrammarBuilder& builder) : in_{text}, builder_(builder) {}

  Expected<Rule> parse() {
    const size_t valid = utf8_valid_prefix(in_.text);
    if (valid != in_.text.size()) {
      in_.at = valid;
      return wrong("invalid UTF-8");
    }
    skip(true);
    while (!in_.done()) AERIE_RETURN_IF_ERROR(rule());
    for (const auto& [name, known] : rules_) {
      if (known.defined) continue;
      in_.at = known.used_at;
      return wrong(fmt::format("rule \"{}\" is not defined", name));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return wrong("there is no rule \"root\"");
    return root->second.rule;
  }

 private:
  struct Known {
    Rule rule = 0;
    bool defined = false;
    size_t used_at = 0;
  };

  Status wrong(const std::string& what) const {
    const std::string_view before = in_.text.substr(0, std::min(in_.at, in_.text.size()));
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("grammar, line {}: {}",
                              1 + std::count(before.begin(), before.end(), '\n'), what));
  }

  // Spaces and comments; line ends too if the rule goes on there.
  void skip(bool lines) {
    while (!in_.done()) {
      const char c = in_.peek();
      if (c == '#') {
        while (!in_.done() && in_.peek() != '\n' && in_.peek() != '\r') ++in_.at;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++in_.at;
      } else {
        return;
      }
    }
  }

  Expected<Known*> name() {
    const size_t start = in_.at;
    while (is_name(in_.peek())) ++in_.at;
    if (in_.at == start) return wrong("a rule's name is expected");
    const std::string text(in_.text.substr(start, in_.at - start));
    const auto [found, added] = rules_.try_emplace(text);
    if (added) found->second = {builder_.add_rule(text), false, start};
    return &found->second;
  }

  Status rule() {
    const size_t start = in_.at;
    AERIE_ASSIGN_OR_RETURN(Known* const known, name());
    skip(false);
    if (!in_.take("::=")) return wrong("\"::=\" is expected after a rule's name");
    if (known->defined) {
      in_.at = start;
      return wrong("the rule is defined twice");
    }
    known->defined = true;
    skip(true);
    AERIE_ASSIGN_OR_RETURN(const Expr body, alternatives(0));
    builder_.define(known->rule, body);
    if (!in_.done() && in_.peek() != '\n' && in_.peek() != '\r') {
      return wrong(fmt::format("unexpected '{}'", in_.peek()));
    }
    skip(true);
    return Status();
  }

  Expected<Expr> alternatives(int depth) {
    std::vector<Expr> branches;
    do {
      skip(true);
      AERIE_ASSIGN_OR_RETURN(const Expr branch, sequence(depth));
      branches.push_back(branch);
    } while (in_.take("|"));
    return builder_.any_of(std::move(branches));
  }

  Expected<Expr> sequence(int depth) {
    std::vector<Expr> items;
    while (true) {
      skip(depth > 0);
      const char c = in_.peek();
      const bool begins = c == '"' || c == '[' || c == '(' || c == '.' || is_name(c);
      if (!begins) break;
      AERIE_ASSIGN_OR_RETURN(Expr item, this->item(depth));
      while (true) {
        AERIE_ASSIGN_OR_RETURN(const bool repeated, repetition(item));
        if (!repeated) break;
      }
      items.push_back(item);
    }
    return builder_.sequence(std::move(items));
  }

  Expected<Expr> item(int depth) {
    if (in_.take("\"")) return literal();
    if (in_.take("[")) return char_class();
    if (in_.take(".")) return builder_.code_points({{0, 0x10FFFF}});
    if (in_.take("(")) {
      if (depth >= kMaxGroups) {
        return Status(StatusCode::kResourceExhausted,
                      fmt::format("grammar: more than {} groups in one another", kMaxGroups));
      }
      AERIE_ASSIGN_OR_RETURN(const Expr body, alternatives(depth + 1));
      if (!in_.take(")")) return wrong("a '(' without its ')'");
      return body;
    }
    AERIE_ASSIGN_OR_RETURN(const Known* const known, name());
    return builder_.call(known->rule);
  }

  Expected<bool> repetition(Expr& item) {
    skip(false);
    int least = 0;
    int most = GrammarBuilder::kUnbounded;
    if (in_.take("*")) {
    } else if (in_.take("+")) {
      least = 1;
    } else if (in_.take("?")) {
      most = 1;
    } else if (in_.take("{")) {
      skip(false);
      if (!in_.take_number(least)) return wrong("a number is expected after '{'");
      most = least;
      skip(false);
      if (in_.take(",")) {
        skip(false);
        most = GrammarBuilder::kUnbounded;
        if (in_.peek() != '}' && !in_.take_number(most)) {
          return wrong("a number or '}' is expected after ','");
        }
        skip(false);
      }
      if (!in_.take("}")) return wrong("a '{' without its '}'");
      if (most != GrammarBuilder::kUnbounded && most < least) return wrong("{m,n} with m > n");
    } else {
      return false;
    }
    item = builder_.repeat(item, least, most);
    return true;
  }

  Expected<Expr> literal() {
    std::vector<Expr> items;
    while (!in_.take("\"")) {
      AERIE_ASSIGN_OR_RETURN(const char32_t c, character("a '\"' without its end"));
      items.push_back(builder_.code_points({{c, c}}));
    }
    return builder_.sequence(std::move(items));
  }

  Expected<Expr> char_class() {
    const bool negated = in_.take("^");
    std::vector<CodePointRange> ranges;
    while (!in_.take("]")) {
      AERIE_ASSIGN_OR_RETURN(const char32_t first, character("a '[' without its ']'"));
      char32_t last = first;
      if (in_.peek() == '-' && in_.peek(1) != ']') {
        ++in_.at;
        AERIE_ASSIGN_OR_RETURN(last, character("a '[' without its ']'"));
        if (last < first) return wrong("a range that runs backwards");
      }
      ranges.push_back({first, last});
    }
    ranges = normalized(std::move(ranges));
    return builder_.code_points(negated ? complement(ranges) : ranges);
  }

  Expected<char32_t> character(const char* at_end) {
    if (in_.done()) return wrong(at_end);
    if (!in_.take("\\")) return take_character(in_);
    const char c = in_.peek();
    ++in_.at;
    char32_t value = 0;
    switch (c) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
        return static_cast<char32_t>(c);
      case 'x':
      case 'u':
      case 'U':
        if (!in_.take_hex(c == 'x' ? 2 : c == 'u' ? 4 : 8, value)) {
          return wrong(fmt::format("\\{} with too few hexadecimal digits", c));
        }
        if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
          return wrong("an escape of what is not a character");
        }
        return value;
      default:
        return wrong(fmt::format("unknown escape \\{}", c));
    }
  }

  TextCursor in_;
  GrammarBuilder& builder_;
  std::map<std::string, Known> rules_;
};

}  // namespace

Expected<Rule> build_gbnf(std::string_view text, GrammarBuilder& builder) {
  return GbnfParser(text, builder).parse();
}

}  // namespace aerie
