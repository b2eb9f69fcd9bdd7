// What a pass of the target costs by its rows, its sequences and the context that they look back
// on: measured in under a second when a model is loaded, and corrected by every pass that is run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace aerie {

// Not thread-safe.
class PassCost {
 public:
  // Of passes of one sequence.
  struct Point {
    int rows = 1;
    double seconds = 0.0;               // without any context
    double seconds_per_position = 0.0;  // for each position of context, all rows together
    // Of a mixture of experts: how many such a pass reads, of all layers together, if its tokens
    // are random, and what reading one costs.
    double experts = 0.0;
    double seconds_per_expert = 0.0;
  };
  struct Pass {
    int rows = 1;          // >= sequences
    int sequences = 1;     // >= 1
    double context = 0.0;  // positions that a sequence looks back on, in the mean
  };
  // Requires points with ascending rows >= 1 and positive seconds, at least one. Between them costs
  // are interpolated; beyond the last they rise as between the last two.
  explicit PassCost(std::vector<Point> points);

  // What is read of one sequence's context serves its own rows alone, so that a pass of many
  // sequences costs more than one of as many rows of one sequence.
  double seconds(const Pass& pass) const;

  // A pass took so long, and read so many experts. One pass moves the estimate little, since any
  // may have been disturbed.
  void learn(const Pass& pass, double seconds, int64_t experts = 0);

  // Of the experts that further rows of random tokens would read beyond those of one row, the part
  // that rows do read: neighbours in a text, and a draft and its root, have experts in common.
  double expert_share() const { return expert_share_; }

  // As corrected.
  std::span<const Point> points() const { return points_; }

 private:
  struct Place {
    size_t below, above;
    double share;  // of `above`; more than 1 beyond the last
  };
  Place place(double rows) const;
  double between(double rows, double Point::*what) const;
  double further_experts(int rows) const;
  double seconds(const Pass& pass, double expert_share) const;

  std::vector<Point> points_;
  double expert_share_ = 1.0;
  double passes_with_experts_ = 0.0;
};

struct PassCostLimits {
  int max_rows = 1;             // no larger pass is run
  double budget_seconds = 0.3;  // begins no further measurement after this
  int max_positions = 2048;     // no longer sequence: the model's own (ModelOptions)
};

// Times passes of `model` on `cache`, which must have room for a sequence and some positions, and
// is left as it was. One row and 16 (or max_rows, if those are fewer) are measured however long
// they take. Errors are those of the cache.
Expected<PassCost> measure_pass_cost(Model& model, KvCache& cache, const PassCostLimits& limits);

}  // namespace aerie
