// What compiling one constraint may cost: whoever sends one sends a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/status.h"

namespace aerie::grammar {

// Counted where it is spent, in steps and not in seconds, so that the same constraint is taken or
// refused on every machine. Once spent it stays so: what adds to something may go on a little and
// look later. Not thread-safe; one compilation has one.
class Budget {
 public:
  // About a second of a slow core, and what a few hundred open requests may hold at once.
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  static constexpr uint64_t kMaxSteps = 20'000'000;

  // `is_stopped` (may be null) is asked now and then whether nobody wants the result any more; then
  // all is spent.
  explicit Budget(size_t max_bytes = kMaxBytes, uint64_t max_steps = kMaxSteps,
                  std::function<bool()> is_stopped = nullptr)
      : max_bytes_(max_bytes), max_steps_(max_steps), is_stopped_(std::move(is_stopped)) {}

  // Whether there was enough left. Bytes count as long as the compilation lasts, freed or not.
  bool spend(size_t bytes, uint64_t steps = 1) {
    bytes_ += bytes;
    steps_ += steps;
    if (is_stopped_ && steps_ >= next_look_) look();
    return !spent();
  }
  size_t bytes() const { return bytes_; }
  bool spent() const { return bytes_ > max_bytes_ || steps_ > max_steps_ || stopped_; }

  // kResourceExhausted with what was too much, or kCancelled, once it is spent.
  Status status() const;

 private:
  static constexpr uint64_t kLookEvery = 4096;
  void look() {
    next_look_ = steps_ + kLookEvery;
    stopped_ = stopped_ || is_stopped_();
  }

  const size_t max_bytes_;
  const uint64_t max_steps_;
  const std::function<bool()> is_stopped_;
  bool stopped_ = false;
  uint64_t next_look_ = 0;
  size_t bytes_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace aerie::grammar
