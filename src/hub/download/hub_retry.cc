#include "hub/download/hub_retry.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/interrupt.h"

namespace aerie {
namespace {

constexpr double kFirstWait = 0.25;
constexpr double kLongestWait = 300;  // what a hub may ask for

bool is_passing(const HubAnswer& answer) {
  if (!answer.problem.empty()) return answer.may_pass;
  return answer.status == 429 || answer.status == 408 || answer.status >= 500;
}

}  // namespace

bool HubRetry::again(const HubAnswer& answer) {
  if (interrupted || !is_passing(answer) || ++tries_ >= kTries) return false;
  const double own = kFirstWait * std::pow(3, tries_ - 1);
  const double wait = std::min(std::max(own, answer.retry_after), kLongestWait);
  const auto start = steady_now();
  while (seconds_since(start) < wait) {
    if (interrupted) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

}  // namespace aerie
