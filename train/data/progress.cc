#include "train/data/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace aerie::train {

std::string duration_text(double seconds) {
  if (!(seconds < 1e9)) return "a long time";
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

ProgressLine::ProgressLine(std::FILE* file)
    : file_(file),
      terminal_(file != nullptr && isatty(fileno(file)) != 0),
      start_(steady_now()),
      last_(start_) {}

ProgressLine::~ProgressLine() {
  if (width_ > 0) std::fputs("\n", file_);
}

double ProgressLine::seconds() const {
  return seconds_since(start_);
}

bool ProgressLine::is_due() const {
  return file_ != nullptr && seconds_since(last_) >= (terminal_ ? 0.5 : 30.0);
}

void ProgressLine::show(const std::string& text) {
  if (file_ == nullptr) return;
  last_ = steady_now();
  if (terminal_) {
    std::fputs(fmt::format("\r{:<{}}", text, width_).c_str(), file_);
    width_ = std::max<size_t>(1, text.size());
  } else {
    std::fputs((text + "\n").c_str(), file_);
  }
  std::fflush(file_);
}

}  // namespace aerie::train
