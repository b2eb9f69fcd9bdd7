// Reads batches ahead, so that training does not wait for features.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "train/batches/batch_plan.h"
#include "train/batches/collate.h"
#include "train/batches/training_set.h"

namespace aerie::train {

struct LoaderOptions {
  PlanOptions plan;
  int step_batches = 1;  // of all processes in a step
  int rank = 0;          // batch i of a step is of process i % world
  int world = 1;
  int ahead = 2;            // batches kept ready
  bool for_device = false;  // see collate()
};

// Owns a thread, which reads from the set's features. Methods are for one other thread.
class Loader {
 public:
  // Begins with the step at `start`. The set must outlive it.
  Loader(const TrainingSet& set, const MethodNeeds& needs, const LoaderOptions& options,
         Position start);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // This process's next batch, epoch after epoch without end; waits for it. After an error there
  // are no more.
  Expected<Batch> next();

  // Collates samples that are not of the plan (validation), between the thread's own reads.
  Expected<Batch> read(const std::vector<const Sample*>& samples);

 private:
  void run(Position start);
  bool offer(Expected<Batch> batch);

  const TrainingSet& set_;
  MethodNeeds needs_;
  LoaderOptions options_;

  std::mutex source_mutex_;  // of the set's features
  std::mutex mutex_;         // of what follows
  std::condition_variable changed_;
  std::deque<Expected<Batch>> ready_;
  bool stop_ = false;
  std::thread thread_;
};

// Lengths of samples as plan_epoch() wants them.
std::vector<int64_t> lengths_of(const std::vector<const Sample*>& samples);

}  // namespace aerie::train
