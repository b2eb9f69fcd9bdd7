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

  // An output of parts, which are of any kind.
  kText,          // `text` as it is
  kMarker,        // the control token of that name; where the vocabulary has none, its text
  kFreeText,      // any text in which none of `choices` occurs; no control tokens
  kSequence,      // `parts`, one behind the other
  kAlternatives,  // one of `parts`
  kRepeat,        // `parts` one behind the other, as often as the model likes, also never
};

struct GrammarSpec {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};
  // kJsonSchema: keywords and formats that are not known are refused, as a misspelt one would be;
  // else they say nothing, which is what the standard has them do.
  bool strict = false;
  std::vector<GrammarSpec> parts = {};  // at most 16 levels of them in one another
};

// A compiled grammar. Safe to share between threads; masks that were computed once are kept with
// it.
class Grammar;

}  // namespace aerie
