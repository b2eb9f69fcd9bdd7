// How far work has come, for those who wait for it: one line on standard error with rate and
// remaining time. Nothing is shown until a program asks for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie {

enum class ProgressStyle {
  kNone,
  kLine,  // one line that is written over and vanishes at the end: for a terminal
  kLog,   // a plain line now and then, ever rarer: for a file
};

// The style that fits standard error: kLine on a terminal that can move its cursor, else kLog.
ProgressStyle fitting_progress_style();

// For the whole program, before any Progress is made. kNone until then.
void set_progress_style(ProgressStyle style);

// After so many seconds of work a line is shown first, in place of one second, or five in a log: a
// number from 0 on, as a text. Null and empty change nothing. Before any Progress is made.
// kInvalidArgument for what is no such number.
Status set_progress_delay(const char* seconds);

// Wipes the line off the terminal, where one is shown, so that something else can be written there.
// It comes back with the next step. Thread-safe; next to nothing where no line is shown.
void clear_progress_line();

enum class ProgressUnit { kCount, kBytes, kTokens, kSeconds };

// One piece of work. It is shown once it has taken a second (see above), and until it is destroyed;
// of several at a time the one that moved last is seen. Steps cost a clock reading and may come
// from any thread.
class Progress {
 public:
  // `what`: "loading model.gguf". `total`: in the unit; 0: not known.
  Progress(std::string what, int64_t total, ProgressUnit unit = ProgressUnit::kCount);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(int64_t amount) { step(done_.fetch_add(amount, std::memory_order_relaxed) + amount); }
  void set(int64_t done) {
    done_.store(done, std::memory_order_relaxed);
    step(done);
  }
  // What was done before it began, such as the bytes of a file that are there already: no part of
  // the rate.
  void skip(int64_t amount);
  // Where it is known only later.
  void set_total(int64_t total) { total_.store(total, std::memory_order_relaxed); }

 private:
  void step(int64_t done);

  const std::string what_;
  const ProgressUnit unit_;
  const double start_;
  std::atomic<int64_t> total_;
  std::atomic<int64_t> done_{0};
  std::atomic<int64_t> skipped_{0};
  std::atomic<double> next_;   // when to show it again, in seconds of the clock
  std::atomic<int> lines_{0};  // of a log
};

// What a line says, cut to `width` columns (0: no limit, and no bar). `total` 0: not known.
// `seconds`: since the start, in which `done - skipped` was done.
struct ProgressState {
  std::string_view what;
  ProgressUnit unit = ProgressUnit::kCount;
  int64_t done = 0;
  int64_t total = 0;
  int64_t skipped = 0;
  double seconds = 0;
};
std::string progress_line(const ProgressState& state, int width);

}  // namespace aerie
