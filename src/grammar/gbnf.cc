// llama.cpp's grammar notation.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "grammar/notation.h"
#include "grammar/notation_reader.h"

namespace aerie::grammar {
namespace {

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser : private NotationReader {
 public:
  GbnfParser(std::string_view text, RuleSet& rules) : NotationReader(text), rules_(rules) {}

  Expected<RuleId> parse() {
    skip_space(true);
    while (at_ < text_.size()) AERIE_RETURN_IF_ERROR(parse_rule());
    for (const auto& [name, rule] : names_) {
      if (!rule.defined) {
        at_ = rule.first_use;
        return error(fmt::format("rule '{}' is not defined", name));
      }
    }
    const auto root = names_.find("root");
    if (root == names_.end()) {
      return Status(StatusCode::kInvalidArgument, "the grammar has no rule 'root'");
    }
    return root->second.id;
  }

 private:
  struct Rule {
    RuleId id = 0;
    bool defined = false;
    size_t first_use = 0;
  };

  // Comments go to the end of their line.
  void skip_space(bool newlines) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        if (at_ == text_.size()) return;
      }
      const bool newline = text_[at_] == '\n' || text_[at_] == '\r';
      if (newline ? !newlines : (text_[at_] != ' ' && text_[at_] != '\t')) return;
    }
  }

  Expected<std::string> parse_name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == begin) return error("a rule's name is expected");
    return std::string(text_.substr(begin, at_ - begin));
  }

  Rule& rule_of(const std::string& name, size_t where) {
    const auto [entry, added] = names_.try_emplace(name);
    if (added) entry->second = {rules_.add_rule(name), false, where};
    return entry->second;
  }

  Status parse_rule() {
    const size_t begin = at_;
    AERIE_ASSIGN_OR_RETURN(const std::string name, parse_name());
    skip_space(false);
    if (!take("::=")) return error(fmt::format("'::=' is expected after '{}'", name));
    if (rule_of(name, begin).defined) {
      at_ = begin;
      return error(fmt::format("rule '{}' is defined twice", name));
    }
    rule_of(name, begin).defined = true;
    skip_space(true);
    AERIE_ASSIGN_OR_RETURN(const ExprId body, parse_alternatives(0));
    rules_.set_body(rule_of(name, begin).id, body);
    if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') {
      return error(fmt::format("'{}' is not expected here", text_[at_]));
    }
    skip_space(true);
    return {};
  }

  // Inside of parentheses and behind "|" lines may end.
  Expected<ExprId> parse_alternatives(int nesting) {
    if (nesting > kMaxNesting) {
      return error(fmt::format("more than {} nested groups", kMaxNesting),
                   StatusCode::kResourceExhausted);
    }
    std::vector<ExprId> alternatives;
    do {
      skip_space(true);
      AERIE_ASSIGN_OR_RETURN(const ExprId sequence, parse_sequence(nesting));
      alternatives.push_back(sequence);
    } while (take("|"));
    return rules_.alternatives(std::move(alternatives));
  }

  Expected<ExprId> parse_sequence(int nesting) {
    std::vector<ExprId> parts;
    while (at_ < text_.size()) {
      const size_t before = at_;
      if (nesting == 0 && starts_rule()) break;
      AERIE_ASSIGN_OR_RETURN(const std::optional<ExprId> part, parse_item(nesting));
      if (!part) break;
      AERIE_ASSIGN_OR_RETURN(const ExprId repeated, parse_repeats(*part));
      parts.push_back(repeated);
      skip_space(nesting > 0);
      if (at_ == before) break;
    }
    return rules_.sequence(std::move(parts));
  }

  // An empty alternative at a line's end is followed by the next rule.
  bool starts_rule() const {
    size_t at = at_;
    while (at < text_.size() && is_name(text_[at])) ++at;
    if (at == at_) return false;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    return text_.substr(at).starts_with("::=");
  }

  // Nothing if no item begins here.
  Expected<std::optional<ExprId>> parse_item(int nesting) {
    const size_t begin = at_;
    if (take("\"")) return wrap(parse_literal());
    if (take("[")) return wrap(parse_class());
    if (take(".")) return wrap(rules_.char_class(CodePointSet::all()));
    if (take("(")) {
      AERIE_ASSIGN_OR_RETURN(const ExprId group, parse_alternatives(nesting + 1));
      skip_space(true);
      if (!take(")")) return error("')' is expected");
      return wrap(group);
    }
    if (at_ < text_.size() && is_name(text_[at_])) {
      AERIE_ASSIGN_OR_RETURN(const std::string name, parse_name());
      return wrap(rules_.rule(rule_of(name, begin).id));
    }
    return std::optional<ExprId>();
  }

  static Expected<std::optional<ExprId>> wrap(Expected<ExprId> expr) {
    if (!expr.ok()) return expr.status();
    return std::optional<ExprId>(*expr);
  }

  Expected<ExprId> parse_repeats(ExprId part) {
    for (int count = 0;; ++count) {
      skip_space(false);
      if (count > kMaxNesting) {
        return error("too many repetitions of repetitions", StatusCode::kResourceExhausted);
      }
      if (take("*")) {
        part = rules_.repeat(part, 0, kUnbounded);
      } else if (take("+")) {
        part = rules_.repeat(part, 1, kUnbounded);
      } else if (take("?")) {
        part = rules_.optional(part);
      } else if (take("{")) {
        AERIE_ASSIGN_OR_RETURN(part, parse_counts(part));
      } else {
        return part;
      }
    }
  }

  Expected<ExprId> parse_counts(ExprId part) {
    skip_space(false);
    int min = 0;
    if (!peek(",")) {
      AERIE_ASSIGN_OR_RETURN(min, take_count());
    }
    int max = min;
    skip_space(false);
    if (take(",")) {
      skip_space(false);
      max = kUnbounded;
      if (!peek("}")) {
        AERIE_ASSIGN_OR_RETURN(max, take_count());
      }
      skip_space(false);
    }
    if (!take("}")) return error("'}' is expected");
    if (max != kUnbounded && max < min)
      return error("the repetition's bounds contradict each other");
    return rules_.repeat(part, min, max);
  }

  Expected<uint32_t> parse_char() {
    if (take("\\")) {
      if (at_ == text_.size()) return error("the escape is not complete");
      const char c = text_[at_++];
      if (c == 'x') return take_hex(2);
      if (c == 'u') return take_hex(4);
      if (c == 'U') return take_hex(8);
      if (c == 't') return uint32_t{'\t'};
      if (c == 'r') return uint32_t{'\r'};
      if (c == 'n') return uint32_t{'\n'};
      if (c == '\\' || c == '"' || c == '[' || c == ']' || c == '-' || c == '^') {
        return static_cast<uint32_t>(c);
      }
      --at_;
      return error(fmt::format("the escape '\\{}' is not known", c));
    }
    return take_character();
  }

  Expected<ExprId> parse_literal() {
    std::string bytes;
    while (!take("\"")) {
      if (at_ == text_.size() || peek("\n")) return error("the string has no end");
      AERIE_ASSIGN_OR_RETURN(const uint32_t code_point, parse_char());
      append_utf8(code_point, bytes);
    }
    return rules_.bytes(bytes);
  }

  Expected<ExprId> parse_class() {
    const bool negated = take("^");
    std::vector<CodePointRange> ranges;
    while (!take("]")) {
      if (at_ == text_.size()) return error("the character class has no end");
      AERIE_ASSIGN_OR_RETURN(const uint32_t first, parse_char());
      uint32_t last = first;
      if (peek("-") && !peek("-]")) {
        take("-");
        if (at_ == text_.size()) return error("the character class has no end");
        AERIE_ASSIGN_OR_RETURN(last, parse_char());
        if (last < first) return error("the range of characters runs backwards");
      }
      ranges.push_back({first, last});
    }
    const CodePointSet set(ranges);
    return rules_.char_class(negated ? set.complement() : set);
  }

  RuleSet& rules_;
  std::map<std::string, Rule> names_;
};

Expected<RuleId> parse_gbnf(std::string_view text, RuleSet& rules) {
  return GbnfParser(text, rules).parse();
}

}  // namespace

extern const Notation kGbnfNotation;
constinit const Notation kGbnfNotation = {.defines = "::=", .parse = parse_gbnf};

}  // namespace aerie::grammar
