#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/utf8.h"

namespace aerie {
namespace {

constexpr double kFirst = 1.0;      // seconds before a line is shown
constexpr double kInterval = 0.1;   // between two states of it
constexpr double kFirstLog = 5.0;   // before a log's first line
constexpr double kLongestLog = 60;  // between two of them
constexpr int kBar = 20;            // columns

std::atomic<ProgressStyle> current_style{ProgressStyle::kNone};
std::atomic<double> delay{-1.0};  // below 0: that of the style
std::atomic<bool> line_is_shown{false};
std::mutex terminal;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double first_delay() {
  if (const double asked = delay.load(); asked >= 0.0) return asked;
  return current_style.load() == ProgressStyle::kLog ? kFirstLog : kFirst;
}

int terminal_width() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, kUnits[unit]);
}

std::string amount_text(ProgressUnit unit, double amount) {
  switch (unit) {
    case ProgressUnit::kBytes:
      return bytes_text(amount);
    case ProgressUnit::kTokens:
      return fmt::format("{:.0f} tokens", amount);
    case ProgressUnit::kSeconds:
      return duration_text(amount);
    case ProgressUnit::kCount:
      break;
  }
  return fmt::format("{:.0f}", amount);
}

// Empty where a rate says nothing.
std::string rate_text(ProgressUnit unit, double rate) {
  switch (unit) {
    case ProgressUnit::kBytes:
      return bytes_text(rate) + "/s";
    case ProgressUnit::kTokens:
      return fmt::format("{:.0f} tokens/s", rate);
    case ProgressUnit::kSeconds:
    case ProgressUnit::kCount:
      break;
  }
  return "";
}

std::string bar(double share) {
  const int full = std::clamp(static_cast<int>(share * kBar), 0, kBar);
  return fmt::format("[{:=<{}}{: <{}}] ", "", full, "", kBar - full);
}

}  // namespace

ProgressStyle fitting_progress_style() {
  const char* const terminal_name = std::getenv("TERM");
  const bool moves = terminal_name != nullptr && std::string_view(terminal_name) != "dumb";
  return moves && isatty(STDERR_FILENO) != 0 ? ProgressStyle::kLine : ProgressStyle::kLog;
}

void set_progress_style(ProgressStyle style) {
  current_style.store(style);
}

Status set_progress_delay(const char* seconds) {
  if (seconds == nullptr || *seconds == '\0') return {};
  char* end = nullptr;
  const double value = std::strtod(seconds, &end);
  if (*end != '\0' || !(value >= 0.0)) {
    return invalid_argument("'{}' is no number of seconds from 0 on", seconds);
  }
  delay.store(value);
  return {};
}

void clear_progress_line() {
  if (!line_is_shown.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(terminal);
  if (line_is_shown.exchange(false)) write_all(STDERR_FILENO, "\r\x1b[K");
}

std::string progress_line(const ProgressState& state, int width) {
  const double rate =
      state.seconds > 0 ? static_cast<double>(state.done - state.skipped) / state.seconds : 0.0;
  const double share =
      state.total > 0
          ? std::min(1.0, static_cast<double>(state.done) / static_cast<double>(state.total))
          : 0.0;
  std::string numbers;
  if (state.total > 0) {
    numbers += fmt::format("{:3.0f} %  {} of {}", std::floor(share * 100),
                           amount_text(state.unit, static_cast<double>(state.done)),
                           amount_text(state.unit, static_cast<double>(state.total)));
  } else {
    numbers += amount_text(state.unit, static_cast<double>(state.done));
  }
  if (rate > 0) {
    if (const std::string text = rate_text(state.unit, rate); !text.empty()) numbers += "  " + text;
    const double left = static_cast<double>(state.total - state.done) / rate;
    if (state.total > state.done) numbers += fmt::format("  {} left", duration_text(left));
  }
  std::string line = fmt::format("{}  {}", state.what, numbers);
  // The name is worth more than the bar.
  if (state.total > 0 && static_cast<int>(line.size()) + kBar + 3 < width) {
    line = fmt::format("{}  {}{}", state.what, bar(share), numbers);
  }
  if (width == 0 || static_cast<int>(line.size()) < width) return line;
  // The numbers move, so they stay; of the name the beginning does.
  const int room = width - 6 - static_cast<int>(numbers.size());
  if (room >= 8) {
    const std::string_view what = state.what.substr(0, room);
    return fmt::format("{}...  {}", what.substr(0, utf8_valid_prefix(what)), numbers);
  }
  return numbers.substr(0, std::max(0, width - 1));
}

Progress::Progress(std::string what, int64_t total, ProgressUnit unit)
    : what_(std::move(what)),
      unit_(unit),
      start_(now()),
      total_(total),
      next_(start_ + first_delay()) {}

Progress::~Progress() {
  clear_progress_line();
}

void Progress::skip(int64_t amount) {
  skipped_.fetch_add(amount, std::memory_order_relaxed);
  add(amount);
}

void Progress::step(int64_t done) {
  const ProgressStyle style = current_style.load(std::memory_order_relaxed);
  if (style == ProgressStyle::kNone) return;
  const double time = now();
  double due = next_.load(std::memory_order_relaxed);
  if (time < due) return;
  const double pause = style == ProgressStyle::kLine
                           ? kInterval
                           : std::min(kLongestLog, kFirstLog * std::exp2(lines_.load()));
  // Of several threads one shows it.
  if (!next_.compare_exchange_strong(due, time + pause)) return;
  const ProgressState state{what_, unit_, done, total_.load(), skipped_.load(), time - start_};
  if (style == ProgressStyle::kLog) {
    lines_.fetch_add(1);
    write_all(STDERR_FILENO, progress_line(state, 0) + "\n");
    return;
  }
  const std::string text = progress_line(state, terminal_width());
  const std::lock_guard lock(terminal);
  line_is_shown.store(true);
  write_all(STDERR_FILENO, "\r" + text + "\x1b[K");
}

}  // namespace aerie
