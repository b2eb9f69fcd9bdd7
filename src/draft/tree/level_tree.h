// Draft trees that a model grows level by level: one pass of the model for all nodes of a level (as
// EAGLE-2, 2406.16858, does). What runs the passes and makes children of their outputs is the
// drafter's; what is run and what is proposed is decided here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/token_tree.h"
#include "draft/tree/static_tree.h"

namespace aerie {

struct LevelLimits {
  int max_nodes = 1;             // of the tree that is proposed
  int max_depth = 1;             // 1: the root's children alone
  int top_k = 1;                 // the most children of a node
  int width = 0;                 // the most nodes of a frontier; 0: top_k
  double top_p = 1.0;            // a node gets no child beyond those that cover this probability
  double min_probability = 0.0;  // a path below it is not followed
  double least_path = 0.0;       // nodes on one below it stay without children
  // The nodes on the paths to the best `width` nodes of the last level, and no others (beam
  // search).
  bool beams = false;
  // Not null: this shape's first max_nodes nodes down to max_depth instead of the likeliest ones,
  // whatever the settings above say. Must stay where it is until the next start().
  const StaticTree* shape = nullptr;
};

// Grows one tree after another. Not thread-safe. Allocates only while trees are larger than ever
// before.
//
//   tree.start(limits);
//   for (; !tree.frontier().empty(); tree.advance()) {
//     for (node : tree.frontier()) tree.expand(node, children that the model gives it);
//   }
//   tree.finish(proposal);
class LevelTree {
 public:
  struct Node {
    int32_t token = 0;
    int32_t parent = -1;  // index of a node, or -1 for the root
    int32_t depth = 1;
    double probability = 1.0;  // of the path to it, never above its parent's
    int32_t place = -1;        // in the shape
    int32_t first_child = -1;  // its children lie side by side; -1: it was not expanded
    int32_t child_count = 0;
  };
  struct Child {
    int32_t token = 0;
    double probability = 1.0;  // that it is right if its parent is
  };

  // The most nodes of a tree within such limits, those included that are not proposed.
  static size_t most_nodes(const LevelLimits& limits);
  // Makes room for trees within such limits.
  void reserve(const LevelLimits& limits);

  // Begins a tree with the root as its frontier; an empty one if the limits leave no node.
  void start(const LevelLimits& limits);

  // The nodes that are to be run next, in the order in which they came to be; -1 is the root.
  // Empty once no further node could come into the tree: they are at max_depth, or the worst of the
  // best max_nodes so far is likelier than all that is left to be run.
  std::span<const int32_t> frontier() const { return frontier_; }

  // How many children expand() can use for a node of the frontier.
  int wanted(int32_t node) const;
  // Gives a node of the frontier, once, its children, best first. Those beyond the limits are left
  // out; a shape takes those of its ranks.
  void expand(int32_t node, std::span<const Child> children);
  // The next frontier, once the old one's nodes have been expanded (a node without is a leaf).
  void advance();

  // All nodes so far, a parent before its children.
  std::span<const Node> nodes() const { return nodes_; }
  // The children of a node or of the root (-1): [first, first + count) of nodes().
  std::span<const Node> children(int32_t node) const;
  // The child of a node or of the root that carries `token`; -1: none does.
  int32_t find_child(int32_t node, int32_t token) const;

  // Appends the best max_nodes nodes to the empty `tree` as point masses: the likeliest first,
  // among equals the one that came first, so that its beginning is the best tree of any smaller
  // size. With a shape: all nodes, in the order in which they came to be.
  void finish(TokenTree& tree);

 private:
  bool better(int32_t a, int32_t b) const;
  size_t width() const;
  void keep_widest();
  void keep_beams();
  bool add(int32_t parent, const Child& child, int32_t place);
  void find_entrance();

  LevelLimits limits_;
  std::vector<Node> nodes_;
  Node root_;
  std::vector<int32_t> frontier_;
  size_t level_begin_ = 0;        // nodes from here on are the newest level's
  double entrance_ = 0.0;         // what is not likelier cannot come into the tree
  std::vector<double> best_;      // scratch
  std::vector<int32_t> order_;    // scratch
  std::vector<int32_t> in_tree_;  // scratch: [node] its index in the proposal
};

}  // namespace aerie
