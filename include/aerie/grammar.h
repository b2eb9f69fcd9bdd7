// Constraints on the form of an output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace aerie {

enum class GrammarKind : uint8_t {
  kJsonObject,  // any JSON object
  kJsonSchema,  // `text`: a schema of draft 2020-12, 2019-09, 7, 6 or 4
  kGrammar,     // `text`: rules in a notation of docs/structured-output.md, which it is told by
  kRegex,       // `text`: an expression that the whole output matches
  kChoice,      // the output is one of `choices`
};

struct GrammarSpec {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};
  // kJsonSchema: keywords and formats that are not known are refused, as a misspelt one would be;
  // else they say nothing, which is what the standard has them do.
  bool strict = false;
};

// A compiled grammar. Safe to share between threads; masks that were computed once are kept with
// it.
class Grammar;

}  // namespace aerie
