// How long the tokens of replies take, and how two groups of replies compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/service.h"

namespace aerie::server {

// Mean times for a token after the first, of replies that say much about that. The mean and the
// squares by Welford's rule ("Note on a method for calculating corrected sums of squares and
// products", Technometrics 4, 1962).
class ReplyTimes {
 public:
  // Of a reply with at least kLeastTokens that came to its end; whether it was one.
  bool add(const ReplyEnd& end);
  void add_seconds(double seconds);

  int64_t count() const { return count_; }
  double mean() const { return mean_; }
  double relative_variance() const;  // of the mean; requires two
  // What the part `share` of the newest kMostKept took at most; 0: there are none.
  double quantile(double share) const;
  // How many of the newest kMostKept took longer.
  int64_t longer_than(double seconds) const;
  int64_t kept() const { return static_cast<int64_t>(newest_.size()); }

  static constexpr int kLeastTokens = 8;
  static constexpr size_t kMostKept = 1024;
  static constexpr double kMostWeight = 4096.0;

 private:
  int64_t count_ = 0;
  double weight_ =
      0.0;  // as many as mean and variance go by: what is long ago weighs less and less
  double mean_ = 0.0;
  double squares_ = 0.0;
  std::vector<double> newest_;  // a ring once it is full
};

// How much faster one group is than another.
struct Speedup {
  double ratio = 0.0;  // 0: one of the groups has too few
  double low = 0.0;
  double high = 0.0;

  bool known() const { return ratio > 0.0; }
};

// The mean of `base` over that of `other`, and the interval of `width` standard errors of the
// logarithm of a ratio of two means, by the delta method. Needs `least` replies in each, and two.
Speedup speedup_of(const ReplyTimes& base, const ReplyTimes& other, double width, int64_t least);

}  // namespace aerie::server
