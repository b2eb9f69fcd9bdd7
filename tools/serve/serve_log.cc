#include "tools/serve/serve_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace aerie {
namespace {

std::string line_of(const Json& event) {
  const auto now = std::chrono::system_clock::now();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  Json line = {{"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                                    fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                                    milliseconds % 1000)}};
  line.update(event);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Not by the C library: the end of a program waits for its locks.
void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

Json message_of(std::string text) {
  return {{"event", "server"}, {"message", std::move(text)}};
}

}  // namespace

ServeLog::ServeLog() : thread_([state = state_] { write(*state); }) {}

ServeLog::~ServeLog() {
  std::unique_lock lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
  const bool ended =
      state_->changed.wait_for(lock, std::chrono::seconds(1), [&] { return state_->ended; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void ServeLog::event(const Json& event) {
  std::string line = line_of(event);
  const std::lock_guard lock(state_->mutex);
  if (state_->lines.size() >= kMostLines) {
    ++state_->dropped;
    return;
  }
  if (const size_t dropped = std::exchange(state_->dropped, 0); dropped > 0) {
    state_->lines.push_back(line_of(message_of(fmt::format("{} lines were dropped", dropped))));
  }
  state_->lines.push_back(std::move(line));
  state_->changed.notify_all();
}

void ServeLog::message(std::string text) {
  event(message_of(std::move(text)));
}

void ServeLog::write(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.ending || !state.lines.empty(); });
    if (state.lines.empty()) break;
    const std::string line = std::move(state.lines.front());
    state.lines.pop_front();
    lock.unlock();
    write_all(line);
    lock.lock();
  }
  state.ended = true;
  state.changed.notify_all();
}

}  // namespace aerie
