#include "train/batches/training_vocabulary.h"

#include <algorithm>
#include <numeric>

namespace aerie::train {

std::vector<int32_t> most_frequent(std::span<const int64_t> counts, int64_t size) {
  std::vector<int32_t> ids(counts.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&counts](int32_t a, int32_t b) {
    return counts[static_cast<size_t>(a)] > counts[static_cast<size_t>(b)];
  });
  ids.resize(std::min(ids.size(), static_cast<size_t>(size)));
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace aerie::train
