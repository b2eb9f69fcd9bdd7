// Regular expressions, in the part of ECMAScript's notation (flag u) that is regular.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/grammar_graph.h"

namespace aerie {

struct RegexNode {
  enum class Kind : uint8_t { kClass, kSequence, kAnyOf, kRepeat };
  Kind kind = Kind::kSequence;
  std::vector<CodePointRange> ranges;  // normalized()
  int least = 0;
  int most = 0;
  std::vector<RegexNode> items;  // one for kRepeat

  static RegexNode of_class(std::vector<CodePointRange> ranges);
  static RegexNode repeat(RegexNode item, int least, int most);
  // Any text.
  static RegexNode anything();
};

struct RegexBranch {
  RegexNode body;
  bool at_start = false;  // ^
  bool at_end = false;    // $
};

// The alternatives of the whole expression, at least one. kInvalidArgument with the position for
// what is not an expression; kUnsupported naming what is not handled: lookaround, references to
// groups, word boundaries, \p, flags, anchors elsewhere than at an alternative's ends.
Expected<std::vector<RegexBranch>> parse_regex(std::string_view text);

GrammarBuilder::Expr build(const RegexNode& regex, GrammarBuilder& builder);

}  // namespace aerie
