// The rules that compare with a proposal, on any dice: what the verifiers of this folder run, and
// where tests reach it. Of a tree they see what is proposed (TokenTree::proposals, or else its
// nodes that are kDraft); a node without proposals below it is a leaf to them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/token_tree.h"
#include "verify/dice.h"
#include "verify/proposals.h"
#include "verify/verdict.h"

namespace aerie {

// Leviathan et al. 2211.17192, algorithm 1, and Chen et al. 2302.01318, algorithm 2, on chains; on
// trees the recursion of SpecInfer (Miao et al. 2305.09781, algorithm 2). At each node, beginning
// with the root and r = p, for each proposal x ~ q in turn: accept x with probability min(1, r(x) /
// q(x)) and go on there; else r <- norm((r - q)+). When none is left, draw from r.
//   A point mass is q(x) = 1: accept with r(x), else r without x, renormalised.
//   Independent siblings have one q, those of several drafters each its own.
//   Siblings without replacement have q without the earlier ones, renormalised.
class RejectionRule {
 public:
  // Overwrites `verdict`. Requires that every proposal has a probability above 0.
  void judge(const TokenTree& tree, TargetView& target, Dice& dice, Verdict& verdict);

 private:
  ProposalLists proposals_;
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
  // Overwrites `verdict`. Requires tree.is_chain(), and probabilities above 0.
  void judge(const TokenTree& tree, TargetView& target, Dice& dice, Verdict& verdict);

 private:
  // Fills nodes_, path_, weights_ and chances_ up to the first token that the target cannot emit.
  void weigh(TargetView& target);

  ProposalLists proposals_;
  std::vector<int32_t> nodes_;
  std::vector<int32_t> path_;
  std::vector<double> weights_;  // p_0, p_1, ...
  std::vector<double> chances_;  // h_1, h_2, ...
  static constexpr int kNowhere = -2;
  int unready_ = kNowhere;  // the node at which that ended because the target was not ready
  Distribution residual_;
};

// Traversal verification: Weng et al. 2505.12398, from the leaves to the root, extended to point
// masses, several drafters and nodes that are proposed several times. On a chain it is BlockRule,
// to the bit. Each node v that it comes to has a weight w, 1 at the root:
//   1. r = p(. | v).
//   2. For each proposal x ~ q at v in turn: come to x with weight min(w r(x) / q(x), 1). If x is
//      refused, S = sum_y (w r(y) - q(y))+, r <- norm((w r - q)+), w <- S / (S + 1 - w) (0/0: 1).
//   3. Accept v with probability w: the path to v stands, and r is drawn from. Else v is refused.
//
// Why it is exact: v is accepted, or a node below it, with probability w (over what was drawn below
// v and the dice), and if so the tokens after v are distributed as the target's. By induction from
// the leaves, where that is step 3: a proposal x adds q(x) min(w r(x) / q(x), 1) = min(w r(x),
// q(x)) to the probability of x as the next token, of which w r(x) is wanted; (w r(x) - q(x))+ is
// still owed, S altogether, in the 1 - sum_y min(w r(y), q(y)) = S + 1 - w of cases that are left.
// It holds whatever the later proposals are, if only each is drawn as it says given what was drawn
// before, which is all that siblings without replacement and adaptive shapes need.
//
// Where a node is proposed several times, what is below it serves the first attempt alone, as it
// must, since after a refusal it is no longer distributed as its proposals say: that x was refused
// means w r(x) < q(x), so that r(x) = 0 from then on. The later attempts still count in r and w.
//
// A node after which the target is not ready is a leaf whose next token is drawn in another round:
// of the shape that decides no more than what was drawn above. The same holds for the other rules.
//
// Asks the target for the distributions of most inner nodes, and keeps those of one path.
class TraversalRule {
 public:
  // Overwrites `verdict`. Requires that every proposal has a probability above 0.
  void judge(const TokenTree& tree, TargetView& target, Dice& dice, Verdict& verdict);

 private:
  struct Attempt {
    int32_t node;
    int32_t attempt;
  };
  // A node on the path that is being looked at.
  struct Frame {
    Attempt at{};
    double weight = 1.0;
    int32_t proposal = -1;  // the next one, -1 when there are no more
    bool unready = false;   // the target, which makes it a leaf
    Distribution left;      // r
  };

  void start(TargetView& target);
  void enter(Attempt at, double weight, TargetView& target);
  void refuse(Frame& frame);
  void conclude(TargetView& target, Dice& dice, Verdict& verdict) const;

  ProposalLists proposals_;
  std::vector<Frame> frames_;  // the first open_, the root's first
  size_t open_ = 0;
  std::vector<int32_t> path_;  // one shorter
};

}  // namespace aerie
