// Replies on their way to a LearnStore: whoever decodes does not wait for the disk.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "engine/learning/learn_store.h"

namespace aerie {

// Writes on a thread of its own, which sleeps unless there is something.
class LearnWriter {
 public:
  struct Options {
    // That wait. A reply that comes beyond loses its taps, and is dropped if that is not enough.
    size_t max_bytes = size_t{64} << 20;
    // How long a reply may be in memory alone, and how long after an error it is tried again.
    double flush_seconds = 10.0;
    // Told once when replies cannot be kept or are dropped, and once when that is over; by that
    // thread, must not wait. May be null.
    std::function<void(const std::string& message)> warn = {};
  };

  // The store has begun.
  LearnWriter(std::shared_ptr<LearnStore> store, Options options);
  // Writes what waits, and what could not be written before.
  ~LearnWriter();
  LearnWriter(const LearnWriter&) = delete;
  LearnWriter& operator=(const LearnWriter&) = delete;

  // From any thread; throws nothing.
  void add(LearnedReply reply) noexcept;
  // One that could not be kept for another reason.
  void drop() noexcept;

  struct Counts {
    int64_t kept = 0;     // are in files
    int64_t dropped = 0;  // for want of room, or since they could not be written
  };
  Counts counts() const;

 private:
  void run();
  // These two let go of the lock while they write.
  void store_next(std::unique_lock<std::mutex>& lock);
  bool flush(std::unique_lock<std::mutex>& lock);  // whether all is well
  Status store_one(LearnedReply* reply);
  void tell(const Status& status);
  void lose_one();

  const std::shared_ptr<LearnStore> store_;
  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LearnedReply> waiting_;
  size_t bytes_ = 0;
  LearnStore::Counts stored_;
  int64_t dropped_ = 0;  // of those that never came to the store
  bool lost_ = false;    // any of them, since that was told
  bool failing_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace aerie
