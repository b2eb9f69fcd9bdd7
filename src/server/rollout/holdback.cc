#include "server/rollout/holdback.h"

#include <set>
#include <string_view>

namespace aerie::server {

Speedup Holdback::speedup_of(const Record& record) {
  constexpr double kQuantile = 1.959964;
  return server::speedup_of(record.held_back, record.speculated, kQuantile, kLeastReplies);
}

bool Holdback::is_gated(const Record& record) const {
  if (!gates_) return false;
  const Speedup speedup = speedup_of(record);
  return speedup.known() && speedup.high < 1.0;
}

// With a class that is told apart. With the lock.
Holdback::Group Holdback::known(Group group) const {
  std::set<std::string_view> classes;
  for (const auto& [one, record] : records_) classes.insert(one.traffic_class);
  if (classes.size() >= kMostClasses && !classes.contains(group.traffic_class)) {
    group.traffic_class = kOtherClass;
  }
  return group;
}

bool Holdback::draw(const Group& group) {
  if (share_ <= 0.0) return false;
  const std::lock_guard lock(mutex_);
  const bool is_of_share = std::uniform_real_distribution<double>(0.0, 1.0)(random_) < share_;
  const auto record = records_.find(known(group));
  // Of the others the share goes on, so that it shows when speculation pays again.
  const bool gated = record != records_.end() && is_gated(record->second);
  return gated != is_of_share;
}

void Holdback::on_end(Group group, bool held_back, const ReplyEnd& end) {
  const std::lock_guard lock(mutex_);
  Record& record = records_[known(std::move(group))];
  record.drafted += end.stats.drafted;
  record.accepted += end.stats.accepted;
  (held_back ? record.held_back : record.speculated).add(end);
}

std::vector<Holdback::Figures> Holdback::figures() const {
  const std::lock_guard lock(mutex_);
  std::vector<Figures> out;
  for (const auto& [group, record] : records_) {
    Figures& one = out.emplace_back();
    one.group = group;
    one.speculated = record.speculated.count();
    one.held_back = record.held_back.count();
    one.drafted = record.drafted;
    one.accepted = record.accepted;
    one.speedup = speedup_of(record);
    one.is_gated = is_gated(record);
  }
  return out;
}

}  // namespace aerie::server
