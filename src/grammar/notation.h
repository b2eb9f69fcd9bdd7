// The notations in which grammars come. A file defines one Notation, which one line of notations.cc
// lists; nothing else knows a notation by name.
#pragma once

#include <string_view>

#include "base/status.h"
#include "grammar/grammar_rules.h"

namespace aerie::grammar {

struct Notation {
  // What stands between a rule's name and its body, by which the notation is told.
  std::string_view defines;
  // Adds the text's rules; the id of the one that an output matches. kInvalidArgument with line and
  // column, naming a rule that is missing or defined twice; kUnsupported naming a construct that
  // cannot be enforced; kResourceExhausted for what is nested or repeated too much. The text has at
  // most kMaxGrammarText bytes.
  Expected<RuleId> (*parse)(std::string_view text, RuleSet& rules);
};

inline constexpr size_t kMaxGrammarText = size_t{1} << 20;

// By what the text's first rule is defined with. The first in the list where nothing tells.
const Notation& notation_of(std::string_view text);

// The text's rules, in its notation. Errors as of Notation::parse().
Expected<RuleId> parse_grammar(std::string_view text, RuleSet& rules);

}  // namespace aerie::grammar
