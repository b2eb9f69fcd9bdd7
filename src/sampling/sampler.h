// Logits to a distribution to a token: bias, constraint mask, penalties, temperature, top-k, top-p,
// min-p, and the draw. Run lazily, only at the nodes that a verifier visits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/constraint.h"
#include "core/sampling_params.h"
#include "core/token_tree.h"
#include "sampling/noise.h"

namespace aerie {

// kInvalidArgument, naming the parameter, its value and its range, if one is out of range.
Status validate(const SamplingParams& params, int vocab);

// What comes before the token to be drawn: the committed tokens (prompt and output, the root
// included), then the tokens on the path from the root's child to the node. The token's absolute
// position is committed.size() + path.size().
struct SamplingContext {
  std::span<const int32_t> committed;
  std::span<const int32_t> path;
  const TokenConstraint* constraint = nullptr;  // in the state after the path; null: no constraint

  uint64_t position() const { return committed.size() + path.size(); }
};

struct TokenLogprob {
  int32_t token;
  float logprob;
};

// One for each sequence; keeps scratch memory, so that nothing is allocated once it has been warmed
// up. Not thread-safe. Logits are [vocab] floats; NaN counts as -infinity.
class Sampler {
 public:
  // Requires validate(params, vocab).ok().
  Sampler(const SamplingParams& params, int vocab);

  const SamplingParams& params() const { return params_; }
  NoiseKey noise() const { return {params_.seed, params_.choice}; }

  // The target's own token: at temperature 0 the largest logit after bias, mask and penalties (ties:
  // smaller id); above it Gumbel-max (Maddison et al. 2014, 1411.0030) over the filtered logits,
  // argmax_i logit_i / T + gumbel(seed, position, i), which is distributed as distribution().
  int32_t sample(std::span<const float> logits, const SamplingContext& context);

  // The distribution that sample() draws from. A point mass at temperature 0.
  void distribution(std::span<const float> logits, const SamplingContext& context,
                    Distribution& out);

  // Log-probabilities of the untouched logits (softmax at temperature 1, before bias, penalties and
  // filters, as OpenAI reports them): of `token` first, then of the params().logprobs likeliest, best
  // first. Clears `out`.
  void logprobs(std::span<const float> logits, int32_t token, std::vector<TokenLogprob>& out);
};

}  // namespace aerie
