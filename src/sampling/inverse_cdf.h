// Drawing from a listed distribution with one uniform.
#pragma once

#include <cstdint>

#include "core/token_tree.h"

namespace aerie {

// The token at `uniform`, in (0, 1), of the cumulative distribution in the order of ids: always one
// that is listed, whatever the probabilities' sum came to by rounding. Requires one at least.
int32_t inverse_cdf(const Distribution& distribution, double uniform);

}  // namespace aerie
