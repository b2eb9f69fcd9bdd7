// Events as lines of JSON, on their way to a terminal or a file.
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

#include "format/json.h"

namespace aerie::server {

// With the time before the rest, and an end.
std::string log_line(const Json& event);

// Writes on a thread of its own, so that a reader that stops reading, or a disk that hangs, holds
// nobody up. Any thread.
class LineLog {
 public:
  // Of one line, with its end; by that thread alone.
  using Write = std::function<void(const std::string& line)>;

  explicit LineLog(Write write);
  // Waits a second at most for what is not written yet; a write that hangs is left hanging, with
  // all that it uses.
  ~LineLog();
  LineLog(const LineLog&) = delete;
  LineLog& operator=(const LineLog&) = delete;

  // Adds the time. While more lines wait than kMostLines new ones are dropped; how many were is
  // said once there is room again.
  void event(const Json& event);
  void message(std::string text);  // {"event": "server", "message": text}

  int64_t dropped() const;  // in all

  static constexpr size_t kMostLines = 10000;

 private:
  // Outlives the log where the thread is left behind.
  struct State {
    explicit State(Write write_line) : write(std::move(write_line)) {}
    const Write write;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::string> lines;
    int64_t dropped = 0;
    int64_t told = 0;  // of those
    bool ending = false;
    bool ended = false;
  };
  static void run(State& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace aerie::server
