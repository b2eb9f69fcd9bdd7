// Records on their way to a file: whoever makes them does not wait for the disk.
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
#include <utility>

#include "base/status.h"
#include "engine/recording/record.h"

namespace aerie {

// Writes on a thread of its own.
class RecordWriter {
 public:
  // By that thread alone. kUnsupported: not this record, others as ever; other errors are of all
  // that come until one can be written.
  using Write = std::function<Status(Record& record)>;

  struct Options {
    size_t max_records = 1024;  // that wait; beyond these bounds they are dropped
    size_t max_bytes = size_t{64} << 20;
    // Told once when records cannot be written, and once when they can be again; by that thread,
    // must not wait. May be null.
    std::function<void(const std::string& message)> warn = {};
    double end_seconds = 5.0;
  };

  RecordWriter(Write write, Options options);
  // Writes what waits, for end_seconds at most; a write that hangs is left hanging.
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // From any thread; throws nothing.
  void add(Record record) noexcept;

  struct Counts {
    int64_t written = 0;
    int64_t dropped = 0;  // for want of room in the queue, or since they could not be written
  };
  Counts counts() const;

 private:
  // Outlives the writer where the thread is left behind.
  struct State {
    explicit State(Write write_one, Options given)
        : write(std::move(write_one)), options(std::move(given)) {}
    const Write write;
    const Options options;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<Record, size_t>> waiting;  // with their bytes
    size_t bytes = 0;
    Counts counts;
    int64_t lost = 0;  // since records could be written for the last time
    bool ending = false;
    bool ended = false;
    bool abandoned = false;
  };
  static void run(State& state);
  static Status write_one(State& state, Record& record);
  static void tell(State& state, const Status& status);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace aerie
