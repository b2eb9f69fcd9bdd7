// What lies between ranks, and what a pass costs by it.
#pragma once

#include <cstdint>

#include "parallel/rank_group.h"

namespace aerie {

struct Link {
  double latency = 0.0;    // seconds until all ranks have a few bytes of all others
  double bandwidth = 0.0;  // bytes a second that a rank gives, all receivers together
};

// All ranks at once: the leader's are the figures that count (medians of runs of several gathers).
Link measure_link(Group& group);

// A pass of a model that `ranks` share, as measured.
struct RankedPass {
  int ranks = 1;
  double alone = 0.0;  // seconds in what everybody computes
  double split = 0.0;  // in what is dealt out
  int64_t messages = 0;
  int64_t bytes = 0;  // that all ranks together tell, each counted once
};

// What that pass would take with so many ranks of the same threads each, and such a link: the parts
// become smaller, and a rank gives its share of the bytes to each other one.
double predicted_seconds(const RankedPass& pass, int ranks, const Link& link);

}  // namespace aerie
