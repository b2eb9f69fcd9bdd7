// What is left of the target's distribution when a proposal was refused.
#pragma once

#include "core/token_tree.h"
#include "verify/proposals.h"

namespace aerie {

// Sum over tokens x of (scale * p(x) - q(x))+.
double residual_mass(const Distribution& p, double scale, const Proposed& q);

// norm((scale * p - q)+): Leviathan et al. 2211.17192, section 2.3, with scale 1. p itself where
// nothing is left (only rounding can then have led here). Returns the mass before it was
// normalised. `out` may be p; it keeps its memory, which grows to p's capacity.
double residual_distribution(const Distribution& p, double scale, const Proposed& q,
                             Distribution& out);

}  // namespace aerie
