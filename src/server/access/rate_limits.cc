#include "server/access/rate_limits.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/errors.h"

namespace aerie::server {
namespace {

constexpr int64_t kMostLimit = int64_t{1} << 40;
constexpr double kMinute = 60.0;

double left_after(double taken, int64_t limit, double seconds) {
  return std::max(0.0, taken - static_cast<double>(limit) / kMinute * seconds);
}

// Until `more` can be taken; at least a moment, since it cannot now.
double wait_for(double taken, int64_t more, int64_t limit) {
  const auto most = static_cast<double>(limit);
  return std::max(0.001, (taken + static_cast<double>(more) - most) / most * kMinute);
}

int64_t whole(double taken, int64_t limit) {
  return std::max(int64_t{0},
                  static_cast<int64_t>(std::floor(static_cast<double>(limit) - taken + 1e-6)));
}

}  // namespace

Status read_limit(std::string_view word, RateLimits& out) {
  const size_t mark = word.find('=');
  const std::string_view name = word.substr(0, mark);
  int64_t* to = nullptr;
  if (name == "rpm") to = &out.requests;
  if (name == "tpm") to = &out.tokens;
  if (name == "concurrent") to = &out.concurrent;
  if (to == nullptr || mark == std::string_view::npos) {
    return invalid_argument(
        "a limit is rpm=N (requests a minute), tpm=N (tokens a minute) or concurrent=N (requests "
        "at once)");
  }
  if (*to != 0) return invalid_argument("{} is there twice", name);
  const std::string_view number = word.substr(mark + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *to);
  if (error != std::errc() || end != number.data() + number.size() || *to < 1 || *to > kMostLimit) {
    return invalid_argument("{}= is followed by a whole number from 1 to {}", name, kMostLimit);
  }
  return {};
}

Expected<RateLimits> read_limits(std::string_view text) {
  RateLimits out;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find_first_of(" ,"));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!word.empty()) AERIE_RETURN_IF_ERROR(read_limit(word, out));
  }
  return out;
}

void RateLimiter::bring_back(Meter& meter, SteadyTime now) {
  const double seconds = std::max(0.0, seconds_between(meter.at, now));
  const RateLimits& limits = meter.limits;
  // Where there is no limit there is nothing to be held against whoever gets one later.
  meter.requests = limits.requests > 0 ? left_after(meter.requests, limits.requests, seconds) : 0.0;
  meter.tokens = limits.tokens > 0 ? left_after(meter.tokens, limits.tokens, seconds) : 0.0;
  meter.at = std::max(meter.at, now);
}

RateLimiter::Meter& RateLimiter::meter_of(const std::string& who, const RateLimits& limits,
                                          SteadyTime now) {
  Meter& meter = meters_[who];
  meter.limits = limits;
  bring_back(meter, now);
  return meter;
}

void RateLimiter::forget_idle(SteadyTime now) {
  if (meters_.size() < most_meters_) return;
  for (auto it = meters_.begin(); it != meters_.end();) {
    Meter& meter = it->second;
    bring_back(meter, now);
    const bool is_as_new = meter.running == 0 && meter.requests <= 0.0 && meter.tokens <= 0.0;
    it = is_as_new ? meters_.erase(it) : std::next(it);
  }
  most_meters_ = std::max(size_t{1024}, 2 * meters_.size());
}

std::optional<RateRefusal> RateLimiter::enter(const std::string& who, const RateLimits& limits,
                                              SteadyTime now) {
  const std::lock_guard lock(mutex_);
  forget_idle(now);
  Meter& meter = meter_of(who, limits, now);
  if (limits.concurrent > 0 && meter.running >= limits.concurrent) {
    return RateRefusal{"concurrent", limits.concurrent, 1.0};
  }
  if (limits.requests > 0) {
    if (whole(meter.requests, limits.requests) < 1) {
      return RateRefusal{"requests", limits.requests, wait_for(meter.requests, 1, limits.requests)};
    }
    meter.requests += 1.0;
  }
  ++meter.running;
  return std::nullopt;
}

void RateLimiter::leave(const std::string& who) {
  const std::lock_guard lock(mutex_);
  --meters_[who].running;
}

std::optional<RateRefusal> RateLimiter::take_tokens(const std::string& who,
                                                    const RateLimits& limits, int64_t tokens,
                                                    SteadyTime now) {
  if (limits.tokens == 0) return std::nullopt;
  if (tokens > limits.tokens) return RateRefusal{"tokens", limits.tokens, 0.0};
  const std::lock_guard lock(mutex_);
  Meter& meter = meter_of(who, limits, now);
  if (whole(meter.tokens, limits.tokens) < tokens) {
    return RateRefusal{"tokens", limits.tokens, wait_for(meter.tokens, tokens, limits.tokens)};
  }
  meter.tokens += static_cast<double>(tokens);
  return std::nullopt;
}

void RateLimiter::correct_tokens(const std::string& who, int64_t back) {
  const std::lock_guard lock(mutex_);
  Meter& meter = meters_[who];
  meter.tokens = std::max(0.0, meter.tokens - static_cast<double>(back));
}

RateLevels RateLimiter::levels(const std::string& who, const RateLimits& limits, SteadyTime now) {
  const std::lock_guard lock(mutex_);
  Meter& meter = meter_of(who, limits, now);
  RateLevels out;
  if (limits.requests > 0) {
    out.requests = whole(meter.requests, limits.requests);
    out.requests_full = meter.requests / static_cast<double>(limits.requests) * kMinute;
  }
  if (limits.tokens > 0) {
    out.tokens = whole(meter.tokens, limits.tokens);
    out.tokens_full = meter.tokens / static_cast<double>(limits.tokens) * kMinute;
  }
  return out;
}

}  // namespace aerie::server
