// How long rounds take, against what was reckoned, with drafts and without.
#pragma once

#include <algorithm>
#include <cmath>

namespace aerie {

// What passes and drafts cost is known apart from rounds; what a round adds to them (caches that
// drafting has emptied, choosing tokens, passes that drafting has done a part of) shows in these.
// Not thread-safe.
class RoundTimes {
 public:
  // A round took so long, and so much was expected.
  void learn(bool drafted, double seconds, double expected) {
    if (!(seconds > 0) || !(expected > 0)) return;
    Mean& mean = drafted ? drafted_ : plain_;
    // One that was interrupted must not count for many.
    const double surprise = std::clamp(std::log(seconds / expected), -kMost, kMost);
    mean.value += (surprise - mean.value) / std::min(++mean.count, kHorizon);
    since_plain_ = drafted ? since_plain_ + 1 : 0;
  }
  // By how much rounds with drafts are longer than reckoned, where plain ones are just right.
  double factor() const {
    if (drafted_.count < kEnough || plain_.count < kEnough) return 1.0;
    return std::exp(drafted_.value - plain_.value);
  }
  // Whether a round should go without drafts for the sake of comparison.
  bool wants_plain() const {
    if (plain_.count < kEnough) return since_plain_ >= 2;
    return since_plain_ >= kLongest;
  }

 private:
  struct Mean {
    double value = 0.0;
    double count = 0.0;
  };
  static constexpr double kMost = 0.7;
  static constexpr double kHorizon = 24.0;
  static constexpr double kEnough = 3.0;
  static constexpr int kLongest = 200;  // rounds with drafts, one after the other

  Mean drafted_, plain_;
  int since_plain_ = 0;
};

}  // namespace aerie
