#include "tests/decode/pairwise_plan.h"

#include <functional>
#include <numeric>
#include <utility>

namespace aerie {
namespace {

// The digits of `number`, the first factor's the lowest.
void set_digits(int number, const std::vector<int>& sizes, size_t begin, size_t end,
                std::vector<int>& out) {
  for (size_t i = begin; i < end; ++i) {
    out[i] = number % sizes[i];
    number /= sizes[i];
  }
}

}  // namespace

PairwisePlan::PairwisePlan(std::vector<int> sizes, size_t full, int times)
    : sizes_(std::move(sizes)) {
  for (const int size : sizes_) {
    offsets_.push_back(values_);
    all_pairs_ += values_ * size;
    values_ += size;
  }
  met_.assign(static_cast<size_t>(values_) * static_cast<size_t>(values_), 0);
  const auto middle = sizes_.begin() + static_cast<std::ptrdiff_t>(full);
  const int leading = std::accumulate(sizes_.begin(), middle, 1, std::multiplies<>());
  const int others = std::accumulate(middle, sizes_.end(), 1, std::multiplies<>());
  for (int n = 0; n < times * leading; ++n) {
    Combination best(sizes_.size()), c(sizes_.size());
    int most = -1;
    for (int rest = 0; rest < others; ++rest) {
      set_digits(n, sizes_, 0, full, c);
      // Starting elsewhere each time spreads what does not matter.
      set_digits((rest + 37 * n) % others, sizes_, full, sizes_.size(), c);
      const int gain = new_pairs(c);
      if (gain > most) most = gain, best = c;
    }
    for (size_t i = 0; i < best.size(); ++i) {
      for (size_t j = i + 1; j < best.size(); ++j) met(best, i, j) = 1;
    }
    covered_ += most;
    combinations_.push_back(std::move(best));
  }
}

char& PairwisePlan::met(const Combination& c, size_t i, size_t j) {
  return met_[static_cast<size_t>((offsets_[i] + c[i]) * values_ + offsets_[j] + c[j])];
}

int PairwisePlan::new_pairs(const Combination& c) {
  int count = 0;
  for (size_t i = 0; i < c.size(); ++i) {
    for (size_t j = i + 1; j < c.size(); ++j) count += met(c, i, j) == 0 ? 1 : 0;
  }
  return count;
}

}  // namespace aerie
