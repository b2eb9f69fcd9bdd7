// Text that goes on until something is said.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "grammar/grammar_rules.h"

namespace aerie::grammar {

// A rule for all texts in which none of `stops` occurs. kInvalidArgument for a stop that is empty
// or no UTF-8, kResourceExhausted for more than kMostStops of them or longer ones than
// kMaxStopBytes.
//
// Where one of them follows, its first occurrence is the end of the text only if it does not
// overlap itself ("</think>" does not, "aa" does).
Expected<RuleId> add_free_text(const std::vector<std::string>& stops, RuleSet& rules);

inline constexpr size_t kMostStops = 64;
inline constexpr size_t kMaxStopBytes = 256;

}  // namespace aerie::grammar
