// The clock that durations are measured with: it only rises.
#pragma once

#include <chrono>

namespace aerie {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime steady_now() {
  return std::chrono::steady_clock::now();
}
inline double seconds_between(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double>(to - from).count();
}
inline double seconds_since(SteadyTime start) {
  return seconds_between(start, steady_now());
}

}  // namespace aerie
