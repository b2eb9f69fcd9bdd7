#include "base/turns.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace aerie {

Turns::Member::Member(std::shared_ptr<Turns> turns) : turns_(std::move(turns)) {
  const std::lock_guard lock(turns_->mutex_);
  turns_->members_.push_back(this);
}

Turns::Member::~Member() {
  {
    const std::lock_guard lock(turns_->mutex_);
    std::erase(turns_->members_, this);
    if (turns_->running_ == this) turns_->running_ = nullptr;
  }
  turns_->ended_.notify_all();
}

void Turns::Member::begin() {
  std::unique_lock lock(turns_->mutex_);
  if (!std::exchange(active_, true)) seconds_ = std::max(seconds_, turns_->least_but(*this));
  turns_->ended_.wait(lock, [&] { return turns_->running_ == nullptr && turns_->next() == this; });
  turns_->running_ = this;
  began_ = steady_now();
}

void Turns::Member::end(bool goes_on) {
  {
    const std::lock_guard lock(turns_->mutex_);
    seconds_ += seconds_since(began_);
    active_ = goes_on;
    turns_->running_ = nullptr;
  }
  turns_->ended_.notify_all();
}

const Turns::Member* Turns::next() const {
  const Member* best = nullptr;
  for (const Member* member : members_) {
    if (!member->active_) continue;
    if (best == nullptr || member->seconds_ < best->seconds_) best = member;
  }
  return best;
}

// Of the others that have something to do; 0 if none has.
double Turns::least_but(const Member& one) const {
  double seconds = std::numeric_limits<double>::max();
  bool found = false;
  for (const Member* member : members_) {
    if (!member->active_ || member == &one) continue;
    seconds = std::min(seconds, member->seconds_);
    found = true;
  }
  return found ? seconds : 0.0;
}

}  // namespace aerie
