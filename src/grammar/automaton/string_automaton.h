// Sets of texts as deterministic automata over code points: what patterns, formats, lengths and
// names of properties say together about a JSON string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/builtin_rules.h"
#include "grammar/grammar_rules.h"

namespace aerie::grammar {

// Immutable. States that lead nowhere are one state, so that emptiness shows.
class StringAutomaton {
 public:
  enum class Product : uint8_t { kBoth, kFirstOnly };

  // Of a regular expression that parse_regex() added to `rules`. kResourceExhausted, here and
  // below, if there are too many states or they would cost more than is left of the budget.
  static Expected<StringAutomaton> of(ExprId expr, const RuleSet& rules);
  // Of such an expression's text.
  static Expected<StringAutomaton> of_pattern(std::string_view pattern, Budget& budget);
  static StringAutomaton all();
  // Texts of `min` to `max` (or kUnbounded) code points.
  static Expected<StringAutomaton> of_length(int64_t min, int64_t max, Budget& budget);
  static Expected<StringAutomaton> of_texts(const std::vector<std::string>& texts, Budget& budget);

  Expected<StringAutomaton> combined(const StringAutomaton& other, Product product,
                                     Budget& budget) const;

  bool empty() const;
  // `text` is UTF-8.
  bool contains(std::string_view text) const;

  // A JSON string whose content is in the set.
  ExprId json(JsonRules& rules) const;

 private:
  struct State {
    std::vector<uint32_t> next;  // by class
    bool accepts = false;
  };
  class Builder;

  size_t class_of(uint32_t code_point) const;
  // Makes states from which nothing is accepted the state 0... of which there is always one.
  void trim();

  std::vector<uint32_t> class_starts_{0};  // ascending; a class ends where the next begins
  std::vector<State> states_;              // the first is the start
};

}  // namespace aerie::grammar
