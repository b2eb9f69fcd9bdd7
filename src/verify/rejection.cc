#include <algorithm>
#include <cassert>

#include "verify/residual.h"
#include "verify/rules.h"

namespace aerie {

void RejectionRule::judge(const TokenTree& tree, TargetView& target, Dice& dice, Verdict& verdict) {
  proposals_.read(tree);
  verdict.accepted.clear();
  verdict.accepted.reserve(static_cast<size_t>(tree.size()));
  path_.clear();
  path_.reserve(static_cast<size_t>(tree.size()));
  verdict.bonus = false;
  for (int node = -1;;) {
    if (!target.ready(node)) {
      verdict.next_token = Verdict::kNone;
      return;
    }
    const Distribution* left = &target.distribution(node, path_);
    int proposal = proposals_.first(node);
    for (; proposal >= 0; proposal = proposals_.next(proposal)) {
      const Proposed q = proposals_.proposed(proposal);
      assert(q.probability() > 0);
      const double chance = std::min(1.0, left->probability(q.token) / q.probability());
      if (dice.accept(proposals_.node(proposal), proposals_.attempt(proposal), chance)) break;
      residual_distribution(*left, 1.0, q, residual_);
      left = &residual_;
    }
    if (proposal < 0) {
      verdict.next_token = dice.draw(node, *left);
      verdict.bonus = proposals_.first(node) < 0;
      return;
    }
    node = proposals_.node(proposal);
    verdict.accepted.push_back(node);
    path_.push_back(tree.nodes[static_cast<size_t>(node)].token);
  }
}

}  // namespace aerie
