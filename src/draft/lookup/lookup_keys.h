// What methods that look up the last tokens have in common.
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

}  // namespace aerie
