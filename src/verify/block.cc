#include <algorithm>
#include <cassert>
#include <span>

#include "verify/residual.h"
#include "verify/rules.h"

namespace aerie {

void BlockRule::weigh(const TokenTree& tree, TargetView& target) {
  const auto nodes = static_cast<size_t>(tree.size());
  path_.clear();
  path_.reserve(nodes);
  weights_.reserve(nodes + 1);
  weights_.assign(1, 1.0);
  chances_.clear();
  chances_.reserve(nodes);
  for (int i = 0; i < tree.size(); ++i) {
    const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    const Distribution& p = target.distribution(i - 1, path_);
    const double weight = weights_.back();
    if (i > 0) {
      const double mass = residual_mass(p, weight, node);
      const double denominator = mass + (1.0 - weight);
      chances_.push_back(denominator > 0 ? mass / denominator : 1.0);
    }
    const double proposed = proposal_probability(node);
    assert(proposed > 0);
    const double next = std::min(weight * p.probability(node.token) / proposed, 1.0);
    // From here on every weight and chance is 0, and behind a token that a constraint forbids there
    // is no distribution to ask for.
    if (!(next > 0)) return;
    weights_.push_back(next);
    path_.push_back(node.token);
  }
  if (!tree.empty()) chances_.push_back(weights_.back());
}

void BlockRule::judge(const TokenTree& tree, TargetView& target, Dice& dice, Verdict& verdict) {
  assert(tree.is_chain());
  weigh(tree, target);
  int length = static_cast<int>(chances_.size());
  while (length > 0 && !dice.accept(length - 1, chances_[static_cast<size_t>(length - 1)])) {
    --length;
  }
  verdict.accepted.clear();
  for (int i = 0; i < length; ++i) verdict.accepted.push_back(i);
  verdict.bonus = length == tree.size();

  const std::span<const int32_t> path(path_.data(), static_cast<size_t>(length));
  const Distribution& p = target.distribution(length - 1, path);
  if (verdict.bonus) {
    verdict.next_token = dice.draw(length - 1, p);
    return;
  }
  residual_distribution(p, weights_[static_cast<size_t>(length)],
                        tree.nodes[static_cast<size_t>(length)], residual_);
  verdict.next_token = dice.draw(length - 1, residual_);
}

}  // namespace aerie
