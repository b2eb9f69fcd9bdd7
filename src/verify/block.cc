#include <algorithm>
#include <cassert>
#include <span>

#include "verify/residual.h"
#include "verify/rules.h"

namespace aerie {

void BlockRule::weigh(TargetView& target) {
  const auto nodes = static_cast<size_t>(proposals_.size());
  nodes_.clear();
  nodes_.reserve(nodes);
  path_.clear();
  path_.reserve(nodes);
  weights_.reserve(nodes + 1);
  weights_.assign(1, 1.0);
  chances_.clear();
  chances_.reserve(nodes);
  int node = -1;
  unready_ = kNowhere;
  for (int i = proposals_.first(-1); i >= 0; i = proposals_.first(node)) {
    // What was drawn below it is not looked at.
    if (!target.ready(node)) {
      unready_ = node;
      break;
    }
    const Proposed q = proposals_.proposed(i);
    const Distribution& p = target.distribution(node, path_);
    const double weight = weights_.back();
    if (node >= 0) {
      const double mass = residual_mass(p, weight, q);
      const double denominator = mass + (1.0 - weight);
      chances_.push_back(denominator > 0 ? mass / denominator : 1.0);
    }
    assert(q.probability() > 0);
    const double next = std::min(weight * p.probability(q.token) / q.probability(), 1.0);
    // From here on every weight and chance is 0, and behind a token that a constraint forbids there
    // is no distribution to ask for.
    if (!(next > 0)) return;
    node = proposals_.node(i);
    nodes_.push_back(node);
    weights_.push_back(next);
    path_.push_back(q.token);
  }
  if (node >= 0) chances_.push_back(weights_.back());
}

void BlockRule::judge(const TokenTree& tree, TargetView& target, Dice& dice, Verdict& verdict) {
  assert(tree.is_chain());
  proposals_.read(tree);
  weigh(target);
  size_t length = chances_.size();
  while (length > 0 && !dice.accept(nodes_[length - 1], 0, chances_[length - 1])) --length;
  verdict.accepted.reserve(static_cast<size_t>(tree.size()));
  verdict.accepted.assign(nodes_.begin(), nodes_.begin() + static_cast<long>(length));
  const int node = length == 0 ? -1 : nodes_[length - 1];
  const int refused = proposals_.first(node);
  verdict.bonus = refused < 0;
  if (node == unready_ || !target.ready(node)) {
    verdict.bonus = false;
    verdict.next_token = Verdict::kNone;
    return;
  }
  const Distribution& p = target.distribution(node, std::span<const int32_t>(path_).first(length));
  if (verdict.bonus) {
    verdict.next_token = dice.draw(node, p);
    return;
  }
  residual_distribution(p, weights_[length], proposals_.proposed(refused), residual_);
  verdict.next_token = dice.draw(node, residual_);
}

}  // namespace aerie
