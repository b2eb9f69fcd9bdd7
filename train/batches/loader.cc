#include "train/batches/loader.h"

#include <algorithm>
#include <utility>

namespace aerie::train {

std::vector<int64_t> lengths_of(const std::vector<const Sample*>& samples) {
  std::vector<int64_t> lengths;
  lengths.reserve(samples.size());
  for (const Sample* sample : samples) {
    lengths.push_back(static_cast<int64_t>(sample->tokens.size()));
  }
  return lengths;
}

Loader::Loader(const TrainingSet& set, const MethodNeeds& needs, const LoaderOptions& options,
               Position start)
    : set_(set), needs_(needs), options_(options), thread_([this, start] { run(start); }) {}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Expected<Batch> Loader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty(); });
  // An error stays where it is: there is nothing behind it.
  if (!ready_.front().ok()) return ready_.front().status();
  Expected<Batch> batch = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return batch;
}

Expected<Batch> Loader::read(const std::vector<const Sample*>& samples) {
  const std::lock_guard lock(source_mutex_);
  return collate(samples, options_.plan.max_length, needs_, set_.features, options_.for_device);
}

bool Loader::offer(Expected<Batch> batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || static_cast<int>(ready_.size()) < options_.ahead; });
  const bool more = !stop_ && batch.ok();
  ready_.push_back(std::move(batch));
  lock.unlock();
  changed_.notify_all();
  return more;
}

void Loader::run(Position start) {
  const std::vector<int64_t> lengths = lengths_of(set_.training);
  for (Position at = start;; at = {at.epoch + 1, 0}) {
    const std::vector<BatchSamples> plan = plan_epoch(lengths, options_.plan, at.epoch);
    for (size_t i = static_cast<size_t>(at.next); i < plan.size(); ++i) {
      // Steps begin anew with every epoch, so a batch's place in its step follows from `i`.
      const int in_step = static_cast<int>(i % static_cast<size_t>(options_.step_batches));
      if (in_step % options_.world != options_.rank) continue;
      std::vector<const Sample*> samples;
      for (const int32_t place : plan[i]) {
        samples.push_back(set_.training[static_cast<size_t>(place)]);
      }
      if (!offer(read(samples))) return;
    }
  }
}

}  // namespace aerie::train
