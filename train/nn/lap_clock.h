#pragma once

#include "base/clock.h"

namespace aerie::train {

// The seconds of one stretch after another.
class LapClock {
 public:
  // Since it was made, or since the call before.
  double lap() {
    const SteadyTime now = steady_now();
    const double seconds = seconds_between(last_, now);
    last_ = now;
    return seconds;
  }

 private:
  SteadyTime last_ = steady_now();
};

}  // namespace aerie::train
