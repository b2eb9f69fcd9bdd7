// How often a drafter is right when it says so: the estimates that it puts on its nodes against
// what came true.
#pragma once

#include <array>
#include <cstdint>

#include "core/token_tree.h"

namespace aerie {

// How often something came true of late.
class FadingShare {
 public:
  static constexpr double kPrior = 6.0;  // outcomes that a prior opinion counts for

  // Goes over from `prior`, which counts for so many outcomes, to what was seen as that becomes
  // more.
  double estimate(double prior, double weight = kPrior) const {
    return (stood_ + weight * prior) / (judged_ + weight);
  }
  // `keep`: the part of the past that goes on counting.
  void fade(double keep) {
    judged_ *= keep;
    stood_ *= keep;
  }
  void learn(bool stood, double keep) {
    fade(keep);
    judged_ += 1.0;
    stood_ += stood ? 1.0 : 0.0;
  }

 private:
  double judged_ = 0.0, stood_ = 0.0;
};

// Nodes are told apart by what the drafter says of them (given that their parent stands), in steps,
// and by whether they are children of the root: much fails with the first token that would have
// stood all along had it not. Counts of the past fade. Not thread-safe.
class Calibration {
 public:
  // Of one node, remembered from estimate() to learn().
  struct Claim {
    uint8_t cell = 0;
    float said = 0.0f;  // the drafter's own, given the parent
  };

  // `horizon`: past outcomes of a cell that count; larger is steadier and slower.
  explicit Calibration(double horizon);

  static Claim claim(const TokenTree& tree, int node);

  // The chance that the node stands if its parent does. Where little is known it goes by `general`
  // (counts of more sequences of the tenant; may be null), and without that by what the drafter
  // says.
  double estimate(Claim claim, const Calibration* general) const;

  // The node's parent stood, and so did the node, or not.
  void learn(Claim claim, bool stood);

 private:
  static constexpr int kSteps = 9;

  double keep_;  // of a cell's counts, with each outcome
  std::array<FadingShare, size_t{2}* kSteps> cells_ = {};
};

}  // namespace aerie
