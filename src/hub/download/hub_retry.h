// When to ask the hub again.
#pragma once

#include <atomic>

#include "hub/download/hub_http.h"

namespace aerie {

// Of one thing that is asked for. Not shared between threads.
class HubRetry {
 public:
  // Whether another try is due after this answer; waits until then, or until `stop`. No more than
  // kTries in a row without progress().
  bool again(const HubAnswer& answer, const std::atomic<bool>& stop);
  // Much has come since the last try.
  void progress() { tries_ = 0; }

 private:
  static constexpr int kTries = 5;
  int tries_ = 0;
};

}  // namespace aerie
