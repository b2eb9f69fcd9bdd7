// What methods that look up the last tokens have in common: keys, and what a match is worth.
#pragma once

#include <string_view>

#include "base/status.h"
#include "draft/method.h"

namespace aerie {

// vLLM's names of the longest and the shortest n.
inline constexpr std::string_view kLongestKey = "prompt_lookup_max";
inline constexpr std::string_view kShortestKey = "prompt_lookup_min";

// kInvalidArgument unless they are in order.
Status check_lookup(MethodConfig& config);

// How likely a path of `depth` tokens after a match of `m` tokens is right, if it is what always
// followed.
double lookup_trust(int m, int depth);

}  // namespace aerie
