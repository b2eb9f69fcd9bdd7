#include "measure/passes/machine.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/errors.h"
#include "base/system/topology.h"

namespace aerie::measure {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::Dot;

constexpr int64_t kGrain = 4096;
constexpr int64_t kLeastMemory = int64_t{256} << 20;
constexpr int64_t kMostMemory = int64_t{1} << 30;
constexpr int64_t kCachesFull = 8;     // times the last cache
constexpr double kDotSeconds = 0.004;  // long enough for the clock to settle at what vectors allow
constexpr int kTries = 2;
constexpr int64_t kReadParts = 8;  // of the memory, for one try of a way to read
// Pieces that threads take over from one whose core others use, as matrix products do.
constexpr int64_t kReadPiece = int64_t{2} << 20;
constexpr int64_t kDotPieces = 8;  // of a thread

// What a compiler must take for used.
std::atomic<float> g_sink{0.0f};

constexpr int64_t kMostMib = 1 << 16;

int64_t memory_size(int64_t mib) {
  if (mib > 0) return mib << 20;
  const int64_t cache = std::max<int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
  return std::clamp(kCachesFull * cache, kLeastMemory, kMostMemory) / kGrain * kGrain;
}

template <typename Measure>
double best_of(int tries, const Measure& measure) {
  double best = measure();
  for (int i = 1; i < tries; ++i) best = std::min(best, measure());
  return best;
}

}  // namespace

Status check_memory(int64_t mib) {
  if (mib >= 0 && mib <= kMostMib) return {};
  return invalid_argument("--memory {}: give 1 to {}", mib, kMostMib);
}

Expected<Machine> Machine::open(kernels::Isa isa, ThreadPool& pool, int64_t memory_mib) {
  Machine machine(isa == kernels::Isa::kReference ? kernels::best_isa() : isa, pool);
  const int64_t size = memory_size(memory_mib);
  AERIE_ASSIGN_OR_RETURN(machine.memory_, Buffer::allocate(static_cast<size_t>(size)));
  // Untouched pages are all one page of zeros, which never leaves the cache.
  std::byte* memory = machine.memory_.data();
  pool.parallel_for(size, kGrain, [&](int64_t begin, int64_t end, int) {
    std::memset(memory + begin, 1, static_cast<size_t>(end - begin));
  });
  machine.choose_read();
  return machine;
}

// By turns over the whole memory, so that no part is read from a cache.
void Machine::choose_read() {
  const auto size = static_cast<int64_t>(memory_.size());
  const int64_t part = size / kReadParts / kGrain * kGrain;
  double best = 0;
  int64_t at = 0;
  for (int v = 0; v < kernels::read_variants(); ++v) {
    const double seconds = best_of(kTries, [&] {
      at = at + 2 * part > size ? 0 : at + part;
      return read_seconds(v, at, part);
    });
    if (v > 0 && seconds >= best) continue;
    best = seconds;
    read_variant_ = v;
  }
}

Machine::DotPlan Machine::choose_dot(Dot dot) {
  DotPlan plan;
  double most = 0;
  for (int v = 0; v < kernels::dot_variants(dot); ++v) {
    const auto operations = static_cast<double>(kernels::dot_operations(dot, v));
    int64_t steps = 128;
    const double seconds = long_enough(dot, v, steps);
    const double speed = operations * static_cast<double>(steps) / seconds;
    if (speed <= most) continue;
    most = speed;
    plan = {v, steps};
  }
  return plan;
}

double Machine::read_seconds(int variant, int64_t begin, int64_t bytes) {
  const ThreadPool::Round round(*pool_);
  const auto start = Clock::now();
  pool_->parallel_pieces(bytes, kGrain, kReadPiece, [&](int64_t from, int64_t to, int) {
    g_sink.store(kernels::read_range(isa_, variant, memory_.data() + begin + from, to - from),
                 std::memory_order_relaxed);
  });
  return seconds_since(start);
}

