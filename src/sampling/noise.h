// The random numbers of a request. Each is a pure function of what it is for, so the draws of one
// run can be made again in another whatever was proposed in between.
//
// Layout: Philox4x32-10 with the seed as key and the counter
//   word 0: b / 2 (b odd takes the block's second half),
//   words 1 and 2: a, with the stream in the two uppermost bits,
//   word 3: the choice,
// so that no two of (seed, choice, stream, a, b) share a number.
#pragma once

#include <cstdint>

#include "base/philox.h"
#include "sampling/philox_tops.h"

namespace aerie {

// Disjoint streams: the target's own choice of tokens, and for the rules that compare with a
// proposal (rejection, block, traversal) the drawing of drafts, their acceptance and the residual.
// Noise keyed by position alone and used again after a rejection would bias those.
enum class NoiseStream : uint32_t { kTarget = 0, kDraft = 1, kAccept = 2, kResidual = 3 };

struct NoiseKey {
  uint64_t seed = 0;
  uint32_t choice = 0;
};

// A uniform in (0, 1) for (stream, a, b). Target: a = absolute position of the token to be drawn,
// b = token id. Others: a = the root's position, b = place * 2^16 + attempt, the place being the
// node's index (kDraft, kAccept), or one more than the index of the node that the token follows
// (kResidual; 0 behind the root). Requires a < 2^62.
double noise_uniform(NoiseKey key, NoiseStream stream, uint64_t a, uint32_t b);

// The logarithm that all noise goes through: one routine, the same bits on every machine, within
// 1 ulp. Requires 0 < x < infinity.
double noise_log(double x);

// Standard Gumbel noise, -log(-log(u)), in (-3.7, kMaxGumbel).
inline double gumbel_of(double u) {
  return -noise_log(-noise_log(u));
}
inline constexpr double kMaxGumbel = 36.8;  // 53 log 2 = 36.737 at the largest uniform

// That of the target: gumbel_of(noise_uniform(key, kTarget, position, token)).
double target_gumbel(NoiseKey key, uint64_t position, int32_t token);

// The leading 32 bits of the uniforms behind target_gumbel of tokens first .. first + kNoiseBlock -
// 1: a cheap bound on their noise. Requires an even `first`.
inline constexpr int kNoiseBlock = static_cast<int>(kPhiloxTops);
void target_noise_block(NoiseKey key, uint64_t position, int32_t first, uint32_t out[kNoiseBlock]);

}  // namespace aerie
