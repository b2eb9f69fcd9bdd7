// What the grammars of one engine share: memory for states, threads that make masks, and how much
// the thread that decodes may do about masks itself.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "grammar/automaton/shared_bytes.h"

namespace aerie {

struct GrammarPoolOptions {
  size_t max_bytes = size_t{256} << 20;  // of states and masks of all grammars together
  int threads = 2;                       // at least one
};

// Thread-safe, but for credit(). What was compiled for a pool keeps it, so that its owner has to
// stop() it before letting it go.
class GrammarPool {
 public:
  // `on_progress` (may be null) is called by one of the threads when a task is done.
  GrammarPool(const GrammarPoolOptions& options, std::function<void()> on_progress);
  ~GrammarPool();
  GrammarPool(const GrammarPool&) = delete;
  GrammarPool& operator=(const GrammarPool&) = delete;

  // Short tasks come before others, and where there are several threads one is for them alone.
  enum class Length : uint8_t { kShort, kLong };
  using Task = std::function<void()>;
  // Dropped unrun once the pool has stopped.
  void post(Task task, Length length);
  // Waits for the tasks that run, which should look whether it has stopped(); drops the others.
  void stop();
  bool stopped() const;

  // Lets go of something of that size, since it takes long to destroy.
  void discard(std::shared_ptr<const void> what, size_t bytes);

  // So much was taken and let go. Where it is much, what many small pieces held goes back to the
  // system soon, by a thread that does nothing else: else it stays with this process.
  void note_freed(size_t bytes);

  const std::shared_ptr<grammar::SharedBytes>& memory() const { return memory_; }

  // Steps that the thread that decodes may spend on a mask now, none if they are less than `least`;
  // over time a twentieth of its time. For that thread alone.
  uint64_t credit(uint64_t least);
  void charge(uint64_t steps) { credit_ -= std::min(credit_, steps); }

 private:
  void work(bool short_ones_only);
  void return_freed();

  const std::shared_ptr<grammar::SharedBytes> memory_;
  const std::function<void()> on_progress_;
  uint64_t credit_;
  std::chrono::steady_clock::time_point credited_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable freed_;
  std::array<std::deque<Task>, 2> tasks_;  // by length
  bool stopped_ = false;
  bool much_freed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace aerie
