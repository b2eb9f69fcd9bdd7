// What a constraint makes of a draft before the pass.
#pragma once

#include "core/constraint.h"
#include "core/token_tree.h"

namespace aerie {

// Takes out the kDraft nodes that the constraint, in its state at the root, forbids, with all that
// is below them. Proposals that were drawn must not be chosen by their values: of a draft with any
// of these nothing is left if a node is forbidden. Requires tree.is_well_formed().
void prune_forbidden(const TokenConstraint& constraint, TokenTree& tree);

}  // namespace aerie
