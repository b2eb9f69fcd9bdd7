// What is left of the target's distribution when a proposal was refused.
#pragma once

#include <cstdint>

#include "core/token_tree.h"

namespace aerie {

// The probability with which a node's token was proposed: its proposal's, 1 for a point mass.
double proposal_probability(const TokenTree::Node& node);

// Sum over tokens x of (scale * p(x) - q(x))+, q being how `node` was proposed.
double residual_mass(const Distribution& p, double scale, const TokenTree::Node& node);

// norm((scale * p - q)+), q being how `node` was proposed: Leviathan et al. 2211.17192,
// section 2.3, with scale 1. p itself where nothing is left (only rounding can then have led here).
// `out` keeps its memory, which grows to p's capacity.
void residual_distribution(const Distribution& p, double scale, const TokenTree::Node& node,
                           Distribution& out);

}  // namespace aerie
