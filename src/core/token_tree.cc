#include "core/token_tree.h"

#include <algorithm>
#include <cassert>

namespace aerie {

double Distribution::probability(int32_t id) const {
  const auto it = std::lower_bound(ids.begin(), ids.end(), id);
  if (it == ids.end() || *it != id) return 0.0;
  return probs[static_cast<size_t>(it - ids.begin())];
}

int TokenTree::add(int32_t token, int32_t parent, const Distribution* proposal, float probability) {
  assert(parent < size());
  const int32_t depth = parent < 0 ? 1 : nodes[static_cast<size_t>(parent)].depth + 1;
  Node& node = nodes.emplace_back();
  node.token = token;
  node.parent = parent;
  node.depth = depth;
  node.proposal = proposal;
  node.probability = probability;
  return size() - 1;
}

bool TokenTree::is_chain() const {
  for (int i = 0; i < size(); ++i) {
    if (nodes[static_cast<size_t>(i)].parent != i - 1) return false;
  }
  return true;
}

}  // namespace aerie
