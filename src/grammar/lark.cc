// The notation of Lark (the Python package), which llguidance and vLLM take too: what it says about
// which texts match. What it says about the tree of a match changes nothing here.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "grammar/notation.h"
#include "grammar/notation_reader.h"
#include "grammar/regex_rules.h"

namespace aerie::grammar {
namespace {

// Of all regular expressions of a grammar.
constexpr size_t kMaxRegexText = size_t{1} << 16;

struct CommonTerminal {
  std::string_view name;
  std::string_view regex;
};

// What "%import common.NAME" brings.
constexpr CommonTerminal kCommon[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", R"([0-9]+\.[0-9]*|\.[0-9]+)"},
    {"FLOAT", R"([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"SIGNED_FLOAT", R"([+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?))"},
    {"NUMBER", R"(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"SIGNED_NUMBER", R"([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"ESCAPED_STRING", R"("([^"\\\n]|\\[^\n])*")"},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z_0-9]*"},
    {"WS_INLINE", R"([ \t]+)"},
    {"WS", R"([ \t\f\r\n]+)"},
    {"CR", R"(\r)"},
    {"LF", R"(\n)"},
    {"NEWLINE", R"((\r?\n)+)"},
    {"SH_COMMENT", R"(#[^\n]*)"},
    {"CPP_COMMENT", R"(//[^\n]*)"},
    {"C_COMMENT", R"(/\*([^*]|\*+[^*/])*\*+/)"},
    {"SQL_COMMENT", R"(--[^\n]*)"},
};

bool is_small(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_capital(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// What each kind of name stands for. A rule is made of rules and terminals, a terminal of
// characters; what is ignored may stand before any terminal of a rule.
enum class Kind : uint8_t { kRule, kTerminal };

class LarkParser : private NotationReader {
 public:
  LarkParser(std::string_view text, RuleSet& rules) : NotationReader(text), rules_(rules) {}

  Expected<RuleId> parse() {
    if (text_.find("%ignore") != std::string_view::npos) ignored_ = rules_.add_rule("%ignore");
    skip_space(true);
    while (!at_end()) {
      AERIE_RETURN_IF_ERROR(take("%") ? parse_directive() : parse_definition());
      skip_space(false);
      if (!at_end() && !peek("\n")) return unexpected();
      skip_space(true);
    }
    for (const auto& [name, entry] : names_) {
      if (!entry.defined) {
        at_ = entry.first_use;
        return error(fmt::format("'{}' is not defined", name));
      }
    }
    if (ignored_) {
      const ExprId one = rules_.alternatives(std::move(ignored_ways_));
      rules_.set_body(*ignored_, rules_.repeat(one, 0, kUnbounded));
    }
    const auto start = names_.find("start");
    if (start != names_.end()) return start->second.id;
    if (!first_rule_) return Status(StatusCode::kInvalidArgument, "the grammar has no rule");
    return *first_rule_;
  }

 private:
  struct Name {
    RuleId id = 0;
    bool defined = false;
    size_t first_use = 0;
  };

  Status unexpected() const {
    std::string_view rest = text_.substr(at_);
    uint32_t code_point = 0;
    const std::string_view all = rest;
    if (!take_code_point(rest, code_point)) return error("the text is not valid UTF-8");
    return error(fmt::format("'{}' is not expected here", all.substr(0, all.size() - rest.size())));
  }
  Status unsupported(std::string_view what) const {
    return error(fmt::format("{} is not supported", what), StatusCode::kUnsupported);
  }

  // Comments go to the end of their line; a backslash at its end continues a line.
  void skip_space(bool newlines) {
    while (!at_end()) {
      if (peek("#") || peek("//")) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (!take(" ") && !take("\t") && !take("\r") && !take("\\\n") && !take("\\\r\n") &&
                 !(newlines && take("\n"))) {
        return;
      }
    }
  }

  Expected<std::string> parse_name(Kind& kind) {
    const size_t begin = at_;
    size_t letters = begin;
    while (letters < text_.size() && text_[letters] == '_') ++letters;
    const char first = letters < text_.size() ? text_[letters] : '\0';
    if (!is_small(first) && !is_capital(first)) return error("a name is expected");
    kind = is_small(first) ? Kind::kRule : Kind::kTerminal;
    bool mixed = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (!is_small(c) && !is_capital(c) && !is_digit(c) && c != '_') break;
      mixed = mixed || (kind == Kind::kRule ? is_capital(c) : is_small(c));
    }
    const std::string name(text_.substr(begin, at_ - begin));
    if (mixed) {
      at_ = begin;
      return error(
          fmt::format("'{}' is neither a rule (small letters) nor a terminal (capitals)", name));
    }
    return name;
  }

  Name& entry_of(const std::string& name, size_t where) {
    const auto [entry, added] = names_.try_emplace(name);
    if (added) entry->second = {rules_.add_rule(name), false, where};
    return entry->second;
  }

  // The rule of a name that is defined at `begin`.
  Expected<RuleId> define(const std::string& name, size_t begin) {
    Name& entry = entry_of(name, begin);
    if (entry.defined) {
      at_ = begin;
      return error(fmt::format("'{}' is defined twice", name));
    }
    entry.defined = true;
    return entry.id;
  }

  Status parse_definition() {
    while (take("!") || take("?")) {
    }
    const size_t begin = at_;
    AERIE_ASSIGN_OR_RETURN(const std::string name, parse_name(kind_));
    if (peek("{")) return unsupported("a template");
    if (peek("[")) return unsupported("an attribute of a rule");
    if (take(".")) {  // a priority, which decides between trees
      take("-");
      AERIE_RETURN_IF_ERROR(take_count().status());
    }
    skip_space(false);
    if (!take(":")) return error(fmt::format("':' is expected after '{}'", name));
    AERIE_ASSIGN_OR_RETURN(const RuleId rule, define(name, begin));
    if (kind_ == Kind::kRule && !first_rule_) first_rule_ = rule;
    AERIE_ASSIGN_OR_RETURN(const ExprId body, parse_alternatives(0));
    rules_.set_body(rule, without_left_recursion(rule, body));
    return {};
  }

  // a: b | a c is b c*, which is as Lark's users write lists and sums.
  ExprId without_left_recursion(RuleId rule, ExprId body) {
    const auto is_rule = [&](ExprId id) {
      const Expr& expr = rules_.expr(id);
      return expr.kind == Expr::Kind::kRule && expr.target == rule;
    };
    std::vector<ExprId> ways = {body};
    if (rules_.expr(body).kind == Expr::Kind::kAlternatives) ways = rules_.expr(body).children;
    std::vector<ExprId> first, further;
    for (const ExprId way : ways) {
      const Expr& expr = rules_.expr(way);
      if (is_rule(way)) continue;  // itself and nothing else: no other text
      if (expr.kind != Expr::Kind::kSequence || expr.children.empty() ||
          !is_rule(expr.children[0])) {
        first.push_back(way);
        continue;
      }
      std::vector<ExprId> rest(expr.children.begin() + 1, expr.children.end());
      further.push_back(rules_.sequence(std::move(rest)));
    }
    if (first.size() == ways.size()) return body;
    const ExprId begin = rules_.alternatives(std::move(first));
    if (further.empty()) return begin;
    const ExprId more = rules_.repeat(rules_.alternatives(std::move(further)), 0, kUnbounded);
    return rules_.sequence({begin, more});
  }

  Status parse_directive() {
    const size_t begin = at_ - 1;
    size_t end = at_;
    while (end < text_.size() && (is_small(text_[end]) || text_[end] == '_')) ++end;
    const std::string_view word = text_.substr(begin, end - begin);
    at_ = end;
    skip_space(false);
    if (word == "%import") return parse_import();
    if (word == "%llguidance" && take("{}")) return {};  // its mark, without an option
    if (word != "%ignore") {
      at_ = begin;
      return unsupported(word == "%" ? "this directive" : word);
    }
    kind_ = Kind::kTerminal;
    AERIE_ASSIGN_OR_RETURN(const ExprId way, parse_alternatives(0));
    ignored_ways_.push_back(way);
    return {};
  }

  // common.NAME, common.NAME -> ALIAS, common (NAME, NAME)
  Status parse_import() {
    if (!take("common")) return unsupported("%import of anything but 'common'");
    skip_space(false);
    if (take(".")) return import_one(true);
    if (!take("(")) return error("'.' or '(' is expected after 'common'");
    do {
      skip_space(true);
      AERIE_RETURN_IF_ERROR(import_one(false));
      skip_space(true);
    } while (take(","));
    return take(")") ? Status() : error("')' is expected");
  }

  Status import_one(bool may_rename) {
    size_t begin = at_;
    Kind kind = Kind::kTerminal;
    AERIE_ASSIGN_OR_RETURN(std::string name, parse_name(kind));
    const auto* found = std::ranges::find(kCommon, name, &CommonTerminal::name);
    if (found == std::end(kCommon)) {
      at_ = begin;
      return unsupported(fmt::format("%import of common.{}", name));
    }
    skip_space(false);
    if (may_rename && take("->")) {
      skip_space(false);
      begin = at_;
      AERIE_ASSIGN_OR_RETURN(name, parse_name(kind));
      if (kind == Kind::kRule) {
        at_ = begin;
        return error("a terminal's name is written in capitals");
      }
    }
    AERIE_ASSIGN_OR_RETURN(const RuleId rule, define(name, begin));
    AERIE_ASSIGN_OR_RETURN(const ExprId body, parse_regex(found->regex, RegexMatch::kPart, rules_));
    rules_.set_body(rule, body);
    return {};
  }

  // Within brackets lines may end anywhere; outside of them, before "|".
  bool take_bar(int nesting) {
    skip_space(nesting > 0);
    if (take("|")) return true;
    const size_t before = at_;
    skip_space(true);
    if (nesting == 0 && take("|")) return true;
    at_ = before;
    return false;
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
      if (kind_ == Kind::kRule && take("->")) {  // what the tree calls it
        skip_space(false);
        Kind alias = Kind::kRule;
        AERIE_RETURN_IF_ERROR(parse_name(alias).status());
      }
    } while (take_bar(nesting));
    return rules_.alternatives(std::move(alternatives));
  }

  Expected<ExprId> parse_sequence(int nesting) {
    std::vector<ExprId> parts;
    for (;;) {
      skip_space(nesting > 0);
      if (at_end() || peek("\n") || peek("|") || peek(")") || peek("]") || peek("->")) break;
      AERIE_ASSIGN_OR_RETURN(const ExprId item, parse_item(nesting));
      AERIE_ASSIGN_OR_RETURN(const ExprId repeated, parse_repeat(item));
      parts.push_back(repeated);
    }
    return rules_.sequence(std::move(parts));
  }

  Expected<ExprId> parse_item(int nesting) {
    if (peek("(") || peek("[")) return parse_group(nesting);
    if (peek("\"")) return terminal(parse_strings());
    if (peek("/")) return terminal(parse_slashes());
    const char c = text_[at_];
    if (is_small(c) || is_capital(c) || c == '_') return parse_use();
    // Of llguidance alone.
    if (c == '%') return unsupported("a directive within a rule");
    if (c == '<') return unsupported("a special token");
    if (c == '@') return unsupported("a reference to another grammar");
    if (c == '&' || c == '~') return unsupported(fmt::format("the operator '{}'", c));
    if (c == '\'') return error("texts stand in double quotes");
    return unexpected();
  }

  Expected<ExprId> parse_group(int nesting) {
    const bool optional = take("[");
    if (!optional) take("(");
    AERIE_ASSIGN_OR_RETURN(const ExprId group, parse_alternatives(nesting + 1));
    if (!take(optional ? "]" : ")")) {
      return at_end() || peek(")") || peek("]")
                 ? error(fmt::format("'{}' is expected", optional ? ']' : ')'))
                 : unexpected();
    }
    return optional ? rules_.optional(group) : group;
  }

  Expected<ExprId> parse_use() {
    const size_t begin = at_;
    Kind kind = Kind::kRule;
    AERIE_ASSIGN_OR_RETURN(const std::string name, parse_name(kind));
    if (peek("{") && !peek_counts()) return unsupported("a template");
    const ExprId use = rules_.rule(entry_of(name, begin).id);
    if (kind == Kind::kTerminal) return terminal(use);
    if (kind_ == Kind::kTerminal) {
      at_ = begin;
      return error(fmt::format("the rule '{}' cannot be a part of a terminal", name));
    }
    return use;
  }

  // As a rule has it, or another terminal.
  Expected<ExprId> terminal(Expected<ExprId> expr) {
    if (!expr.ok() || kind_ == Kind::kTerminal || !ignored_) return expr;
    return rules_.sequence({rules_.rule(*ignored_), *expr});
  }

  bool peek_counts() const {
    return at_ + 1 < text_.size() && (is_digit(text_[at_ + 1]) || text_[at_ + 1] == ',');
  }

  // One operator at most: what follows it is no item.
  Expected<ExprId> parse_repeat(ExprId item) {
    skip_space(false);
    if (take("?")) return rules_.optional(item);
    if (take("*")) return rules_.repeat(item, 0, kUnbounded);
    if (take("+")) return rules_.repeat(item, 1, kUnbounded);
    const bool braces = peek("{") && peek_counts();
    if (!braces && !peek("~")) return item;
    ++at_;
    return parse_counts(item, braces ? "," : "..", braces);
  }

  // "~ 2", "~ 2..4"; of llguidance "{2}", "{2,4}", "{2,}", "{,4}".
  Expected<ExprId> parse_counts(ExprId item, std::string_view separator, bool braces) {
    skip_space(false);
    int min = 0;
    if (!braces || !peek(separator)) {
      AERIE_ASSIGN_OR_RETURN(min, take_count());
    }
    int max = min;
    skip_space(false);
    if (take(separator)) {
      skip_space(false);
      max = kUnbounded;
      if (!braces || !peek("}")) {
        AERIE_ASSIGN_OR_RETURN(max, take_count());
      }
    }
    skip_space(false);
    if (braces && !take("}")) return error("'}' is expected");
    if (max != kUnbounded && max < min) {
      return error("the repetition's bounds contradict each other");
    }
    return rules_.repeat(item, min, max);
  }

  // A text, or "a".."z".
  Expected<ExprId> parse_strings() {
    const size_t begin = at_;
    AERIE_ASSIGN_OR_RETURN(const std::vector<uint32_t> first, parse_string());
    if (take("i")) return text_of(first, true);
    const size_t end = at_;
    skip_space(false);
    if (!take("..")) {
      at_ = end;
      return text_of(first, false);
    }
    skip_space(false);
    if (!peek("\"")) return error("the range's last character is expected");
    AERIE_ASSIGN_OR_RETURN(const std::vector<uint32_t> last, parse_string());
    if (first.size() == 1 && last.size() == 1 && first[0] <= last[0]) {
      return rules_.char_class(CodePointSet({{first[0], last[0]}}));
    }
    at_ = begin;
    return error(first.size() == 1 && last.size() == 1 ? "the range of characters runs backwards"
                                                       : "a range has one character at each end");
  }

  Expected<std::vector<uint32_t>> parse_string() {
    const size_t begin = at_;
    take("\"");
    std::vector<uint32_t> text;
    while (!take("\"")) {
      if (at_end() || peek("\n")) return error("the text has no end");
      AERIE_ASSIGN_OR_RETURN(const uint32_t code_point, parse_character());
      text.push_back(code_point);
    }
    if (text.empty()) {
      at_ = begin;
      return error("a text of no characters: leave it out");
    }
    return text;
  }

  Expected<uint32_t> parse_character() {
    if (!take("\\")) return take_character();
    if (at_end()) return error("the escape is not complete");
    const char c = text_[at_++];
    constexpr std::string_view kNames = "ntrf\\\"/";
    constexpr std::string_view kCharacters = "\n\t\r\f\\\"/";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      return static_cast<uint32_t>(kCharacters[i]);
    }
    if (c == 'x') return take_hex(2);
    if (c == 'u') return take_hex(4);
    if (c == 'U') return take_hex(8);
    --at_;
    return error("the escape is not known; a backslash is written '\\\\'");
  }

  ExprId text_of(const std::vector<uint32_t>& text, bool any_case) {
    std::vector<ExprId> parts;
    std::string bytes;
    const auto flush = [&] {
      if (!bytes.empty()) parts.push_back(rules_.bytes(bytes));
      bytes.clear();
    };
    for (const uint32_t code_point : text) {
      const CodePointSet both = in_any_case(CodePointSet({{code_point, code_point}}));
      if (!any_case || both.ranges().size() == 1) {
        append_utf8(code_point, bytes);
      } else {
        flush();
        parts.push_back(rules_.char_class(both));
      }
    }
    flush();
    return rules_.sequence(std::move(parts));
  }

  // A regular expression.
  Expected<ExprId> parse_slashes() {
    const size_t begin = at_++;
    while (!peek("/")) {
      take("\\");
      if (at_end() || peek("\n")) {
        at_ = begin;
        return error("the regular expression has no end");
      }
      ++at_;
    }
    const std::string_view regex = text_.substr(begin + 1, at_ - begin - 1);
    RegexFlags flags;
    for (take("/"); !at_end() && is_small(text_[at_]); ++at_) {
      const char c = text_[at_];
      flags.ignore_case |= c == 'i';
      flags.dot_takes_lines |= c == 's';
      // "m" is about ^ and $, and "u" is how texts are read anyway.
      if (c != 'i' && c != 's' && c != 'm' && c != 'u') {
        return unsupported(fmt::format("the flag '{}'", c));
      }
    }
    const size_t end = at_;
    at_ = begin;
    regex_text_ += regex.size();
    if (regex_text_ > kMaxRegexText) {
      return error(fmt::format("regular expressions of more than {} bytes", kMaxRegexText),
                   StatusCode::kResourceExhausted);
    }
    const auto expr = parse_regex(regex, RegexMatch::kPart, rules_, flags);
    if (!expr.ok()) return error(expr.status().message(), expr.status().code());
    at_ = end;
    return expr;
  }

  RuleSet& rules_;
  Kind kind_ = Kind::kRule;  // what is being defined
  std::optional<RuleId> first_rule_, ignored_;
  std::vector<ExprId> ignored_ways_;
  size_t regex_text_ = 0;
  std::map<std::string, Name> names_;
};

Expected<RuleId> parse_lark(std::string_view text, RuleSet& rules) {
  return LarkParser(text, rules).parse();
}

}  // namespace

extern const Notation kLarkNotation;
constinit const Notation kLarkNotation = {.defines = ":", .parse = parse_lark};

}  // namespace aerie::grammar
