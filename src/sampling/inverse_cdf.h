// Drawing from a listed distribution with one uniform.
#pragma once

#include <cstdint>
#include <span>

#include "core/token_tree.h"

namespace aerie {

// The token at `uniform`, in (0, 1), of the cumulative distribution in the order of ids: always one
// that is listed, whatever the probabilities' sum came to by rounding. Requires one at least.
int32_t inverse_cdf(const Distribution& distribution, double uniform);

// The same of what is left without the ids of `taken` (no id twice), renormalised; -1 if nothing
// is.
int32_t inverse_cdf_without(const Distribution& distribution, std::span<const int32_t> taken,
                            double uniform);

}  // namespace aerie
