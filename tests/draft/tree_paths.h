// A tree as a test reads it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/token_tree.h"

namespace aerie::test {

// Of every node the tokens from below the root to it, in the tree's order.
inline std::vector<std::vector<int32_t>> paths_of(const TokenTree& tree) {
  std::vector<std::vector<int32_t>> paths;
  for (const TokenTree::Node& node : tree.nodes) {
    paths.push_back(node.parent < 0 ? std::vector<int32_t>()
                                    : paths[static_cast<size_t>(node.parent)]);
    paths.back().push_back(node.token);
  }
  return paths;
}

}  // namespace aerie::test
