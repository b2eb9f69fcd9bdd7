#include "verify/residual.h"

#include <algorithm>

namespace aerie {
namespace {

// Calls fn(id, scale * p(id) - q(id)) for each token of p, whose ids and those of q ascend.
template <typename Fn>
void for_each_difference(const Distribution& p, double scale, const TokenTree::Node& node,
                         const Fn& fn) {
  const Distribution* q = node.proposal;
  size_t j = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    double proposed = 0;
    if (q == nullptr) {
      proposed = p.ids[i] == node.token ? 1.0 : 0.0;
    } else {
      while (j < q->size() && q->ids[j] < p.ids[i]) ++j;
      if (j < q->size() && q->ids[j] == p.ids[i]) proposed = q->probs[j];
    }
    fn(p.ids[i], scale * p.probs[i] - proposed);
  }
}

}  // namespace

double proposal_probability(const TokenTree::Node& node) {
  return node.proposal == nullptr ? 1.0 : node.proposal->probability(node.token);
}

double residual_mass(const Distribution& p, double scale, const TokenTree::Node& node) {
  double mass = 0;
  for_each_difference(p, scale, node,
                      [&](int32_t, double difference) { mass += std::max(difference, 0.0); });
  return mass;
}

void residual_distribution(const Distribution& p, double scale, const TokenTree::Node& node,
                           Distribution& out) {
  out.clear();
  out.ids.reserve(p.ids.capacity());
  out.probs.reserve(p.probs.capacity());
  double mass = 0;
  for_each_difference(p, scale, node, [&](int32_t id, double difference) {
    if (!(difference > 0)) return;
    out.ids.push_back(id);
    out.probs.push_back(difference);
    mass += difference;
  });
  if (out.ids.empty()) {
    out.ids.assign(p.ids.begin(), p.ids.end());
    out.probs.assign(p.probs.begin(), p.probs.end());
    return;
  }
  for (double& probability : out.probs) probability /= mass;
}

}  // namespace aerie
