#include "verify/proposals.h"

#include <algorithm>

namespace aerie {

double Proposed::probability() const {
  if (distribution == nullptr) return 1.0;
  if (std::binary_search(excluded.begin(), excluded.end(), token)) return 0.0;
  return std::min(1.0, scale * distribution->probability(token));
}

void ProposalLists::read(const TokenTree& tree) {
  const auto nodes = static_cast<size_t>(tree.size());
  const size_t most = std::max(nodes, tree.proposals.size());
  entries_.clear();
  entries_.reserve(most);
  excluded_.reserve(most);
  first_.assign(nodes + 1, -1);
  last_.assign(nodes + 1, -1);
  latest_.assign(nodes, -1);
  depth_ = 0;
  for (const TokenTree::Proposal& proposal : tree.proposals) add(tree, proposal);
  if (!tree.proposals.empty()) return;
  for (int32_t i = 0; i < tree.size(); ++i) {
    const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    if (node.role == NodeRole::kDraft) add(tree, {i, node.proposal, node.without_replacement});
  }
}

void ProposalLists::add(const TokenTree& tree, const TokenTree::Proposal& proposal) {
  const auto index = static_cast<int32_t>(entries_.size());
  const TokenTree::Node& node = tree.nodes[static_cast<size_t>(proposal.node)];
  Entry& entry = entries_.emplace_back(Entry{proposal.node, node.parent, node.token,
                                             proposal.proposal, proposal.without_replacement});
  int32_t& latest = latest_[static_cast<size_t>(proposal.node)];
  if (latest >= 0) entry.attempt = entries_[static_cast<size_t>(latest)].attempt + 1;
  latest = index;
  const auto place = static_cast<size_t>(node.parent + 1);
  (last_[place] < 0 ? first_[place] : entries_[static_cast<size_t>(last_[place])].next) = index;
  last_[place] = index;
  depth_ = std::max(depth_, static_cast<int>(node.depth));
}

Proposed ProposalLists::proposed(int proposal) {
  const Entry& entry = entries_[static_cast<size_t>(proposal)];
  excluded_.clear();
  if (entry.distribution == nullptr || !entry.without_replacement) {
    return {entry.token, entry.distribution, excluded_, 1.0};
  }
  for (int i = first(entry.parent); i != proposal; i = next(i)) {
    const Entry& earlier = entries_[static_cast<size_t>(i)];
    if (earlier.distribution == entry.distribution) excluded_.push_back(earlier.token);
  }
  std::ranges::sort(excluded_);
  excluded_.erase(std::unique(excluded_.begin(), excluded_.end()), excluded_.end());
  double left = 1.0;
  for (const int32_t token : excluded_) left -= entry.distribution->probability(token);
  // Rounding may leave less than there is, if nearly everything is gone.
  left = std::max(left, entry.distribution->probability(entry.token));
  return {entry.token, entry.distribution, excluded_, left > 0 ? 1.0 / left : 0.0};
}

}  // namespace aerie
