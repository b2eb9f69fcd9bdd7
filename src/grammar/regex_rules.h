// Regular expressions: a subset that ECMAScript and PCRE read alike, over code points.
#pragma once

#include <string_view>

#include "base/status.h"
#include "grammar/grammar_rules.h"

namespace aerie::grammar {

enum class RegexMatch : uint8_t {
  kWhole,   // the whole text matches; ^ and $ at the ends change nothing
  kSearch,  // some part of the text matches; ^ and $ at the ends tie it to them
  kPart,    // what matches is a part of a text; refused is what Python reads otherwise: ^, $, {,n}
};

struct RegexFlags {
  bool ignore_case = false;      // of ASCII's letters
  bool dot_takes_lines = false;  // "." is any character, line ends too
};

// With the other case of ASCII's letters.
CodePointSet in_any_case(const CodePointSet& set);

// An expression for the texts that match. kInvalidArgument with the offset of what is malformed,
// kUnsupported naming a construct that is not regular or not known, kResourceExhausted for what is
// nested or repeated too much.
Expected<ExprId> parse_regex(std::string_view text, RegexMatch match, RuleSet& rules,
                             RegexFlags flags = {});

}  // namespace aerie::grammar
