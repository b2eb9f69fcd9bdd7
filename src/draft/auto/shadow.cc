#include "draft/auto/shadow.h"

namespace aerie {

void ShadowDraft::add(const TokenTree& tree, size_t tokens, double seconds) {
  ++stats_.rounds;
  stats_.drafted += tree.size();
  stats_.seconds += seconds;
  if (tree.size() > 0) pending_.push_back({tree, tokens, -1, 0});
}

void ShadowDraft::settle(std::span<const int32_t> tokens) {
  std::erase_if(pending_, [&](Pending& draft) { return advance(draft, tokens); });
}

// Whether nothing of it is open any more.
bool ShadowDraft::advance(Pending& draft, std::span<const int32_t> tokens) {
  while (draft.next < tokens.size()) {
    int found = -1;
    bool goes_on = false;
    for (int i = 0; i < draft.tree.size(); ++i) {
      const TokenTree::Node& node = draft.tree.nodes[static_cast<size_t>(i)];
      if (node.parent != draft.node || node.role != NodeRole::kDraft) continue;
      goes_on = true;
      if (node.token == tokens[draft.next]) found = i;
    }
    if (!goes_on || found < 0) return true;
    draft.node = found;
    ++draft.next;
    ++stats_.accepted;
    const auto depth = static_cast<size_t>(draft.depth++);
    if (stats_.accepted_at.size() <= depth) stats_.accepted_at.resize(depth + 1);
    ++stats_.accepted_at[depth];
  }
  return false;
}

}  // namespace aerie
