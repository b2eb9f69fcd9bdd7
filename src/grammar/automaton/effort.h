// What one question to an automaton may cost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

namespace aerie::grammar {

// Counted in steps of about 10 ns. Once ended it stays so, but for begin_afresh(). Not thread-safe.
class Effort {
 public:
  enum class End : uint8_t {
    kNone,
    kSteps,    // are used up
    kFull,     // no memory is left for states
    kStopped,  // nobody wants it any more
    kBusy,     // another thread is at it, and this one does not wait
  };
  // Asked now and then, by the thread that works.
  using IsStopped = std::function<bool()>;

  // `waits`: for other threads that look for the same.
  explicit Effort(uint64_t steps, bool waits = true, IsStopped is_stopped = nullptr)
      : left_(steps), waits_(waits), is_stopped_(std::move(is_stopped)) {}

  // Whether there was enough left.
  bool spend(uint64_t steps = 1) {
    if (steps < slice_) {
      slice_ -= steps;
      return true;
    }
    return spend_more(steps);
  }
  void end(End why) {
    if (end_ == End::kNone) end_ = why;
    left_ += std::exchange(slice_, 0);
  }
  End end() const { return end_; }
  uint64_t left() const { return left_ + slice_; }
  bool waits() const { return waits_; }

  // What is left is for another table.
  void begin_afresh() {
    if (end_ == End::kFull) end_ = End::kNone;
  }

 private:
  static constexpr uint64_t kSlice = 1 << 14;

  bool spend_more(uint64_t steps) {
    if (end_ != End::kNone) return false;
    left_ += std::exchange(slice_, 0);
    if (is_stopped_ && is_stopped_()) end_ = End::kStopped;
    if (steps > left_) {
      left_ = 0;
      end_ = End::kSteps;
    }
    if (end_ != End::kNone) return false;
    left_ -= steps;
    slice_ = std::min(left_, kSlice);
    left_ -= slice_;
    return true;
  }

  uint64_t left_;
  uint64_t slice_ = 0;  // of them, that may be spent unasked
  const bool waits_;
  const IsStopped is_stopped_;
  End end_ = End::kNone;
};

}  // namespace aerie::grammar
