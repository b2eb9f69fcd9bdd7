#include "verify/dice.h"

#include <cassert>

#include "sampling/inverse_cdf.h"

namespace aerie {

bool NoiseDice::accept(int node, int attempt, double probability) {
  assert(node >= 0 && node < 1 << 16 && attempt >= 0 && attempt < 1 << 16);
  const uint32_t place = (static_cast<uint32_t>(node) << 16) + static_cast<uint32_t>(attempt);
  return noise_uniform(key_, NoiseStream::kAccept, root_position_, place) < probability;
}

int32_t NoiseDice::draw(int node, const Distribution& distribution) {
  assert(node >= -1 && node + 1 < 1 << 16);
  const uint32_t place = static_cast<uint32_t>(node + 1);  // the root is place 0
  return inverse_cdf(distribution,
                     noise_uniform(key_, NoiseStream::kResidual, root_position_, place << 16));
}

}  // namespace aerie
