#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace aerie::thread_pool_test {

using Clock = std::chrono::steady_clock;

double process_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs the calling thread, and what it starts, on the first CPU of its mask until the end of scope.
class OneCpu {
 public:
  OneCpu() {
    EXPECT_EQ(sched_getaffinity(0, sizeof(saved_), &saved_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &saved_)) {
        CPU_SET(cpu, &one);
        break;
      }
    }
    EXPECT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  }
  ~OneCpu() { sched_setaffinity(0, sizeof(saved_), &saved_); }
  OneCpu(const OneCpu&) = delete;
  OneCpu& operator=(const OneCpu&) = delete;

 private:
  cpu_set_t saved_;
};

// One loop: every index once, at most as many ranges as threads, the same ones each time, bounds at
// multiples of the grain. Plain ints, so that the thread sanitizer sees whether the pool orders the
// work against its caller.
void check_loop(ThreadPool& pool, int64_t count, int64_t grain) {
  SCOPED_TRACE(testing::Message() << "threads " << pool.threads() << " count " << count << " grain "
                                  << grain);
  std::vector<int> visits(static_cast<size_t>(count), 0);
  std::vector<int64_t> ends(static_cast<size_t>(count), 0);  // of the range that begins there
  std::atomic<int> ranges = 0;
  std::atomic<bool> sound = true;
  pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int thread) {
    ++ranges;
    if (begin >= end || begin % grain != 0 || (end != count && end % grain != 0)) sound = false;
    if (thread < 0 || thread >= pool.threads()) sound = false;
    ends[static_cast<size_t>(begin)] = end;
    for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
  });
  EXPECT_TRUE(sound);
  EXPECT_LE(ranges, pool.threads());
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(visits[static_cast<size_t>(i)], 1) << "index " << i;
  pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int) {
    if (ends[static_cast<size_t>(begin)] != end) sound = false;
  });
  EXPECT_TRUE(sound) << "ranges differ from one time to the next";
}

// The same in pieces.
void check_pieces(ThreadPool& pool, int64_t count, int64_t grain, int64_t piece) {
  SCOPED_TRACE(testing::Message() << "threads " << pool.threads() << " count " << count << " grain "
                                  << grain << " piece " << piece);
  std::vector<int> visits(static_cast<size_t>(count), 0);
  std::atomic<bool> sound = true;
  pool.parallel_pieces(count, grain, piece, [&](int64_t begin, int64_t end, int thread) {
    if (begin >= end || begin % grain != 0 || (end != count && end % grain != 0)) sound = false;
    if (thread < 0 || thread >= pool.threads()) sound = false;
    for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
  });
  EXPECT_TRUE(sound);
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(visits[static_cast<size_t>(i)], 1) << "index " << i;
}

void check_many_loops(ThreadPool& pool) {
  for (const int64_t count : {1, 2, 3, 7, 8, 31, 64, 100, 1000}) {
    for (const int64_t grain : {1, 2, 3, 16, 64, 2000}) {
      check_loop(pool, count, grain);
      check_pieces(pool, count, grain, 1 + count % 7);
    }
  }
}

TEST(ThreadPool, CoversTheRangeOnceOutsideRounds) {
  for (int threads = 1; threads <= 8; ++threads) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    check_many_loops(pool);
  }
}

TEST(ThreadPool, CoversTheRangeOnceInRounds) {
  for (int threads = 1; threads <= 8; ++threads) {
    ThreadPool pool(threads);
    for (int round = 0; round < 3; ++round) {
      const ThreadPool::Round scope(pool);
      check_many_loops(pool);
    }
  }
}

TEST(ThreadPool, CoversTheRangeOnceAcrossRoundBoundaries) {
  for (int threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    for (int round = 0; round < 300; ++round) {
      check_loop(pool, 40, 3);
      const ThreadPool::Round scope(pool);
      check_loop(pool, 41, 1);
      if (round % 3 == 0) check_loop(pool, 7, 2);
    }
  }
}

TEST(ThreadPool, RoundsNest) {
  ThreadPool pool(2);
  pool.begin_round();
  {
    const ThreadPool::Round inner(pool);
    check_loop(pool, 100, 1);
  }
  check_loop(pool, 100, 1);
  pool.end_round();
  check_loop(pool, 100, 1);
}

TEST(ThreadPool, EmptyRangeCallsNothing) {
  ThreadPool pool(3);
  for (const int64_t count : {0, -1}) {
    pool.parallel_for(count, 4, [](int64_t, int64_t, int) { ADD_FAILURE() << "called"; });
  }
}

// Each range takes long enough for the others to begin.
TEST(ThreadPool, AllThreadsTakePart) {
  ThreadPool pool(4);
  const ThreadPool::Round round(pool);
  std::vector<int64_t> lengths(4, 0);
  const auto start = Clock::now();
  // Other work may keep a thread from beginning in time.
  for (bool all = false; !all && seconds_since(start) < 20;) {
    std::ranges::fill(lengths, 0);
    pool.parallel_for(400, 1, [&](int64_t begin, int64_t end, int thread) {
      lengths[static_cast<size_t>(thread)] += end - begin;
      const auto begun = Clock::now();
      while (seconds_since(begun) < 1e-3) std::this_thread::yield();
    });
    all = std::ranges::find(lengths, 0) == lengths.end();
  }
  EXPECT_EQ(lengths, (std::vector<int64_t>{100, 100, 100, 100}));
}

