// The parts of JSON that schemas and the plain object are made of.
#pragma once

#include <map>
#include <string_view>

#include "grammar/grammar_rules.h"

namespace aerie::grammar {

// Adds rules as they are asked for. The RuleSet must outlive it.
//
// White space may stand behind "{", "[", ",", ":" and before "}", "]": one space, or one newline
// with at most 20 spaces or tabs behind it. Numbers have at most 18 digits before the point, 16
// behind it, and an exponent of at most two digits. Characters of a string may be escaped; a
// surrogate has its other half.
class JsonRules {
 public:
  explicit JsonRules(RuleSet& rules) : rules_(rules) {}

  RuleSet& rules() { return rules_; }
  ExprId space();
  ExprId value();
  ExprId object();
  ExprId array();
  ExprId string();
  ExprId integer();
  ExprId number();
  ExprId boolean();
  ExprId null() { return rules_.bytes("null"); }
  // One character of a string, in any spelling.
  ExprId character();
  // One of these, as itself or, where JSON wants that, escaped.
  ExprId character(const CodePointSet& set);

  // "[" with items behind one another, at least `min` of them; `max` may be kUnbounded.
  ExprId list(ExprId item, int min, int max);

 private:
  template <typename Make>
  ExprId once(RuleId& rule, std::string_view name, const Make& make);
  ExprId hex(std::string_view first, std::string_view second);

  RuleSet& rules_;
  RuleId space_ = -1, value_ = -1, object_ = -1, array_ = -1, string_ = -1, integer_ = -1;
  RuleId number_ = -1, boolean_ = -1, character_ = -1;
  std::map<CodePointSet, RuleId> characters_;
};

}  // namespace aerie::grammar