double Machine::dot_seconds(Dot dot, int variant, int64_t steps) {
  const ThreadPool::Round round(*pool_);
  const auto start = Clock::now();
  pool_->parallel_pieces(pool_->threads() * kDotPieces, 1, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      g_sink.store(kernels::run_dots(isa_, dot, variant, steps), std::memory_order_relaxed);
    }
  });
  return seconds_since(start);
}

double Machine::read_bandwidth() {
  const auto size = static_cast<int64_t>(memory_.size());
  const double seconds = best_of(kTries, [&] { return read_seconds(read_variant_, 0, size); });
  return static_cast<double>(size) / seconds;
}

double Machine::copy_bandwidth() {
  const auto half = static_cast<int64_t>(memory_.size() / 2);
  const ThreadPool::Round round(*pool_);
  const double seconds = best_of(kTries, [&] {
    const auto start = Clock::now();
    pool_->parallel_for(half, kGrain, [&](int64_t begin, int64_t end, int) {
      std::memcpy(memory_.data() + half + begin, memory_.data() + begin,
                  static_cast<size_t>(end - begin));
    });
    return seconds_since(start);
  });
  return 2.0 * static_cast<double>(half) / seconds;
}

// Doubles the steps until they take their time: a thread that had to wait makes a few steps long.
double Machine::long_enough(Dot dot, int variant, int64_t& steps) {
  for (;; steps *= 2) {
    const double seconds = best_of(kTries, [&] { return dot_seconds(dot, variant, steps); });
    if (seconds >= kDotSeconds) return seconds;
  }
}

double Machine::dot_speed(Dot dot) {
  DotPlan& plan = dots_[static_cast<size_t>(dot)];
  if (plan.steps == 0) plan = choose_dot(dot);
  const double seconds = long_enough(dot, plan.variant, plan.steps);
  return static_cast<double>(kernels::dot_operations(dot, plan.variant) * plan.steps) *
         static_cast<double>(pool_->threads() * kDotPieces) / seconds;
}

Limits Machine::measure(const std::array<bool, kernels::kDotCount>& wanted) {
  Limits limits;
  limits.bandwidth = read_bandwidth();
  for (size_t d = 0; d < wanted.size(); ++d) {
    const auto dot = static_cast<Dot>(d);
    if (wanted[d] && has(dot)) limits.dots[d] = dot_speed(dot);
  }
  return limits;
}

std::string utc_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  char text[32] = "";
  if (gmtime_r(&now, &parts) != nullptr) {
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  }
  return text;
}

std::optional<double> cache_line_round_trip() {
  if (machine_topology().at_once() < 2) return std::nullopt;
  // A thread that has lost its processor answers milliseconds later: few trips, and not for long.
  constexpr int kBatches = 200, kTrips = 100, kStop = -1;
  constexpr double kMostSeconds = 0.2;
  struct alignas(64) Line {
    std::atomic<int> turn{0};
  } line;
  std::thread other;
  try {
    other = std::thread([&line] {
      // An odd number is this thread's to answer with the next even one.
      for (int turn = 0; turn != kStop; turn = line.turn.load(std::memory_order_acquire)) {
        if (turn % 2 != 0) line.turn.store(turn + 1, std::memory_order_release);
      }
    });
  } catch (const std::system_error&) {
    return std::nullopt;
  }
  std::optional<double> best;
  const auto start = Clock::now();
  for (int i = 0, turn = 0; i < kBatches && seconds_since(start) < kMostSeconds; ++i) {
    const auto begin = Clock::now();
    for (int trip = 0; trip < kTrips; ++trip, turn += 2) {
      line.turn.store(turn + 1, std::memory_order_release);
      while (line.turn.load(std::memory_order_acquire) != turn + 2) {
      }
    }
    const double each = seconds_since(begin) / kTrips * 1e9;
    best = best ? std::min(*best, each) : each;
  }
  line.turn.store(kStop, std::memory_order_release);
  other.join();
  return best;
}

}  // namespace aerie::measure
