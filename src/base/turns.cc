#include "base/turns.h"

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
  // What it had before it went idle counts neither for it nor against it.
  if (!std::exchange(active_, true)) seconds_ = turns_->now_;
  turns_->ended_.wait(lock, [&] { return turns_->running_ == nullptr && turns_->next() == this; });
  turns_->running_ = this;
  turns_->now_ = seconds_;
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

}  // namespace aerie
