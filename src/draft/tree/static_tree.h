// Draft trees of one fixed shape: which ranks are tried where, settled before anything is drafted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aerie {

// A shape by child ranks: rank 0 is a node's first choice, rank 1 its second. Nodes are in
// topological order, the likeliest first, so that the first n nodes are a good shape of n nodes.
// Immutable.
class StaticTree {
 public:
  struct Node {
    int32_t parent = -1;  // index of a node, or -1 for the root
    int32_t rank = 0;
    int32_t depth = 1;         // 1 for the root's children
    float probability = 1.0f;  // that the path to it is right, as the ranks have it
  };

  StaticTree() = default;

  // The likeliest `nodes` nodes of the tree where a child of rank r is right with
  // rank_probability[r]; no node has more children than that, none lies below max_depth.
  static StaticTree grown(int nodes, std::span<const double> rank_probability, int max_depth);

  // Of paths from the root such as "021": rank 0, of its children rank 2, of that one's rank 1.
  // Requires every path's beginnings to be there as well.
  static StaticTree of_paths(std::span<const std::string> paths,
                             std::span<const double> rank_probability);

  const std::vector<Node>& nodes() const { return nodes_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  // The children of a node, or of the root (-1), by ascending rank.
  std::span<const int32_t> children(int32_t node) const;
  int widest() const { return widest_; }     // the most nodes of one depth
  int most_ranks() const { return ranks_; }  // one more than the largest rank
  int deepest() const { return deepest_; }

 private:
  void index_children();

  std::vector<Node> nodes_;
  std::vector<int32_t> children_;  // side by side
  std::vector<int32_t> first_;     // [node + 1], and the end: where a node's children begin
  int widest_ = 0, ranks_ = 0, deepest_ = 0;
};

// How often a language model's second, third, ... choice is right for each time that its first is:
// what orders a shape's nodes where nothing better is known.
std::span<const double> usual_rank_probability();

// The published shapes by name: "eagle" (EAGLE 2401.15077, 25 nodes) and "medusa" (Medusa
// 2401.10774, 63 nodes). Null: there is none of that name.
const StaticTree* find_static_tree(std::string_view name);
std::span<const std::string_view> static_tree_names();

}  // namespace aerie
