// The rules that compare with a proposal, on any dice: what the verifiers of this folder run, and
// where tests reach it. Both take chains only.
#pragma once

#include <cstdint>
#include <vector>

#include "core/token_tree.h"
#include "verify/dice.h"
#include "verify/verifier.h"

namespace aerie {

// Leviathan et al. 2211.17192, algorithm 1; Chen et al. 2302.01318, algorithm 2: accept x with
// probability min(1, p(x) / q(x)), at the first refusal draw from norm((p - q)+). A point mass is
// the proposal q(x) = 1: accept with p(x), else p without x, renormalised.
class RejectionRule {
 public:
  // Overwrites `verdict`. Requires tree.is_chain().
  void judge(const TokenTree& tree, TargetView& target, Dice& dice, Verdict& verdict);

 private:
  std::vector<int32_t> path_;
  Distribution residual_;
};

// Sun et al. 2403.10444, algorithm 2. With P and Q the target's and the proposal's distributions
// after X^i = x_1 .. x_i and gamma drafted tokens:
//   p_0 = 1, p_i = min(p_{i-1} P(x_i) / Q(x_i), 1),
//   h_i = S_i / (S_i + 1 - p_i), S_i = sum_x (p_i P(x | X^i) - Q(x | X^i))+ for i < gamma (0/0: 1),
//   h_gamma = p_gamma.
// Of independent trials with probability h_i the largest i that succeeds is how many tokens stand
// (0 if none does); then a draw from norm((p_i P - Q)+), or from P after all of them.
class BlockRule {
 public:
  // Overwrites `verdict`. Requires tree.is_chain().
  void judge(const TokenTree& tree, TargetView& target, Dice& dice, Verdict& verdict);

 private:
  // Fills weights_ and chances_ up to the first token that the target cannot emit.
  void weigh(const TokenTree& tree, TargetView& target);

  std::vector<int32_t> path_;
  std::vector<double> weights_;  // p_0, p_1, ...
  std::vector<double> chances_;  // h_1, h_2, ...
  Distribution residual_;
};

}  // namespace aerie
