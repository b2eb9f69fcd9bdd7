#include "sampling/inverse_cdf.h"

#include <algorithm>
#include <cassert>

namespace aerie {

int32_t inverse_cdf(const Distribution& distribution, double uniform) {
  assert(distribution.size() > 0);
  double cumulative = 0;
  for (size_t i = 0; i + 1 < distribution.size(); ++i) {
    cumulative += distribution.probs[i];
    if (uniform < cumulative) return distribution.ids[i];
  }
  return distribution.ids.back();
}

int32_t inverse_cdf_without(const Distribution& distribution, std::span<const int32_t> taken,
                            double uniform) {
  const auto is_left = [&](size_t i) {
    return std::ranges::find(taken, distribution.ids[i]) == taken.end();
  };
  double left = 0;
  for (size_t i = 0; i < distribution.size(); ++i) left += is_left(i) ? distribution.probs[i] : 0.0;
  int32_t last = -1;
  double cumulative = 0;
  for (size_t i = 0; i < distribution.size(); ++i) {
    if (!is_left(i)) continue;
    last = distribution.ids[i];
    cumulative += distribution.probs[i];
    if (uniform * left < cumulative) break;
  }
  return last;
}

}  // namespace aerie
