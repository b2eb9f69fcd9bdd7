#include <algorithm>
#include <cassert>

#include "verify/residual.h"
#include "verify/rules.h"

namespace aerie {

void RejectionRule::judge(const TokenTree& tree, TargetView& target, Dice& dice, Verdict& verdict) {
  assert(tree.is_chain());
  verdict.accepted.clear();
  path_.clear();
  path_.reserve(static_cast<size_t>(tree.size()));
  for (int i = 0; i < tree.size(); ++i) {
    const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    const Distribution& p = target.distribution(i - 1, path_);
    const double proposed = proposal_probability(node);
    assert(proposed > 0);
    if (!dice.accept(i, std::min(1.0, p.probability(node.token) / proposed))) {
      residual_distribution(p, 1.0, node, residual_);
      verdict.next_token = dice.draw(i - 1, residual_);
      verdict.bonus = false;
      return;
    }
    verdict.accepted.push_back(i);
    path_.push_back(node.token);
  }
  verdict.next_token = dice.draw(tree.size() - 1, target.distribution(tree.size() - 1, path_));
  verdict.bonus = true;
}

}  // namespace aerie
