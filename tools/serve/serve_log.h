// The log of `aerie serve`: lines of JSON on standard error.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "format/json.h"

namespace aerie {

// Writes on a thread of its own, so that a reader that stops reading holds nobody up. Any thread.
class ServeLog {
 public:
  ServeLog();
  // Waits a second at most for what is not written yet; a write that hangs is left hanging.
  ~ServeLog();
  ServeLog(const ServeLog&) = delete;
  ServeLog& operator=(const ServeLog&) = delete;

  // Adds the time. While more lines wait than kMostLines new ones are dropped; how many were is
  // said once there is room again.
  void event(const Json& event);
  void message(std::string text);  // {"event": "server", "message": text}

  static constexpr size_t kMostLines = 10000;

 private:
  // Outlives the log where the thread is left behind.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::string> lines;
    size_t dropped = 0;
    bool ending = false;
    bool ended = false;
  };
  static void write(State& state);

  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace aerie
