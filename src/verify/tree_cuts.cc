#include "verify/tree_cuts.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <span>
#include <vector>

namespace aerie {
namespace {

constexpr int32_t kGone = -1;

TokenTree::Node& node_at(TokenTree& tree, int32_t node) {
  return tree.nodes[static_cast<size_t>(node)];
}

// The proposals that the nodes are themselves, if they are.
std::vector<TokenTree::Proposal> proposals_of(const TokenTree& tree) {
  if (!tree.proposals.empty()) return tree.proposals;
  std::vector<TokenTree::Proposal> proposals;
  for (int32_t i = 0; i < tree.size(); ++i) {
    const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    if (node.role != NodeRole::kDraft) continue;
    proposals.push_back({i, node.proposal, node.without_replacement});
  }
  return proposals;
}

// Leaves the nodes for which keeps(node) is true, asked in their order; not those below others.
template <typename Keeps>
void keep_nodes(TokenTree& tree, const Keeps& keeps) {
  std::vector<int32_t> places(static_cast<size_t>(tree.size()), kGone);
  const auto place_of = [&](int32_t node) { return places[static_cast<size_t>(node)]; };
  int32_t kept = 0;
  for (int32_t i = 0; i < tree.size(); ++i) {
    TokenTree::Node node = node_at(tree, i);
    if ((node.parent >= 0 && place_of(node.parent) == kGone) || !keeps(i)) continue;
    if (node.parent >= 0) node.parent = place_of(node.parent);
    places[static_cast<size_t>(i)] = kept;
    node_at(tree, kept++) = node;
  }
  tree.nodes.resize(static_cast<size_t>(kept));
  std::erase_if(tree.proposals, [&](const auto& p) { return place_of(p.node) == kGone; });
  for (TokenTree::Proposal& proposal : tree.proposals) proposal.node = place_of(proposal.node);
}

// Leaves these proposals, some of proposals_of(tree), with their nodes. Requires those above too.
void keep_proposals(TokenTree& tree, std::span<const TokenTree::Proposal> kept) {
  std::vector<bool> named(static_cast<size_t>(tree.size()));
  for (const TokenTree::Proposal& proposal : kept) named[static_cast<size_t>(proposal.node)] = true;
  if (!tree.proposals.empty()) tree.proposals.assign(kept.begin(), kept.end());
  keep_nodes(tree, [&](int32_t node) { return named[static_cast<size_t>(node)]; });
}

// A constraint behind the nodes of a tree; states are made where they are asked for.
class StatesBehind {
 public:
  StatesBehind(const TokenConstraint& at_root, const TokenTree& tree)
      : at_root_(at_root), tree_(tree), states_(static_cast<size_t>(tree.size())) {}

  // Requires that it allows all tokens on the path.
  const TokenConstraint& behind(int32_t node) {
    if (node < 0) return at_root_;
    auto& state = states_[static_cast<size_t>(node)];
    if (state == nullptr) {
      const TokenTree::Node& own = tree_.nodes[static_cast<size_t>(node)];
      state = behind(own.parent).fork();
      state->advance(own.token);
    }
    return *state;
  }

 private:
  const TokenConstraint& at_root_;
  const TokenTree& tree_;
  std::vector<std::unique_ptr<TokenConstraint>> states_;
};

}  // namespace

bool was_drawn(const TokenTree& tree) {
  const auto drawn = [](const auto& node) { return node.proposal != nullptr; };
  return tree.proposals.empty() ? std::ranges::any_of(tree.nodes, drawn)
                                : std::ranges::any_of(tree.proposals, drawn);
}

void prune_forbidden(const TokenConstraint& constraint, TokenTree& tree) {
  const auto count = static_cast<size_t>(tree.size());
  std::vector<bool> forbidden(count);  // or below one that is
  StatesBehind states(constraint, tree);
  const auto below_forbidden = [&](const TokenTree::Node& node) {
    return node.parent >= 0 && forbidden[static_cast<size_t>(node.parent)];
  };
  for (size_t i = 0; i < count; ++i) {
    const TokenTree::Node& node = tree.nodes[i];
    forbidden[i] = below_forbidden(node) || (node.role == NodeRole::kDraft &&
                                             !states.behind(node.parent).allows(node.token));
  }
  if (std::ranges::count(forbidden, true) == 0) return;
  std::vector<bool> drawn(count);
  for (const TokenTree::Proposal& proposal : proposals_of(tree)) {
    if (proposal.proposal != nullptr) drawn[static_cast<size_t>(proposal.node)] = true;
  }
  keep_nodes(tree, [&](int32_t node) {
    const auto at = static_cast<size_t>(node);
    return !forbidden[at] || (drawn[at] && !below_forbidden(tree.nodes[at]));
  });
}

int most_rows(const TokenTree& tree) {
  if (tree.proposals.empty()) return tree.size();
  const auto others = std::ranges::count_if(
      tree.nodes, [](const TokenTree::Node& node) { return node.role != NodeRole::kDraft; });
  return static_cast<int>(tree.proposals.size()) + static_cast<int>(others);
}

void cut_rows(TokenTree& tree, int rows) {
  assert(rows >= 0);
  if (most_rows(tree) <= rows) return;
  const std::vector<TokenTree::Proposal> all = proposals_of(tree);
  const size_t most = std::min(all.size(), static_cast<size_t>(rows));
  keep_proposals(tree, std::span(all).first(most));
}

}  // namespace aerie
