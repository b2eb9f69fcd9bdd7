// Continuous batching: in every pass, a round for each sequence that decodes and pieces of the
// prompts of those that came since.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "decode/decoder.h"
#include "kv/kv_cache.h"
#include "scheduler/job.h"
#include "scheduler/waiting_jobs.h"

namespace aerie {

struct SchedulerOptions {
  int max_sequences = 64;   // decoded together; no more than cache and drafters take
  int max_pass_rows = 512;  // of rounds, without their drafts, and of pieces; rounds come first
};

struct SchedulerStats {
  int running = 0;
  int waiting = 0;
  int64_t preemptions = 0;
  int64_t preempted_tokens = 0;  // that had been read and were given up
  int64_t prompt_tokens = 0;     // of jobs that began
  int64_t reused_tokens = 0;     // of them, that were in the cache
};

// Jobs begin in the order of WaitingJobs. Where the cache is full, a running job of the highest
// priority number that has least to lose gives up what was computed for it and waits again; the
// first to come never does. A job whose prompt begins like one
// of its tenant that is being read waits for that, rather than reading the same beside it.
//
// Not thread-safe. Decoder and cache are not owned and must outlive it. The cache must have room
// for one sequence at its longest and a page more, in which it goes on if its last one is shared;
// and in layers with windows for those of one, and the rows of a pass.
class Scheduler {
 public:
  Scheduler(Decoder& decoder, KvCache& cache, const SchedulerOptions& options)
      : decoder_(decoder), cache_(cache), options_(options) {}
  // Cancels what is left.
  ~Scheduler();

  void add(std::unique_ptr<Job> job);
  // No matter if it has ended.
  void cancel(JobId id);
  bool idle() const { return running_.empty() && waiting_.size() == 0; }

  // One pass, or less if there is nothing to do. Whatever goes wrong is told to the jobs that it
  // concerns. A job whose constraint is not ready has no part in the pass; false: there was none,
  // because all have to wait for that (GrammarPool's on_progress tells when to try again).
  bool step();

  SchedulerStats stats() const;
  // Tokens of the running jobs that are still to be read.
  int64_t unread() const;

 private:
  void expire();
  void admit();
  bool must_wait_for_prefix(const Job& job);
  bool has_room(const Job& job) const;
  bool has_room_in_windows(size_t length) const;
  Status begin(Job& job);
  void compose();
  void bound_logits();
  int readable(Job& job);
  Status pass();
  bool preempt();
  void deliver();
  void end(std::unique_ptr<Job> job, JobEnd how, const Status& status);

  Decoder& decoder_;
  KvCache& cache_;
  SchedulerOptions options_;
  WaitingJobs waiting_;
  std::vector<std::unique_ptr<Job>> running_;  // in the order in which they began or went on
  uint64_t arrivals_ = 0;
  SchedulerStats stats_;
  // Scratch of a pass.
  std::vector<Sequence*> rounds_;
  std::vector<PromptPiece> pieces_;
};

}  // namespace aerie
