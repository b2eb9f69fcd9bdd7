// llama.cpp's grammar notation.
#pragma once

#include <string_view>

#include "base/status.h"
#include "grammar/grammar_rules.h"

namespace aerie::grammar {

// Adds the text's rules; the id of "root". kInvalidArgument with line and column, naming a rule
// that is missing or defined twice; kResourceExhausted for what is nested or repeated too much.
Expected<RuleId> parse_gbnf(std::string_view text, RuleSet& rules);

}  // namespace aerie::grammar
