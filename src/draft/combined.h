// Several drafters as one.
#pragma once

#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "draft/speculative_config.h"

namespace aerie {

// With kFirst, each sequence's draft is that of the first drafter that has one. kUnsupported if two
// of them want different taps. Requires at least one drafter.
Expected<std::unique_ptr<Drafter>> combine_drafters(std::vector<std::unique_ptr<Drafter>> drafters,
                                                    Combination combination);

}  // namespace aerie
