// What a draw depends on besides logits and settings.
#pragma once

#include <cstdint>
#include <span>

#include "core/constraint.h"

namespace aerie {

// What comes before the token to be drawn: the committed tokens (prompt and output, the root
// included), then the tokens on the path from the root's child to the node. The token's absolute
// position is committed.size() + path.size().
struct SamplingContext {
  std::span<const int32_t> committed;
  std::span<const int32_t> path;
  const TokenConstraint* constraint = nullptr;  // in the state after the path; null: no constraint

  uint64_t position() const { return committed.size() + path.size(); }
};

}  // namespace aerie
