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
  int32_t end = -1;
  size_t drafts = 0;
  for (int32_t i = 0; i < size(); ++i) {
    const Node& node = nodes[static_cast<size_t>(i)];
    if (node.role != NodeRole::kDraft) continue;
    if (node.parent != end) return false;
    end = i;
    ++drafts;
  }
  return proposals.empty() || proposals.size() == drafts;
}

bool TokenTree::is_well_formed() const {
  for (int32_t i = 0; i < size(); ++i) {
    const Node& node = nodes[static_cast<size_t>(i)];
    if (node.parent < -1 || node.parent >= i) return false;
    const Node* parent = node.parent < 0 ? nullptr : &nodes[static_cast<size_t>(node.parent)];
    if (node.depth != (parent == nullptr ? 1 : parent->depth + 1)) return false;
    const bool below_draft = parent == nullptr || parent->role == NodeRole::kDraft;
    if (node.role == NodeRole::kDraft && !below_draft) return false;
  }
  if (proposals.empty()) return true;
  for (const Proposal& proposal : proposals) {
    if (proposal.node < 0 || proposal.node >= size()) return false;
    if (nodes[static_cast<size_t>(proposal.node)].role != NodeRole::kDraft) return false;
  }
  for (int32_t i = 0; i < size(); ++i) {
    if (nodes[static_cast<size_t>(i)].role != NodeRole::kDraft) continue;
    const auto names = [&](const Proposal& proposal) { return proposal.node == i; };
    if (std::ranges::none_of(proposals, names)) return false;
  }
  return true;
}

}  // namespace aerie
