// What a pass of the target costs by its rows, its sequences and the context that they look back
// on: measured in under a second when a model is loaded, and corrected by every pass that is run.
#pragma once

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

  // A pass took so long. One pass moves the estimate little, since any may have been disturbed.
  void learn(const Pass& pass, double seconds);

  // As corrected.
  std::span<const Point> points() const { return points_; }

 private:
  struct Place {
    size_t below, above;
    double share;  // of `above`; more than 1 beyond the last
  };
  Place place(double rows) const;

  std::vector<Point> points_;
};

struct PassCostLimits {
  int max_rows = 1;             // no larger pass is run
  double budget_seconds = 0.3;  // begins no further measurement after this
};

// Times passes of `model` on `cache`, which must have room for a sequence and some positions, and
// is left as it was. One row and 16 (or max_rows, if those are fewer) are measured however long
// they take. Errors are those of the cache.
Expected<PassCost> measure_pass_cost(Model& model, KvCache& cache, const PassCostLimits& limits);

}  // namespace aerie
