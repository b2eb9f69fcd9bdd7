// A pool of threads for data-parallel loops. Between `begin_round` and `end_round` the workers spin
// for work, so that a loop costs well under a microsecond to start and to join; outside they park,
// and a loop started there wakes them first.
#pragma once

#include <cstdint>
#include <memory>

namespace aerie {

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller, who works too: threads - 1 threads are started,
  // or as many as the system grants (with a warning): threads() tells. On a machine whose memory is
  // in several nodes they stay on one each (base/system/memory_nodes.h); the caller's thread is
  // left as it is.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls fn(begin, end, thread) so that the ranges cover [0, count) once, and returns when all
  // have returned. Each thread gets one contiguous range whose bounds (but for the last) are
  // multiples of `grain`, and always the same one for the same count and grain: what it writes
  // first in one loop is in the memory near it when another loop reads it. The range of a thread
  // that does not begin in time, since another program has its core, is run by the caller, as
  // thread 0, after its own: so `fn` must not wait for another thread, and which thread runs what
  // must not matter to the result. `fn` must not throw and must not call parallel_for. Only one
  // thread may use the pool at a time. Allocates nothing.
  template <typename Fn>
  void parallel_for(int64_t count, int64_t grain, const Fn& fn) {
    run(
        count, grain,
        [](const void* f, int64_t b, int64_t e, int t) { (*static_cast<const Fn*>(f))(b, e, t); },
        &fn);
  }

  // The same for work whose parts may take unequal time, such as that of a core that other programs
  // use too: each thread takes its range in pieces, multiples of `grain` of about `piece`, and then
  // what others have not begun of theirs. `fn` is called once for each piece. With a piece
  // of 0 it is parallel_for().
  template <typename Fn>
  void parallel_pieces(int64_t count, int64_t grain, int64_t piece, const Fn& fn) {
    run(
        count, grain,
        [](const void* f, int64_t b, int64_t e, int t) { (*static_cast<const Fn*>(f))(b, e, t); },
        &fn, piece);
  }

  // Brackets a burst of loops; calls nest.
  void begin_round();
  void end_round();

  // begin_round now, end_round at the end of the scope.
  class Round {
   public:
    explicit Round(ThreadPool& pool) : pool_(pool) { pool_.begin_round(); }
    ~Round() { pool_.end_round(); }
    Round(const Round&) = delete;
    Round& operator=(const Round&) = delete;

   private:
    ThreadPool& pool_;
  };

 private:
  using Body = void (*)(const void* fn, int64_t begin, int64_t end, int thread);
  // No piece: ranges are taken whole.
  void run(int64_t count, int64_t grain, Body body, const void* fn, int64_t piece = 0);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aerie
