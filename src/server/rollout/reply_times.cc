#include "server/rollout/reply_times.h"

#include <algorithm>
#include <cmath>

namespace aerie::server {

bool ReplyTimes::add(const ReplyEnd& end) {
  const bool says_much = end.outcome == ReplyOutcome::kDone &&
                         end.generated_tokens >= kLeastTokens && end.generation_seconds > 0.0;
  if (says_much) add_seconds(end.generation_seconds / (end.generated_tokens - 1));
  return says_much;
}

void ReplyTimes::add_seconds(double seconds) {
  if (newest_.size() < kMostKept) {
    newest_.push_back(seconds);
  } else {
    newest_[static_cast<size_t>(count_) % kMostKept] = seconds;
  }
  ++count_;
  if (weight_ >= kMostWeight) {
    weight_ /= 2.0;
    squares_ /= 2.0;
  }
  weight_ += 1.0;
  const double before = seconds - mean_;
  mean_ += before / weight_;
  squares_ += before * (seconds - mean_);
}

double ReplyTimes::relative_variance() const {
  return squares_ / (weight_ - 1.0) / weight_ / (mean_ * mean_);
}

double ReplyTimes::quantile(double share) const {
  if (newest_.empty()) return 0.0;
  std::vector<double> sorted = newest_;
  const auto place = static_cast<size_t>(share * static_cast<double>(sorted.size() - 1));
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<ptrdiff_t>(place));
  return sorted[place];
}

int64_t ReplyTimes::longer_than(double seconds) const {
  return std::ranges::count_if(newest_, [&](double one) { return one > seconds; });
}

Speedup speedup_of(const ReplyTimes& base, const ReplyTimes& other, double width, int64_t least) {
  if (std::min(base.count(), other.count()) < std::max<int64_t>(2, least)) return {};
  const double error = width * std::sqrt(base.relative_variance() + other.relative_variance());
  const double ratio = base.mean() / other.mean();
  return {ratio, ratio * std::exp(-error), ratio * std::exp(error)};
}

}  // namespace aerie::server
