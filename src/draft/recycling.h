// Token recycling (arXiv 2408.08696): each token's likeliest successors, put together to a tree.
#pragma once

#include <memory>

#include "draft/drafter.h"

namespace aerie {

struct RecyclingOptions {
  int vocab = 0;        // ids below are drafted and learnt from; >= 1
  int num_tokens = 16;  // nodes of a draft; 1 to 1024
  int successors = 8;   // kept for each token; 1 to 8
};

// A tree of point-mass nodes of one fixed shape: each node is the successor of some rank of its
// parent's token, so that the tree is of ranks, and the shape is grown best first from how often a
// successor of each rank is right. Successors that a token does not have yet are left out, with
// what would come below.
//
// The table has for each token what the target last thought likeliest to follow it, at any verified
// row, refused ones included, likeliest first. Tokens of prompts, whose rows nobody ranks, have
// what followed them, the latest first. All sequences share the table, and it is empty at first.
//
// A round costs a look at each node, and `successors` entries for each row and new token, whatever
// the length of the text, and the ranking of logits in the round. Memory: 4 bytes for each of vocab
// * successors, taken here.
Expected<std::unique_ptr<Drafter>> make_recycling_drafter(const RecyclingOptions& options);

}  // namespace aerie
