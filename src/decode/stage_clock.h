// Where the time goes: prompt, drafting, target passes, verification, commit, everything else.
#pragma once

#include <chrono>

#include "aerie/reply.h"

namespace aerie {

// One stage runs at a time; time outside is not counted.
class StageClock {
 public:
  // Ends the running stage, if any, and starts this one.
  void enter(Stage stage) {
    const auto now = Clock::now();
    settle(now);
    running_ = true;
    stage_ = stage;
    since_ = now;
  }
  void stop() {
    settle(Clock::now());
    running_ = false;
  }
  const StageTimes& times() const { return times_; }

  // stop() at the end of the scope, whichever way it is left.
  class Scope {
   public:
    explicit Scope(StageClock& clock) : clock_(clock) {}
    ~Scope() { clock_.stop(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StageClock& clock_;
  };

 private:
  using Clock = std::chrono::steady_clock;
  void settle(Clock::time_point now) {
    if (!running_) return;
    times_.seconds[static_cast<size_t>(stage_)] +=
        std::chrono::duration<double>(now - since_).count();
  }

  StageTimes times_;
  bool running_ = false;
  Stage stage_ = Stage::kOther;
  Clock::time_point since_;
};

}  // namespace aerie
