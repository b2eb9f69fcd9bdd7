// What a rule asks of the target, and what it finds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/token_tree.h"

namespace aerie {

// The target as a verifier sees it. `node` is an index into the tree or -1 for the root, `path` the
// tokens from the root's child to the node (empty for the root).
class TargetView {
 public:
  virtual ~TargetView() = default;

  // The target's own token after `node`, from the request's target noise.
  virtual int32_t sample(int node, std::span<const int32_t> path) = 0;
  // The distribution of the token after `node`, all sampling settings applied. The reference holds
  // until the next call.
  virtual const Distribution& distribution(int node, std::span<const int32_t> path) = 0;
  // Whether both can be asked after `node`, now that they could be after the nodes above it. It may
  // become so at any time; what it says must not hang on what was drawn below the node.
  virtual bool ready(int /*node*/) { return true; }
};

struct Verdict {
  std::vector<int32_t> accepted;  // node indices from the root's child downwards
  // The correction or the bonus token that follows them; kNone: the target is not ready there, and
  // is asked in the next round.
  int32_t next_token = 0;
  bool bonus = false;  // whether it follows a leaf: nothing was proposed there

  static constexpr int32_t kNone = -1;

  // Tokens that the round emits.
  int emitted() const { return static_cast<int>(accepted.size()) + (next_token == kNone ? 0 : 1); }
};

}  // namespace aerie
