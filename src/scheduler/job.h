// A request as the scheduler has it, from its arrival to its end.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "decode/sequence.h"

namespace aerie {

using JobId = uint64_t;

enum class JobEnd : uint8_t {
  kFinished,   // Sequence::finish says how
  kCancelled,  // by Scheduler::cancel()
  kDeadline,   // passed
  kFailed,     // a Status says why
};

// What becomes of a job. Called within Scheduler::step() and cancel().
class JobListener {
 public:
  virtual ~JobListener() = default;
  // A pass emitted `sequence.emitted`, at least one token.
  virtual void on_tokens(const Sequence& sequence) = 0;
  // The last call. `status` is ok but for kFailed; `sequence` is null if the job never ran.
  virtual void on_end(JobEnd end, const Status& status, const Sequence* sequence) = 0;
};

struct Job {
  using Clock = std::chrono::steady_clock;

  JobId id = 0;
  std::vector<int32_t> prompt;
  // Its stop condition, like the listener, must outlive the job.
  SequenceOptions options;
  JobListener* listener = nullptr;
  int priority = 0;    // lower ones first
  std::string client;  // clients of one priority take turns, by what each has got
  std::optional<Clock::time_point> deadline;

  // The scheduler's.
  uint64_t arrival = 0;                    // a number that rises
  std::unique_ptr<Sequence> sequence;      // null before its first pass
  std::optional<Clock::time_point> began;  // its first pass
  int preemptions = 0;
  bool held = false;  // from the last pass, by its constraint
};

}  // namespace aerie
