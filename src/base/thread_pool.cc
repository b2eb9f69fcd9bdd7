#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/log.h"
#include "base/system/topology.h"

namespace aerie {
namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  // The yield instruction does nothing on most processors; this one waits about as long as x86's.
  asm volatile("isb" ::: "memory");
#else
  std::this_thread::yield();
#endif
}

// Spinning forever would starve the very thread that is waited for when both are on one core, so a
// wait longer than about 10 us gives the core away; with more threads than cores, any wait does.
// The caller waits as long for a thread to begin.
constexpr int kSpinsBeforeYield = 256;
constexpr int kSpinsWhenCrowded = 16;

// Where giving it away brought another program to the core, a thread sleeps a moment instead, for
// some time: schedulers let a thread that gave way come after all others, a whole time slice of
// each, but not one that slept.
constexpr std::chrono::microseconds kOthersRan(500);
constexpr std::chrono::milliseconds kCrowded(200);
constexpr std::chrono::microseconds kNap(10);

using Clock = std::chrono::steady_clock;
thread_local Clock::time_point crowded_until;

void give_way() {
  const Clock::time_point start = Clock::now();
  if (start < crowded_until) {
    std::this_thread::sleep_for(kNap);
    return;
  }
  std::this_thread::yield();
  const Clock::time_point end = Clock::now();
  if (end - start > kOthersRan) crowded_until = end + kCrowded;
}

template <typename Condition>
void spin_until(int spins_before_yield, const Condition& condition) {
  for (int spins = 0; !condition(); ++spins) {
    if (spins < spins_before_yield) {
      relax();
    } else {
      give_way();
    }
  }
}

}  // namespace

// The padding keeps what different threads write on different cache lines.
struct ThreadPool::Impl {
  int threads = 1;
  int spins = kSpinsBeforeYield;
  int round_depth = 0;
  std::vector<std::thread> workers;

  // The current loop; written before `generation` is raised, read after it is seen raised.
  Body body = nullptr;
  const void* fn = nullptr;
  int64_t count = 0;
  int64_t grain = 1;
  int64_t piece = 0;
  struct Range {
    // Of a thread's range, what nobody has taken; only used with pieces.
    alignas(64) std::atomic<int64_t> next{0};
    int64_t end = 0;
    // The last loop in which the thread's share was begun: by the thread, or by the caller in its
    // place. One ends only when all have been.
    alignas(64) std::atomic<uint64_t> begun{0};
  };
  std::vector<Range> ranges;
  bool alone = false;  // the caller did a share of another thread in the last loop

  alignas(64) std::atomic<uint64_t> generation{0};
  alignas(64) std::atomic<int> pending{0};
  alignas(64) std::atomic<bool> spinning{false};
  std::atomic<bool> stopping{false};
  std::mutex mutex;
  std::condition_variable wake;

  int64_t range_begin(int thread) const {
    const int64_t grains = (count + grain - 1) / grain;
    return std::min(count, grains * thread / threads * grain);
  }

  // Whether the share of `thread` in this loop is the one's who asks.
  bool begin_share(int thread, uint64_t loop) {
    uint64_t last = loop - 1;
    return ranges[static_cast<size_t>(thread)].begun.compare_exchange_strong(
        last, loop, std::memory_order_relaxed);
  }

  // What `thread` has to do in a loop, done by the thread `by`.
  void share(int thread, int by) {
    if (piece == 0) {
      const int64_t begin = range_begin(thread), end = range_begin(thread + 1);
      if (begin < end) body(fn, begin, end, by);
      return;
    }
    for (int t = 0; t < threads; ++t)
      take_pieces(ranges[static_cast<size_t>((thread + t) % threads)], by);
  }

  // By the caller, after its own share. A thread that has not begun by now may have to wait for a
  // core that another program has.
  void join(uint64_t loop) {
    const auto done = [&] { return pending.load(std::memory_order_acquire) == 0; };
    for (int spin = alone ? kSpinsWhenCrowded : spins; spin > 0 && !done(); --spin) relax();
    alone = false;
    if (done()) return;
    for (int t = 1; t < threads; ++t) {
      if (!begin_share(t, loop)) continue;
      alone = true;
      share(t, 0);
      pending.fetch_sub(1, std::memory_order_relaxed);
    }
    spin_until(spins, done);
  }

