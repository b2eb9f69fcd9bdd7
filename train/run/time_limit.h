// A flag for work that is to end by itself: true once its time is over or a caller's flag is true.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace aerie::train {

class TimeLimit {
 public:
  // `cancel` may be null; else it must outlive the object.
  TimeLimit(double seconds, const std::atomic<bool>* cancel)
      : cancel_(cancel), seconds_(seconds), thread_([this] { run(); }) {}
  ~TimeLimit() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  const std::atomic<bool>* flag() const { return &over_; }

 private:
  using Clock = std::chrono::steady_clock;

  void run() {
    // Nothing wakes those who wait when a signal sets the caller's flag.
    constexpr auto kLook = std::chrono::milliseconds(50);
    const auto end = Clock::now() + std::chrono::duration<double>(seconds_);
    std::unique_lock lock(mutex_);
    while (!stop_ && !over_) {
      changed_.wait_for(lock, kLook);
      if (Clock::now() >= end || (cancel_ != nullptr && cancel_->load())) over_ = true;
    }
  }

  const std::atomic<bool>* cancel_;
  double seconds_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace aerie::train
