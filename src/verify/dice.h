// The two kinds of chance in a rule that compares with a proposal. Rules see nothing else of the
// random numbers, so a test can play every outcome of the very code that runs, with its
// probability.
#pragma once

#include <cstdint>

#include "core/token_tree.h"
#include "sampling/noise.h"

namespace aerie {

class Dice {
 public:
  virtual ~Dice() = default;

  // True with `probability`, in [0, 1]: surely at 1, never at 0. `attempt` counts the proposals of
  // `node` from 0. Independent for different (node, attempt); called at most once for each.
  virtual bool accept(int node, int attempt, double probability) = 0;
  // A token of `distribution`, which is not empty, for the place after `node` (-1: the root).
  // Called at most once for each place.
  virtual int32_t draw(int node, const Distribution& distribution) = 0;
};

// The request's own: acceptance from NoiseStream::kAccept, tokens from kResidual, keyed by the
// root's position, the node and the attempt. Node and attempt
// are below 2^16 - 1.
class NoiseDice final : public Dice {
 public:
  NoiseDice(NoiseKey key, uint64_t root_position) : key_(key), root_position_(root_position) {}

  bool accept(int node, int attempt, double probability) override;
  int32_t draw(int node, const Distribution& distribution) override;

 private:
  NoiseKey key_;
  uint64_t root_position_;
};

}  // namespace aerie