// On one core a thread that waits for work has to wait for the core as well.
TEST(ThreadPool, TheCallerRunsWhatOthersDoNotBegin) {
  const OneCpu pinned;
  ThreadPool pool(2);
  const ThreadPool::Round round(pool);
  int taken_over = 0;
  for (int loop = 0; loop < 1000; ++loop) {
    std::vector<int> by(2, -1);
    pool.parallel_for(
        2, 1, [&](int64_t begin, int64_t, int thread) { by[static_cast<size_t>(begin)] = thread; });
    ASSERT_EQ(by[0], 0);
    ASSERT_TRUE(by[1] == 0 || by[1] == 1) << by[1];
    taken_over += by[1] == 0;
  }
  EXPECT_GT(taken_over, 500);
}

// The first piece that the caller begins ends only when the others have done everything else.
TEST(ThreadPool, PiecesOfASlowThreadAreTakenByOthers) {
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    const ThreadPool::Round round(pool);
    std::atomic<int64_t> done_by_others = 0, done_by_caller = 0;
    pool.parallel_pieces(120, 1, 10, [&](int64_t begin, int64_t end, int thread) {
      if (thread != 0) {
        done_by_others += end - begin;
        return;
      }
      const auto start = Clock::now();
      while (done_by_caller == 0 && done_by_others < 110 && seconds_since(start) < 20) {
        std::this_thread::yield();
      }
      done_by_caller += end - begin;
    });
    EXPECT_EQ(done_by_caller, 10);
    EXPECT_EQ(done_by_others, 110);
  }
}

TEST(ThreadPool, LoopsSeeTheWritesOfTheLoopBefore) {
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    const ThreadPool::Round scope(pool);
    std::vector<int64_t> a(257), b(257);
    std::iota(a.begin(), a.end(), 0);
    // Every loop reads what other threads wrote in the one before.
    for (int step = 0; step < 200; ++step) {
      pool.parallel_for(257, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          b[static_cast<size_t>(i)] = a[static_cast<size_t>((i * 100 + 1) % 257)] + 1;
        }
      });
      a.swap(b);
    }
    std::vector<int64_t> want(257), next(257);
    std::iota(want.begin(), want.end(), 0);
    for (int step = 0; step < 200; ++step) {
      for (int64_t i = 0; i < 257; ++i) {
        next[static_cast<size_t>(i)] = want[static_cast<size_t>((i * 100 + 1) % 257)] + 1;
      }
      want.swap(next);
    }
    EXPECT_EQ(a, want);
  }
}

double seconds_per_loop(ThreadPool& pool, int loops) {
  const Clock::time_point start = Clock::now();
  std::vector<int64_t> sums(static_cast<size_t>(pool.threads()) * 8, 0);
  for (int loop = 0; loop < loops; ++loop) {
    pool.parallel_for(64, 1, [&](int64_t begin, int64_t end, int thread) {
      sums[static_cast<size_t>(thread) * 8] += end - begin;
    });
  }
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t{0}), int64_t{64} * loops);
  return seconds_since(start) / loops;
}

// The limits are far above what an idle machine needs, since other work may hold its cores.
TEST(ThreadPool, SmallLoopsAreQuick) {
  for (const int threads : {1, 2, 4, 8}) {
    ThreadPool pool(threads);
    const double parked = seconds_per_loop(pool, 500);
    const ThreadPool::Round scope(pool);
    const double spinning = seconds_per_loop(pool, 5000);
    std::printf("%d threads: %.2f us a loop in a round, %.2f us outside\n", threads, 1e6 * spinning,
                1e6 * parked);
    EXPECT_LT(spinning, threads <= 2 ? 1e-3 : 4e-3);
    EXPECT_LT(parked, 20e-3);
  }
}

TEST(ThreadPool, MoreThreadsThanCpusStillAdvance) {
  const OneCpu pinned;
  ThreadPool pool(4);
  const ThreadPool::Round scope(pool);
  const double spinning = seconds_per_loop(pool, 500);
  std::printf("4 threads on one CPU: %.2f us a loop\n", 1e6 * spinning);
  EXPECT_LT(spinning, 20e-3);
}

// Whether threads take no time: where others have the cores, some come to it later.
bool are_parked() {
  double taken = 1.0;
  for (int i = 0; i < 20 && taken >= 0.02; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const double before = process_cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    taken = process_cpu_seconds() - before;
  }
  return taken < 0.02;
}

TEST(ThreadPool, ParksBetweenRounds) {
  ThreadPool pool(4);
  for (int round = 0; round < 3; ++round) {
    {
      const ThreadPool::Round scope(pool);
      check_loop(pool, 100, 1);
    }
    EXPECT_TRUE(are_parked());
  }
}

TEST(ThreadPool, NeverUsedPoolIsParked) {
  const ThreadPool pool(8);
  EXPECT_TRUE(are_parked());
}

TEST(ThreadPool, DestructionAtAnyMoment) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    { const ThreadPool never_used(4); }
    {
      ThreadPool parked(3);
      check_loop(parked, 10, 1);
      if (repeat % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    {
      ThreadPool after_round(3);
      const ThreadPool::Round scope(after_round);
      check_loop(after_round, 10, 1);
    }
    {
      ThreadPool in_round(3);
      in_round.begin_round();
      if (repeat % 2 == 0) check_loop(in_round, 10, 1);
    }
  }
}

}  // namespace aerie::thread_pool_test
