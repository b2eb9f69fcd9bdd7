// A tree's proposals as the rules that compare with them judge them: one after the other at each
// node.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/token_tree.h"

namespace aerie {

// How a token was proposed.
struct Proposed {
  int32_t token = 0;
  const Distribution* distribution = nullptr;  // nullptr: a point mass
  // Drawn without replacement: the tokens that were drawn before, ascending, and what the
  // distribution's other tokens are multiplied with.
  std::span<const int32_t> excluded;
  double scale = 1.0;

  // With which `token` was proposed, in [0, 1].
  double probability() const;
};

// Not thread-safe. Allocates only while trees are larger than ever before.
class ProposalLists {
 public:
  // Requires tree.is_well_formed(). Does not keep `tree`.
  void read(const TokenTree& tree);

  // The first proposal that follows `node` (-1: the root); -1 if there is none, which makes the
  // node a leaf. Nodes that are not kDraft are not there.
  int first(int node) const { return first_[static_cast<size_t>(node + 1)]; }
  // The one to be judged after it at the same node, or -1.
  int next(int proposal) const { return entries_[static_cast<size_t>(proposal)].next; }

  // What is proposed, and which proposal of that node it is, counted from 0.
  int node(int proposal) const { return entries_[static_cast<size_t>(proposal)].node; }
  int attempt(int proposal) const { return entries_[static_cast<size_t>(proposal)].attempt; }

  // The reference to excluded tokens holds until the next call.
  Proposed proposed(int proposal);

  int size() const { return static_cast<int>(entries_.size()); }
  int depth() const { return depth_; }  // of the deepest node that is proposed

 private:
  struct Entry {
    int32_t node;
    int32_t parent;
    int32_t token;
    const Distribution* distribution;
    bool without_replacement;
    int32_t attempt = 0;
    int32_t next = -1;
  };
  void add(const TokenTree& tree, const TokenTree::Proposal& proposal);

  std::vector<Entry> entries_;
  std::vector<int32_t> first_, last_;  // [node + 1] proposals that follow it
  std::vector<int32_t> latest_;        // [node] its latest proposal
  std::vector<int32_t> excluded_;
  int depth_ = 0;
};

}  // namespace aerie
