// What asking a drafter has brought of late, a round in the mean, and what it has taken.
#pragma once

#include <cstdint>

namespace aerie {

// Not thread-safe.
class DraftYield {
 public:
  struct Round {
    double tokens = 0.0;   // that the draft had right, of what was verified of it
    double rows = 0.0;     // nodes that were verified
    double claimed = 0.0;  // tokens that the drafter promised
  };

  // `horizon`: past rounds that count.
  explicit DraftYield(double horizon) : keep_(1.0 - 1.0 / horizon) {}

  void learn(const Round& round) {
    weight_ = keep_ * weight_ + 1.0;
    sum_.tokens = keep_ * sum_.tokens + round.tokens;
    sum_.rows = keep_ * sum_.rows + round.rows;
    sum_.claimed = keep_ * sum_.claimed + round.claimed;
    ++rounds_;
  }
  // As if nothing were known.
  void clear() {
    weight_ = 0.0;
    sum_ = {};
  }
  // Ever.
  int64_t rounds() const { return rounds_; }

  // Goes over from the drafter's word to what was seen.
  Round estimate() const {
    if (weight_ <= 0.0) return {};
    const double claimed = sum_.claimed / weight_;
    return {(sum_.tokens + kPrior * claimed) / (weight_ + kPrior), sum_.rows / weight_, claimed};
  }
  // Goes over from `general`, of more sequences, to what was seen of this one.
  Round estimate(const DraftYield& general) const {
    const Round prior = general.estimate();
    const auto mean = [&](double sum, double before) {
      return (sum + kPrior * before) / (weight_ + kPrior);
    };
    return {mean(sum_.tokens, prior.tokens), mean(sum_.rows, prior.rows),
            mean(sum_.claimed, prior.claimed)};
  }

 private:
  static constexpr double kPrior = 4.0;  // rounds that an opinion counts for

  double keep_;
  double weight_ = 0.0;
  Round sum_;
  int64_t rounds_ = 0;
};

}  // namespace aerie
