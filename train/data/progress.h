// How far a long run is, for people.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/clock.h"

namespace aerie::train {

// "2 h 05 min", "3 min 20 s", "12 s".
std::string duration_text(double seconds);

// To a terminal one line that is written over, twice a second; elsewhere a line every 30 seconds.
class ProgressLine {
 public:
  // `file` null: nothing is written.
  explicit ProgressLine(std::FILE* file);
  // Ends an open line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Whether it is time for another show().
  bool is_due() const;
  void show(const std::string& text);
  // Since construction.
  double seconds() const;

 private:
  std::FILE* file_;
  bool terminal_ = false;
  size_t width_ = 0;  // of the line on the terminal
  SteadyTime start_;
  SteadyTime last_;
};

}  // namespace aerie::train
