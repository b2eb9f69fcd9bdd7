// Numbers within bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "grammar/grammar_rules.h"

namespace aerie::grammar {

// Exact decimals, in units of 10^-15.
using Decimal = __int128;
inline constexpr int kDecimalPlaces = 15;

// Of a number as JSON writes it; nothing if it is not a multiple of a unit. What is beyond 10^21
// in size becomes that.
std::optional<Decimal> parse_decimal(std::string_view text);

struct NumberRange {
  std::optional<Decimal> min;  // inclusive
  std::optional<Decimal> max;
  Decimal multiple_of = 0;  // 0: of anything
  bool integer = true;
  bool fraction = false;  // no integers
};

// The numbers of the range that have at most 18 digits, or 15 with those behind the point, so that
// what is read as binary floating point keeps to the bounds. No text at all if there are none.
// kUnsupported if the bounds need more digits than these, or a multiple more than 10,000
// remainders.
Expected<ExprId> number_in_range(const NumberRange& range, RuleSet& rules);

// A multiple of both, 0 standing for anything; what is too large to be written becomes
// kHugeMultiple.
inline constexpr Decimal kHugeMultiple = Decimal{1} << 100;
Decimal common_multiple(Decimal a, Decimal b);

// Whether number_in_range() gives no text, as far as that is known without its limits.
bool is_empty(const NumberRange& range);

}  // namespace aerie::grammar
