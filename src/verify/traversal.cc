#include <algorithm>
#include <cassert>

#include "verify/residual.h"
#include "verify/rules.h"

namespace aerie {

void TraversalRule::start(TargetView& target) {
  open_ = 0;
  path_.clear();
  path_.reserve(static_cast<size_t>(proposals_.depth()));
  frames_.resize(std::max(frames_.size(), static_cast<size_t>(proposals_.depth()) + 1));
  enter({-1, 0}, 1.0, target);
  // As much as any of them can come to hold.
  for (Frame& frame : frames_) {
    frame.left.ids.reserve(frames_[0].left.ids.capacity());
    frame.left.probs.reserve(frames_[0].left.probs.capacity());
  }
}

void TraversalRule::enter(Attempt at, double weight, TargetView& target) {
  Frame& frame = frames_[open_++];
  frame.at = at;
  frame.weight = weight;
  frame.proposal = proposals_.first(at.node);
  // A leaf is asked for its distribution only if it is accepted.
  frame.unready = false;
  if (frame.proposal < 0) return;
  if (!target.ready(at.node)) {
    frame.proposal = -1;
    frame.unready = true;
    return;
  }
  const Distribution& p = target.distribution(at.node, path_);
  frame.left.ids.reserve(p.ids.capacity());
  frame.left.probs.reserve(p.probs.capacity());
  frame.left.ids.assign(p.ids.begin(), p.ids.end());
  frame.left.probs.assign(p.probs.begin(), p.probs.end());
}

// What is below `frame` once its current proposal has been refused.
void TraversalRule::refuse(Frame& frame) {
  const Proposed q = proposals_.proposed(frame.proposal);
  const double mass = residual_distribution(frame.left, frame.weight, q, frame.left);
  const double denominator = mass + (1.0 - frame.weight);
  frame.weight = denominator > 0 ? mass / denominator : 1.0;
  frame.proposal = proposals_.next(frame.proposal);
}

void TraversalRule::judge(const TokenTree& tree, TargetView& target, Dice& dice, Verdict& verdict) {
  proposals_.read(tree);
  start(target);
  for (;;) {
    Frame& frame = frames_[open_ - 1];
    if (frame.proposal < 0) {
      // A weight of 1 stays 1, so that the root is accepted.
      if (frame.weight >= 1.0 || dice.accept(frame.at.node, frame.at.attempt, frame.weight)) break;
      --open_;
      path_.pop_back();
      refuse(frames_[open_ - 1]);
      continue;
    }
    const Proposed q = proposals_.proposed(frame.proposal);
    assert(q.probability() > 0);
    const Attempt child{proposals_.node(frame.proposal), proposals_.attempt(frame.proposal)};
    const double chance =
        std::min(frame.weight * frame.left.probability(q.token) / q.probability(), 1.0);
    // Nothing below can be accepted then, and behind a token that a constraint forbids there is no
    // distribution to ask for.
    if (!(chance > 0)) {
      refuse(frame);
      continue;
    }
    path_.push_back(q.token);
    enter(child, chance, target);
  }
  conclude(target, dice, verdict);
}

void TraversalRule::conclude(TargetView& target, Dice& dice, Verdict& verdict) const {
  verdict.accepted.clear();
  verdict.accepted.reserve(static_cast<size_t>(proposals_.depth()));
  for (size_t i = 1; i < open_; ++i) verdict.accepted.push_back(frames_[i].at.node);
  const Frame& last = frames_[open_ - 1];
  verdict.bonus = proposals_.first(last.at.node) < 0;
  if (last.unready || (verdict.bonus && !target.ready(last.at.node))) {
    verdict.bonus = false;
    verdict.next_token = Verdict::kNone;
    return;
  }
  verdict.next_token =
      dice.draw(last.at.node, verdict.bonus ? target.distribution(last.at.node, path_) : last.left);
}

}  // namespace aerie
