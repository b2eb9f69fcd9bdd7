// Several drafters as one.
#pragma once

#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "draft/speculative_config.h"

namespace aerie {

// With kFirst, each sequence's draft is that of the first drafter that has one. With kMerge all
// draft, and their trees are merged by token prefix; of more nodes than a draft may have the
// likeliest stay (draft/tree_growth.h). Under rules that compare with the proposal (DraftNoise::
// kOwn) nodes may not be merged, and kMerge is kFirst.
//
// kUnsupported if two of them want different taps. Requires at least one drafter.
Expected<std::unique_ptr<Drafter>> combine_drafters(std::vector<std::unique_ptr<Drafter>> drafters,
                                                    Combination combination);

}  // namespace aerie
