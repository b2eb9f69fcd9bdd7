// The default rule: plain decoding's tokens, whatever was proposed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/token_tree.h"
#include "verify/verifier.h"

namespace aerie {

// The target draws its own token at the root and at each node that it reaches; the walk goes on
// while a child that is kDraft carries that token (the first of several). Any tree, however it was
// proposed; no random numbers but the target's own.
class ExactRule {
 public:
  // Overwrites `verdict`.
  void judge(const TokenTree& tree, TargetView& target, Verdict& verdict);

 private:
  std::vector<int32_t> path_;
};

}  // namespace aerie
