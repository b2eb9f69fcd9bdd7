// A draft: the tokens proposed for one sequence in one round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace aerie {

// A probability distribution over token ids, ids ascending, probabilities positive with sum 1 (to
// rounding). Ids that are not listed have probability 0. Storage is reused by clear().
struct Distribution {
  std::vector<int32_t> ids;
  std::vector<double> probs;

  void clear() {
    ids.clear();
    probs.clear();
  }
  size_t size() const { return ids.size(); }
  // 0 for an id that is not listed. O(log n).
  double probability(int32_t id) const;
};

// Why a node is in the pass.
enum class NodeRole : uint8_t {
  kDraft,   // it is proposed
  kWindow,  // for the sake of those below it: never accepted, no output of it is wanted
  kProbe,   // never accepted; the target's top tokens after it are wanted
};

// Nodes in topological order: a parent comes before its children, siblings in the order in which
// they were proposed; nodes below one that is not kDraft are not kDraft either. The root (the
// newest committed token) is not a node; it is parent -1. A chain is a tree with one child per
// node. Siblings may carry the same token, each with nodes of its own below it.
//
// Above temperature 0 the rules that compare with a proposal rest on this: each token was drawn,
// its path, everything drawn before it and the siblings before it given, from what its proposal
// says; and nothing that was drawn has been left out because of its value. How many tokens are
// drawn, and where, may depend on everything that stays in the tree.
struct TokenTree {
  struct Node {
    int32_t token = 0;
    int32_t parent = -1;  // index of a node, or -1 for the root
    int32_t depth = 1;    // 1 for the root's children
    // The distribution from which the token was really drawn, given its path; nullptr if the token
    // is a deterministic function of the path (a point mass). Owned by the drafter and valid until
    // its next propose().
    const Distribution* proposal = nullptr;
    // Drawn from what *proposal leaves, renormalised, without the tokens of the earlier siblings
    // whose proposal is the same object; which therefore leaves something.
    bool without_replacement = false;
    NodeRole role = NodeRole::kDraft;
    // The drafter's own estimate that the path from the root to this node will be accepted, in
    // (0, 1]; never above its parent's. What budgets, merging and the controller go by; nothing
    // exact depends on it.
    float probability = 1.0f;
  };
  std::vector<Node> nodes;

  // One way in which a node came to be proposed.
  struct Proposal {
    int32_t node = 0;
    const Distribution* proposal = nullptr;  // as in Node
    bool without_replacement = false;        // as in Node, of earlier proposals in this list
  };
  // Where nodes were proposed more than once, by several drafters or by draws that fell on the same
  // token: every proposal of every kDraft node and of no other, those at one parent in the order in
  // which they were drawn, which is that in which they are judged. What the nodes say themselves
  // then counts for nothing. Empty: each node once, as it says, siblings in their order.
  std::vector<Proposal> proposals;

  void clear() {
    nodes.clear();
    proposals.clear();
  }
  bool empty() const { return nodes.empty(); }
  int size() const { return static_cast<int>(nodes.size()); }

  // Appends a node and returns its index. Requires parent < size().
  int add(int32_t token, int32_t parent, const Distribution* proposal = nullptr,
          float probability = 1.0f);
  // Whether the kDraft nodes are one path from the root, each of them proposed once. Requires
  // is_well_formed().
  bool is_chain() const;
  // Whether parents come first, depths and roles fit theirs, and `proposals` is empty or as said
  // there. Takes anything. Says nothing about tokens and distributions.
  bool is_well_formed() const;
};

}  // namespace aerie