  void take_pieces(Range& range, int thread) const {
    // Looked at before it is taken from: others' ranges are mostly at their end.
    while (range.next.load(std::memory_order_relaxed) < range.end) {
      const int64_t begin = range.next.fetch_add(piece, std::memory_order_relaxed);
      if (begin >= range.end) return;
      body(fn, begin, std::min(range.end, begin + piece), thread);
    }
  }

  void work(int thread) {
    uint64_t seen = 0;
    for (;;) {
      const auto has_work = [&] { return generation.load(std::memory_order_acquire) != seen; };
      spin_until(spins, [&] { return has_work() || !spinning.load(std::memory_order_relaxed); });
      if (!has_work()) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return has_work() || spinning.load() || stopping.load(); });
        if (stopping.load()) return;
        if (!has_work()) continue;
      }
      seen = generation.load(std::memory_order_acquire);
      if (!begin_share(thread, seen)) continue;
      share(thread, thread);
      pending.fetch_sub(1, std::memory_order_release);
    }
  }

  void set_spinning(bool on) {
    {
      const std::lock_guard lock(mutex);
      spinning.store(on);
    }
    if (on) wake.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  assert(threads >= 1);
  impl_->ranges = std::vector<Impl::Range>(static_cast<size_t>(threads));
  const Topology machine = machine_topology();
  if (threads > machine.at_once()) impl_->spins = kSpinsWhenCrowded;
  impl_->workers.reserve(static_cast<size_t>(threads) - 1);
  try {
    for (int t = 1; t < threads; ++t) {
      std::vector<int> cpus;  // none: any
      if (machine.nodes.size() > 1) cpus = node_of_thread(machine.nodes, t, threads).cpus;
      impl_->workers.emplace_back([impl = impl_.get(), t, cpus = std::move(cpus)] {
        if (!cpus.empty()) bind_to_cpus(cpus);
        impl->work(t);
      });
    }
  } catch (const std::system_error& error) {
    log(LogLevel::kWarning, std::string("fewer threads than asked for: ") + error.what());
  }
  impl_->threads = static_cast<int>(impl_->workers.size()) + 1;
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping.store(true);
    impl_->spinning.store(false);
  }
  impl_->wake.notify_all();
  for (std::thread& worker : impl_->workers) worker.join();
}

int ThreadPool::threads() const {
  return impl_->threads;
}

void ThreadPool::begin_round() {
  if (impl_->round_depth++ == 0 && impl_->threads > 1) impl_->set_spinning(true);
}

void ThreadPool::end_round() {
  assert(impl_->round_depth > 0);
  if (--impl_->round_depth == 0 && impl_->threads > 1) impl_->set_spinning(false);
}

void ThreadPool::run(int64_t count, int64_t grain, Body body, const void* fn, int64_t piece) {
  if (count <= 0) return;
  Impl& impl = *impl_;
  if (impl.threads == 1 || count <= grain) {
    body(fn, 0, count, 0);
    return;
  }
  impl.body = body;
  impl.fn = fn;
  impl.count = count;
  impl.grain = grain;
  impl.piece = (piece + grain - 1) / grain * grain;
  for (int t = 0; piece > 0 && t < impl.threads; ++t) {
    Impl::Range& range = impl.ranges[static_cast<size_t>(t)];
    range.next.store(impl.range_begin(t), std::memory_order_relaxed);
    range.end = impl.range_begin(t + 1);
  }
  impl.pending.store(impl.threads - 1, std::memory_order_relaxed);
  const uint64_t loop = impl.generation.load(std::memory_order_relaxed) + 1;
  if (impl.round_depth > 0) {
    impl.generation.store(loop, std::memory_order_release);
  } else {
    // Under the mutex, so that a worker about to park cannot miss it.
    {
      const std::lock_guard lock(impl.mutex);
      impl.generation.store(loop, std::memory_order_release);
    }
    impl.wake.notify_all();
  }
  impl.share(0, 0);
  impl.join(loop);
}

}  // namespace aerie
