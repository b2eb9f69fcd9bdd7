// Several drafters as one.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "draft/speculative_config.h"

namespace aerie {

// What they want together. kUnsupported if two of them want different taps.
Expected<DrafterNeeds> common_needs(std::span<const std::unique_ptr<Drafter>> drafters);

// With kFirst, each sequence's draft is that of the first drafter that has one. With kMerge all
// draft, and their trees are merged by token prefix; of more nodes than a draft may have the
// likeliest stay (draft/tree_growth.h). Under rules that compare with the proposal (DraftNoise::
// kOwn) nodes may not be merged, and kMerge is kFirst.
//
// Errors are those of common_needs(). Requires at least one drafter, and not Combination::kAuto
// (decode/controller.h).
Expected<std::unique_ptr<Drafter>> combine_drafters(std::vector<std::unique_ptr<Drafter>> drafters,
                                                    Combination combination);

}  // namespace aerie
