#include <fmt/format.h>

#include <algorithm>

#include "grammar/notation.h"

// The notations, one line each: the name of what the notation's file defines.
#define AERIE_GRAMMAR_NOTATIONS(NOTATION) \
  NOTATION(kGbnfNotation)                 \
  NOTATION(kLarkNotation)

namespace aerie::grammar {

#define AERIE_DECLARE(notation) extern const Notation notation;
AERIE_GRAMMAR_NOTATIONS(AERIE_DECLARE)
#undef AERIE_DECLARE

namespace {

#define AERIE_ADDRESS(notation) &(notation),
constexpr const Notation* kNotations[] = {AERIE_GRAMMAR_NOTATIONS(AERIE_ADDRESS)};
#undef AERIE_ADDRESS

// What the line defines a rule with, the longest of those that begin at one place; null: it does
// not. Before it there are names alone, in which no notation has these characters.
const Notation* defined_by(std::string_view line) {
  for (size_t at = 0; at < line.size(); ++at) {
    const Notation* found = nullptr;
    for (const Notation* notation : kNotations) {
      const bool here = line.substr(at).starts_with(notation->defines);
      if (!here || (found != nullptr && found->defines.size() > notation->defines.size())) continue;
      found = notation;
    }
    if (found != nullptr) return found;
  }
  return nullptr;
}

// Comments and directives ("%import common.INT") define nothing.
bool may_define(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
  return !line.starts_with('#') && !line.starts_with("//") && !line.starts_with('%');
}

}  // namespace

const Notation& notation_of(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (const Notation* notation = may_define(line) ? defined_by(line) : nullptr) return *notation;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return *kNotations[0];
}

Expected<RuleId> parse_grammar(std::string_view text, RuleSet& rules) {
  if (text.size() > kMaxGrammarText) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("the grammar has {} bytes; at most {} are read", text.size(), kMaxGrammarText));
  }
  return notation_of(text).parse(text, rules);
}

}  // namespace aerie::grammar
