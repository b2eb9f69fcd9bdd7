// The tokens that a drafter with a smaller vocabulary than the target's proposes among.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aerie::train {

// The `size` ids that are counted most often, ascending; of equals, and of those that are not
// counted at all, the smaller ids. All ids if there are no more than that.
std::vector<int32_t> most_frequent(std::span<const int64_t> counts, int64_t size);

}  // namespace aerie::train
