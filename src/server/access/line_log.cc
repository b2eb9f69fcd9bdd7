#include "server/access/line_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

namespace aerie::server {

std::string log_line(const Json& event) {
  const auto now = std::chrono::system_clock::now();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  Json line = {{"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                                    fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                                    milliseconds % 1000)}};
  line.update(event);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

Json message_of(std::string text) {
  return {{"event", "server"}, {"message", std::move(text)}};
}

}  // namespace

LineLog::LineLog(Write write)
    : state_(std::make_shared<State>(std::move(write))),
      thread_([state = state_] { run(*state); }) {}

LineLog::~LineLog() {
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

void LineLog::event(const Json& event) {
  std::string line = log_line(event);
  const std::lock_guard lock(state_->mutex);
  if (state_->lines.size() >= kMostLines) {
    ++state_->dropped;
    return;
  }
  if (const int64_t untold = state_->dropped - state_->told; untold > 0) {
    state_->lines.push_back(log_line(message_of(fmt::format("{} lines were dropped", untold))));
    state_->told = state_->dropped;
  }
  state_->lines.push_back(std::move(line));
  state_->changed.notify_all();
}

void LineLog::message(std::string text) {
  event(message_of(std::move(text)));
}

int64_t LineLog::dropped() const {
  const std::lock_guard lock(state_->mutex);
  return state_->dropped;
}

void LineLog::run(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.ending || !state.lines.empty(); });
    if (state.lines.empty()) break;
    const std::string line = std::move(state.lines.front());
    state.lines.pop_front();
    lock.unlock();
    state.write(line);
    lock.lock();
  }
  state.ended = true;
  state.changed.notify_all();
}

}  // namespace aerie::server
