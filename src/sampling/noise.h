// The random numbers of a request. Each is a pure function of what it is for, so the draws of one
// run can be made again in another whatever was proposed in between.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace aerie {

// Disjoint streams: the target's own choice of tokens, and for the rules that compare with a
// proposal (rejection, block) the drawing of drafts, their acceptance and the residual. Noise keyed
// by position alone and used again after a rejection would bias those.
enum class NoiseStream : uint32_t { kTarget = 0, kDraft = 1, kAccept = 2, kResidual = 3 };

struct NoiseKey {
  uint64_t seed = 0;
  uint32_t choice = 0;
};

// A uniform in (0, 1) for (stream, a, b). Target: a = absolute position of the token to be drawn,
// b = token id. Others: a = the root's position, b = node * 2^16 + attempt.
double noise_uniform(NoiseKey key, NoiseStream stream, uint64_t a, uint32_t b);

// The logarithm that all noise goes through: one routine, the same bits on every machine. x > 0.
double noise_log(double x);

// Standard Gumbel noise of the target: -log(-log(u)) with u = noise_uniform(key, kTarget, position,
// token).
double target_gumbel(NoiseKey key, uint64_t position, int32_t token);

}  // namespace aerie
