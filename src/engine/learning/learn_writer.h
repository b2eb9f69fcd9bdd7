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
    size_t max_bytes = size_t{64} << 20;  // that wait; what comes beyond is dropped
    // How long a reply may be in memory alone.
    double flush_seconds = 10.0;
    // Told once when replies cannot be kept, and once when they can be again; by that thread, must
    // not wait. May be null.
    std::function<void(const std::string& message)> warn = {};
  };

  // The store has begun.
  LearnWriter(std::shared_ptr<LearnStore> store, Options options);
  // Writes what waits.
  ~LearnWriter();
  LearnWriter(const LearnWriter&) = delete;
  LearnWriter& operator=(const LearnWriter&) = delete;

  // From any thread; throws nothing.
  void add(LearnedReply reply) noexcept;
  // One that could not be kept for another reason.
  void drop() noexcept;

  struct Counts {
    int64_t kept = 0;
    int64_t dropped = 0;  // for want of room, or since they could not be written
  };
  Counts counts() const;

 private:
  void run();
  Status store_one(LearnedReply* reply);
  void tell(const Status& status);

  const std::shared_ptr<LearnStore> store_;
  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LearnedReply> waiting_;
  size_t bytes_ = 0;
  Counts counts_;
  bool failing_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace aerie
