#include "decode/constrained_draft.h"

#include <memory>
#include <vector>

#include "draft/tree/tree_growth.h"

namespace aerie {

void prune_forbidden(const TokenConstraint& constraint, TokenTree& tree) {
  // States after nodes, made where a child asks.
  std::vector<std::unique_ptr<TokenConstraint>> states(static_cast<size_t>(tree.size()));
  const auto state_after = [&](auto&& self, int32_t node) -> const TokenConstraint& {
    if (node < 0) return constraint;
    auto& state = states[static_cast<size_t>(node)];
    if (state == nullptr) {
      const TokenTree::Node& own = tree.nodes[static_cast<size_t>(node)];
      state = self(self, own.parent).fork();
      state->advance(own.token);
    }
    return *state;
  };
  std::vector<int32_t> place(static_cast<size_t>(tree.size()), -1);  // -1: taken out
  int32_t kept = 0;
  for (int32_t i = 0; i < tree.size(); ++i) {
    const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    const bool below_nothing = node.parent >= 0 && place[static_cast<size_t>(node.parent)] < 0;
    const bool forbidden = !below_nothing && node.role == NodeRole::kDraft &&
                           !state_after(state_after, node.parent).allows(node.token);
    if (!below_nothing && !forbidden) place[static_cast<size_t>(i)] = kept++;
  }
  if (kept == tree.size()) return;
  if (!may_be_cut(tree)) {
    tree.clear();
    return;
  }
  for (int32_t i = 0; i < tree.size(); ++i) {
    const int32_t to = place[static_cast<size_t>(i)];
    if (to < 0) continue;
    TokenTree::Node node = tree.nodes[static_cast<size_t>(i)];
    if (node.parent >= 0) node.parent = place[static_cast<size_t>(node.parent)];
    tree.nodes[static_cast<size_t>(to)] = node;
  }
  tree.nodes.resize(static_cast<size_t>(kept));
}

}  // namespace aerie
