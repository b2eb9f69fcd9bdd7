// JSON Schema, drafts 2020-12 to 4: see docs/structured-output.md for what of it.
#pragma once

#include <string_view>

#include "base/status.h"
#include "grammar/grammar_rules.h"

namespace aerie::grammar {

// Adds rules for the documents, written as JSON, that are valid; the id of the root's. Errors name
// the keyword and where it is, as a JSON pointer. Strict: what is not known is refused.
Expected<RuleId> parse_schema(std::string_view text, bool strict, RuleSet& rules);

}  // namespace aerie::grammar
