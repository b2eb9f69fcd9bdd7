// The target at the nodes of one sequence's tree: logits of the pass through the sequence's sampler
// and its constraint.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/forward_batch.h"
#include "core/token_tree.h"
#include "decode/sequence.h"
#include "verify/verifier.h"

namespace aerie {

// All of it must outlive the view.
class SequenceTarget final : public TargetView {
 public:
  // `logits_at`: the numbers of the root's and the nodes' logits among `outputs`.
  SequenceTarget(Sequence& sequence, const TokenTree& tree, const ForwardOutputs& outputs,
                 std::span<const int32_t> logits_at)
      : sequence_(sequence), tree_(tree), outputs_(outputs), logits_at_(logits_at) {}

  int32_t sample(int node, std::span<const int32_t> path) override {
    return sequence_.sampler.sample(outputs_, row_of(node), context(node, path));
  }
  const Distribution& distribution(int node, std::span<const int32_t> path) override {
    sequence_.sampler.distribution(outputs_, row_of(node), context(node, path),
                                   sequence_.distribution);
    return sequence_.distribution;
  }
  bool ready(int node) override {
    TokenConstraint* constraint = constraint_after(node);
    return constraint == nullptr || constraint->ready();
  }
  // Root is -1, and its row comes first.
  std::span<const float> logits(int node) const { return outputs_.logits_of(row_of(node)); }

 private:
  int row_of(int node) const { return logits_at_[static_cast<size_t>(node + 1)]; }
  SamplingContext context(int node, std::span<const int32_t> path) {
    return {sequence_.tokens, path, constraint_after(node)};
  }
  // Requires that it is ready after the node above.
  TokenConstraint* constraint_after(int node) {
    if (sequence_.constraint == nullptr || node < 0) return sequence_.constraint.get();
    states_.resize(static_cast<size_t>(tree_.size()));
    if (states_[static_cast<size_t>(node)] == nullptr) {
      const TokenTree::Node& own = tree_.nodes[static_cast<size_t>(node)];
      auto state = constraint_after(own.parent)->fork();
      state->advance(own.token);
      states_[static_cast<size_t>(node)] = std::move(state);
    }
    return states_[static_cast<size_t>(node)].get();
  }

  Sequence& sequence_;
  const TokenTree& tree_;
  const ForwardOutputs& outputs_;
  std::span<const int32_t> logits_at_;
  std::vector<std::unique_ptr<TokenConstraint>> states_;  // [node], those that were asked for
};

}  // namespace aerie
