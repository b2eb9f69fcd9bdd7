// What may be left out of a draft before the pass, for rules that compare with a proposal as for
// the others. Whether a token that was drawn is judged never hangs on which token it is.
#pragma once

#include "core/constraint.h"
#include "core/token_tree.h"

namespace aerie {

// All of them require tree.is_well_formed(), and leave it so.

// Whether any of its tokens was drawn. If not, nodes may be left out for any reason.
bool was_drawn(const TokenTree& tree);

// Takes out what the constraint, in its state at the root, lets no rule accept: all that is below a
// kDraft node that it forbids, and the node itself unless it was drawn. A drawn one stays, to be
// refused in its place: without its refusal the tokens that come instead would be too rare.
void prune_forbidden(const TokenConstraint& constraint, TokenTree& tree);

// The most rows that a tree like this can take, whatever was drawn: one for each proposal and for
// each node that is not kDraft.
int most_rows(const TokenTree& tree);

// Leaves most_rows() <= rows: first all nodes that are not kDraft go, then the proposals that came
// last, with nodes that none is left of. Requires rows >= 0.
void cut_rows(TokenTree& tree, int rows);

}  // namespace aerie
