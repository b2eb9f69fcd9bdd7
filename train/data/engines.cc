#include "train/data/engines.h"

#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "train/data/features/tap_recorder.h"

namespace aerie::train {
namespace {

AnswerCounts sum_of(const AnswerCounts& a, const AnswerCounts& b) {
  return {a.samples + b.samples,   a.prompt_tokens + b.prompt_tokens,   a.tokens + b.tokens,
          a.too_long + b.too_long, a.turns_left_out + b.turns_left_out, a.reading + b.reading};
}

// What one of the engines does.
struct Share {
  std::vector<AnswerTask> tasks;
  std::optional<TapRecorder> recorder;
  AnswerCounts counts;
  Status status;
};

// What all of them share while they answer.
struct Meeting {
  std::mutex mutex;
  std::vector<Share> shares;
  std::atomic<bool> stop = false;  // for all, if one fails or somebody wants it

  void hear(Share& share, const AnswerCounts& counts, const Engines::Calls& calls) {
    const std::lock_guard lock(mutex);
    share.counts = counts;
    if (calls.cancel != nullptr && calls.cancel->load()) stop = true;
    if (!calls.progress) return;
    AnswerCounts all;
    for (const Share& one : shares) all = sum_of(all, one.counts);
    calls.progress(all);
  }
  void end(Share& share, const Expected<AnswerCounts>& counts) {
    const std::lock_guard lock(mutex);
    if (counts.ok()) {
      share.counts = *counts;
    } else {
      share.status = counts.status();
      stop = true;
    }
  }
};

AnswerCalls calls_of(Share& share, Meeting& meeting, const Engines::Calls& calls) {
  AnswerCalls own;
  own.done = [&](Sample sample, std::vector<uint16_t> taps) {
    const std::lock_guard lock(meeting.mutex);
    return calls.done(std::move(sample), std::move(taps));
  };
  own.progress = [&](const AnswerCounts& counts) { meeting.hear(share, counts, calls); };
  own.cancel = &meeting.stop;
  if (!calls.tap_layers.empty()) own.recorder = &share.recorder.emplace(calls.tap_layers);
  return own;
}

}  // namespace

Expected<Engines> Engines::open(std::unique_ptr<RunningTarget> first,
                                const RunningTargetOptions& options, int count) {
  Engines engines;
  engines.targets_.resize(static_cast<size_t>(count));
  engines.targets_.front() = std::move(first);
  std::vector<Status> statuses(engines.targets_.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < statuses.size(); ++i) {
    threads.emplace_back([&, i] {
      auto opened = RunningTarget::open(options);
      statuses[i] = opened.status();
      if (opened.ok()) engines.targets_[i] = *std::move(opened);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Status& status : statuses) AERIE_RETURN_IF_ERROR(std::move(status));
  return engines;
}

Expected<AnswerCounts> Engines::answer(const ConversationFormat& format,
                                       const AnswerSettings& settings,
                                       const std::vector<AnswerTask>& tasks, const Calls& calls) {
  Meeting meeting;
  meeting.stop = calls.cancel != nullptr && calls.cancel->load();
  meeting.shares = std::vector<Share>(targets_.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    meeting.shares[i % targets_.size()].tasks.push_back(tasks[i]);
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < targets_.size(); ++i) {
    threads.emplace_back([&, i] {
      Share& share = meeting.shares[i];
      const AnswerCalls own = calls_of(share, meeting, calls);
      meeting.end(share, train::answer(*targets_[i], format, settings, share.tasks, own));
    });
  }
  for (std::thread& thread : threads) thread.join();
  AnswerCounts all;
  for (const Share& share : meeting.shares) {
    AERIE_RETURN_IF_ERROR(share.status);
    all = sum_of(all, share.counts);
  }
  return all;
}

}  // namespace aerie::train
