// How much one who asks may ask for.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace aerie::server {

// 0: no limit.
struct RateLimits {
  int64_t requests = 0;    // a minute
  int64_t tokens = 0;      // a minute, of prompts and replies
  int64_t concurrent = 0;  // requests at once

  bool any() const { return requests > 0 || tokens > 0 || concurrent > 0; }
};

// One word of "rpm=60 tpm=20000 concurrent=4".
Status read_limit(std::string_view word, RateLimits& out);
// All of it, with spaces or commas between.
Expected<RateLimits> read_limits(std::string_view text);

// Why something is not let through.
struct RateRefusal {
  std::string_view limit;  // "requests", "tokens" or "concurrent"
  int64_t most = 0;
  double wait_seconds = 0.0;  // until it would be; 0: never
};

// What is left, of the limits that there are.
struct RateLevels {
  int64_t requests = 0;
  int64_t tokens = 0;
  double requests_full = 0.0;  // seconds until all is there again
  double tokens_full = 0.0;
};

// Counts for each who asks. What a minute allows may be taken at once, and comes back evenly: in
// the long run nobody gets more than the limit. Limits may be others at each call. Thread-safe.
class RateLimiter {
 public:
  // A request begins, unless it is refused; leave() ends it.
  std::optional<RateRefusal> enter(const std::string& who, const RateLimits& limits,
                                   SteadyTime now);
  void leave(const std::string& who);

  // Within a request: takes as many as are there, or none.
  std::optional<RateRefusal> take_tokens(const std::string& who, const RateLimits& limits,
                                         int64_t tokens, SteadyTime now);
  // Within a request: gives tokens back, or takes more, of which there may be too few: then the
  // next have to wait for them.
  void correct_tokens(const std::string& who, int64_t back);

  RateLevels levels(const std::string& who, const RateLimits& limits, SteadyTime now);

 private:
  struct Meter {
    RateLimits limits;      // that were last asked with
    double requests = 0.0;  // taken and not come back
    double tokens = 0.0;
    int64_t running = 0;
    SteadyTime at = {};
  };
  static void bring_back(Meter& meter, SteadyTime now);
  Meter& meter_of(const std::string& who, const RateLimits& limits, SteadyTime now);
  void forget_idle(SteadyTime now);

  std::mutex mutex_;
  std::map<std::string, Meter> meters_;
  size_t most_meters_ = 1024;  // before those that are as new are dropped
};

}  // namespace aerie::server
