#include "server/holdback.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace aerie::server {

void Holdback::Times::add(double seconds) {
  ++count;
  const double before = seconds - mean;
  mean += before / static_cast<double>(count);
  squares += before * (seconds - mean);
}

double Holdback::Times::relative_variance() const {
  const auto n = static_cast<double>(count);
  return squares / (n - 1.0) / n / (mean * mean);
}

bool Holdback::draw() {
  if (share_ <= 0.0) return false;
  const std::lock_guard lock(mutex_);
  return std::uniform_real_distribution<double>(0.0, 1.0)(random_) < share_;
}

void Holdback::on_end(Group group, bool held_back, const ReplyEnd& end) {
  const std::lock_guard lock(mutex_);
  std::set<std::string_view> classes;
  for (const auto& [known, record] : records_) classes.insert(known.traffic_class);
  if (classes.size() >= kMostClasses && !classes.contains(group.traffic_class)) {
    group.traffic_class = kOtherClass;
  }
  Record& record = records_[std::move(group)];
  record.drafted += end.stats.drafted;
  record.accepted += end.stats.accepted;
  const bool says_much = end.outcome == ReplyOutcome::kDone &&
                         end.generated_tokens >= kLeastTokens && end.generation_seconds > 0.0;
  if (!says_much) return;
  (held_back ? record.held_back : record.speculated)
      .add(end.generation_seconds / (end.generated_tokens - 1));
}

std::vector<Holdback::Figures> Holdback::figures() const {
  const std::lock_guard lock(mutex_);
  std::vector<Figures> out;
  for (const auto& [group, record] : records_) {
    Figures& one = out.emplace_back();
    one.group = group;
    one.speculated = record.speculated.count;
    one.held_back = record.held_back.count;
    one.drafted = record.drafted;
    one.accepted = record.accepted;
    if (std::min(one.speculated, one.held_back) < kLeastReplies) continue;
    constexpr double kQuantile = 1.959964;
    const double width = kQuantile * std::sqrt(record.speculated.relative_variance() +
                                               record.held_back.relative_variance());
    one.speedup = record.held_back.mean / record.speculated.mean;
    one.low = one.speedup * std::exp(-width);
    one.high = one.speedup * std::exp(width);
  }
  return out;
}

}  // namespace aerie::server
