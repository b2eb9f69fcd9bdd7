// Figures of several batches and processes, put together.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "train/methods/training_method.h"
#include "train/run/groups/group.h"

namespace aerie::train {

// The sums of all processes' figures, the same in each; names that only some have count, too.
Expected<Figures> gather(const Figures& own, Group& group);

// Each sum over the weight, by name; none of weight 0.
std::vector<std::pair<std::string, double>> means(const Figures& figures);
// The mean of that name; 0 if there is none.
double mean_of(const Figures& figures, const std::string& name);

}  // namespace aerie::train
