// Draft trees within a budget: grown best first, cut down to their best nodes, merged (as EAGLE-2,
// OPT-Tree and Sequoia do). What is best goes by TokenTree::Node::probability.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/token_tree.h"

namespace aerie {

struct TreeLimits {
  static constexpr int kNone = 1 << 30;

  int max_nodes = kNone;     // of the whole tree
  int max_depth = kNone;     // 1: the root's children alone
  int max_children = kNone;  // of any node, and of the root
};

// Grows one tree after another, each node the likeliest of those on offer; among equals, the one
// that was offered first. So the nodes' probabilities never rise from one to the next, and without
// max_children (which keeps the likeliest children, whatever might have come below the others) the
// first n of them are the best n there are. Not thread-safe. Allocates only while trees and the
// candidates on offer at one time are more than ever before.
class TreeGrowth {
 public:
  // Makes room for trees of this many nodes and as many candidates on offer at one time.
  void reserve(int nodes, int candidates);

  // Begins with an empty `tree`, which must stay where it is until the next start().
  void start(TokenTree& tree, const TreeLimits& limits);

  // A child that `parent` (a node of the tree, or -1) may get. What is likelier than its parent is
  // taken to be as likely. `tag` is the caller's and comes back from grow().
  void offer(int32_t token, int32_t parent, double probability, int32_t tag = 0);

  struct Grown {
    int32_t node;  // its index in the tree
    double probability;
    int32_t tag;
  };
  // Adds the best candidate to the tree, as a point mass; nothing if none is left or the tree is
  // full.
  std::optional<Grown> grow();

 private:
  struct Candidate {
    double probability;
    int32_t order;  // the how manieth offer
    int32_t token;
    int32_t parent;
    int32_t tag;
  };
  static bool worse(const Candidate& a, const Candidate& b);

  TokenTree* tree_ = nullptr;
  TreeLimits limits_;
  int32_t offers_ = 0;
  std::vector<Candidate> heap_;
  std::vector<int32_t> children_;  // [node + 1]
  std::vector<double> probabilities_;
};

// Whether nodes may be left out by what they are: nothing was drawn, and no row serves others.
bool may_be_cut(const TokenTree& tree);

// Cuts trees down and puts them together. All nodes are point masses (proposal == nullptr) but for
// merge_proposals(). Not thread-safe. Allocates only while trees are larger than ever before.
class TreeEditor {
 public:
  // Makes room for trees of this many nodes, before they are cut down and after they are merged.
  void reserve(int nodes);

  // Leaves those nodes of `tree` that TreeGrowth would have taken had it been offered each node's
  // children in their order, in the order in which it would have taken them.
  void keep_best(TokenTree& tree, const TreeLimits& limits);

  // Adds to `into` the paths of `other` that it lacks: after its own nodes and in their order
  // there. Nodes with the same path and role become one, with the larger probability. Returns how
  // many were added.
  int merge(TokenTree& into, const TokenTree& other);

  // The same with every proposal of both kept, those of `into` first, in their order: for the rules
  // that compare with them, under which nothing may be cut because of its value afterwards.
  // Requires well-formed trees.
  int merge_proposals(TokenTree& into, const TokenTree& other);

 private:
  void list_children(const TokenTree& tree);
  void add_child(int32_t parent, int32_t child);

  TreeGrowth growth_;
  TokenTree kept_;
  // [node + 1], the root first: lists of children in their order; -1 ends them.
  std::vector<int32_t> first_child_, last_child_, next_;
  std::vector<int32_t> same_;  // merge: the node of `into` with the path of other's node
};

}  // namespace aerie
