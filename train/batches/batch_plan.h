// Which samples make up which batch: a pure function of seed and epoch, so that a run that goes on
// sees what it would have seen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aerie::train {

struct PlanOptions {
  int64_t batch_tokens = 2048;  // rows of a batch, if its samples do not end with more or fewer
  int64_t max_length = 2048;    // of a sample; what is longer is cut
  uint64_t seed = 1;
  // Share of the epochs that the oldest sample has a part in; the newest, which stand last, have in
  // all, those between in proportion.
  double oldest = 1.0;
};

// Places of samples; not empty, and of at most batch_tokens rows unless it is a single sample.
using BatchSamples = std::vector<int32_t>;

// The batches of an epoch, from 0: all samples once (but for PlanOptions::oldest), in an order that
// seed and epoch give. `lengths` are those of the samples, none 0.
std::vector<BatchSamples> plan_epoch(std::span<const int64_t> lengths, const PlanOptions& options,
                                     int64_t epoch);

// The same in the samples' own order.
std::vector<BatchSamples> plan_in_order(std::span<const int64_t> lengths,
                                        const PlanOptions& options);

// A seed of its own for every batch of every step.
uint64_t batch_seed(uint64_t seed, int64_t step, int64_t batch);

// Where a run stands in its data: `next` of the epoch's batches are done.
struct Position {
  int64_t epoch = 0;
  int64_t next = 0;

  bool operator==(const Position&) const = default;
};

}  // namespace aerie::train
