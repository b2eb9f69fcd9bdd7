// Memory that the automata of all constraints hold together.
#pragma once

#include <atomic>
#include <cstddef>

namespace aerie::grammar {

// Who holds little may always have its share, so that a few that ask for much leave room for those
// that do not. Together they stay within the limit. Thread-safe.
class SharedBytes {
 public:
  explicit SharedBytes(size_t limit) : half_(limit / 2) {}

  void enter() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void leave(size_t bytes) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    holders_.fetch_sub(1, std::memory_order_relaxed);
  }
  void add(size_t bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }
  // Whether a holder of so many bytes may have more.
  bool may_grow(size_t own) const {
    const size_t holders = holders_.load(std::memory_order_relaxed);
    return used() <= half_ || own <= half_ / (holders == 0 ? 1 : holders);
  }

  size_t limit() const { return 2 * half_; }
  size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const size_t half_;
  std::atomic<size_t> used_{0};
  std::atomic<size_t> holders_{0};
};

}  // namespace aerie::grammar
