#include "sampling/inverse_cdf.h"

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

}  // namespace aerie
