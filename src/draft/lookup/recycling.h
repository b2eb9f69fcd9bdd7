// Token recycling (arXiv 2408.08696): each token's likeliest successors, put together to a tree.
#pragma once

#include <memory>

#include "draft/drafter.h"

namespace aerie {

struct RecyclingOptions {
  int vocab = 0;        // ids below are drafted and learnt from; >= 1
  int num_tokens = 16;  // nodes of a draft; 1 to 1024
  int successors = 8;   // kept for each token; 1 to 8
  // Whether the target's own ranking refreshes the table: 0: committed tokens alone do; n >= 1:
  // also what it thinks likeliest after the root, after accepted nodes and after the first n - 1
  // others.
  int refresh = 3;
};

// A tree of point-mass nodes of one fixed shape: each node is the successor of some rank of its
// parent's token, so that the tree is of ranks, and the shape is grown best first from how often a
// successor of each rank is right. Successors that a token does not have yet are left out, with
// what would come below.
//
// The table has for each token what followed it, the latest first, or, where a row of it was ranked
// since, what the target then thought likeliest to follow it, likeliest first. All sequences of a
// tenant share a table, which is empty at first.
//
// A round costs a look at each node, and `successors` entries for each row and new token, whatever
// the length of the text, and the ranking of logits in the round. Memory: for each tenant 4 bytes
// for each of vocab, and 4 to 8 * successors for each token that was seen; of all tenants together
// 64 MiB, or one full table if that is more (draft/tenant_drafter.h).
Expected<std::unique_ptr<Drafter>> make_recycling_drafter(const RecyclingOptions& options);

}  // namespace aerie
