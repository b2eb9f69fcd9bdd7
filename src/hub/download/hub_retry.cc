#include "hub/download/hub_retry.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/interrupt.h"
#include "hub/hub_settings.h"

namespace aerie {
namespace {

constexpr double kFirstWait = 0.25;
constexpr double kLongWait = 5;       // worth a line
constexpr double kLongestWait = 300;  // what a hub may ask for

bool is_passing(const HubAnswer& answer) {
  if (!answer.problem.empty()) return answer.may_pass;
  // Where it redirects to, addresses are good for a while only.
  if (answer.is_elsewhere && answer.status == 403) return true;
  return answer.status == 429 || answer.status == 408 || answer.status >= 500;
}

}  // namespace

bool HubRetry::again(const HubAnswer& answer, const std::atomic<bool>& stop) {
  if (interrupted || stop || !is_passing(answer) || ++tries_ >= kTries) return false;
  const double own = kFirstWait * std::pow(3, tries_ - 1);
  const double wait = std::min(std::max(own, answer.retry_after), kLongestWait);
  if (wait >= kLongWait) {
    tell_hub_listener(fmt::format("the hub is busy: asking again in {:.0f} s", wait));
  }
  const auto start = steady_now();
  while (seconds_since(start) < wait) {
    if (interrupted || stop) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

}  // namespace aerie
