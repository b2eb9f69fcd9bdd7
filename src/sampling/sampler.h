// Logits to a distribution to a token: bias, constraint mask, penalties, temperature, top-k, top-p,
// min-p, and the draw. Run lazily, only at the nodes that a verifier visits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/forward_batch.h"
#include "core/sampling_params.h"
#include "core/token_tree.h"
#include "sampling/adjust.h"
#include "sampling/context.h"
#include "sampling/draw.h"
#include "sampling/filters.h"
#include "sampling/noise.h"

namespace aerie {

// kInvalidArgument, naming the parameter, its value and its range, if one is out of range.
Status validate(const SamplingParams& params, int vocab);

// One for each sequence; keeps scratch memory, so that nothing is allocated once it has been warmed
// up. Every call depends on its arguments alone, so calls for the nodes of a tree may come in any
// order. Not thread-safe.
//
// Logits are [vocab] floats; NaN counts as -infinity, +infinity as the largest float. Where every
// token is at -infinity, the smallest id that the constraint allows is certain (LogitAdjuster::
// fallback). A bias of -infinity bans a token.
class Sampler {
 public:
  // Copies `params`. Requires validate(params, vocab).ok().
  Sampler(const SamplingParams& params, int vocab);

  const SamplingParams& params() const { return params_; }
  NoiseKey noise() const { return {params_.seed, params_.choice}; }

  // The target's own token: at temperature 0 the largest logit after bias, mask and penalties
  // (ties: smaller id); above it Gumbel-max (Maddison et al. 2014, 1411.0030) over the filtered
  // logits, argmax_i logit_i / T + gumbel(seed, position, i), which is distributed as
  // distribution().
  int32_t sample(std::span<const float> logits, const SamplingContext& context);

  // The distribution that sample() draws from. A point mass at temperature 0. Overwrites `out`.
  void distribution(std::span<const float> logits, const SamplingContext& context,
                    Distribution& out);

  // The same of a wanted row of a pass. Its logits are asked for only if the largest of them, where
  // the model has found it, does not decide: above temperature 0, and where anything adjusts them.
  int32_t sample(const ForwardOutputs& outputs, int row, const SamplingContext& context);
  void distribution(const ForwardOutputs& outputs, int row, const SamplingContext& context,
                    Distribution& out);

  // The `count` tokens that sample() comes closest to choosing, best first (fewer if fewer can
  // come): its own, what it would choose without that one, and so on. Scores: above temperature 0
  // what the draw compares, logit_i / T + gumbel(seed, position, i) less the largest logit / T; at
  // 0 the log of softmax (logits after bias, mask and penalties). Above temperature 0 differences
  // of logits, filtered as ever, are multiplied by `sharpness`, for one who knows them inexactly.
  // Requires count >= 1, sharpness > 0. Overwrites `out`.
  void ranking(std::span<const float> logits, const SamplingContext& context, int count,
               std::vector<ScoredToken>& out, double sharpness = 1.0);

  // Log-probabilities of the untouched logits (softmax at temperature 1, before bias, penalties and
  // filters, as OpenAI reports them): of `token` first, then of the params().logprobs likeliest,
  // best first (ties: smaller id). A token at -infinity has -infinity; such tokens are not among
  // the likeliest. Clears `out`, and leaves it empty if params().logprobs is -1.
  void logprobs(std::span<const float> logits, int32_t token, std::vector<TokenLogprob>& out) {
    logprobs(logits, token, params_.logprobs, out);
  }
  // The same with `count` in the place of params().logprobs.
  void logprobs(std::span<const float> logits, int32_t token, int count,
                std::vector<TokenLogprob>& out);

 private:
  // Logits after bias, mask and penalties, with the largest among them.
  struct Prepared {
    std::span<const float> logits;
    BestToken best;
  };
  const BestToken* decisive(const ForwardOutputs& outputs, int row,
                            const SamplingContext& context) const;
  int32_t token_of(const BestToken& best, const SamplingContext& context);
  Prepared prepare(std::span<const float> logits, const SamplingContext& context);

  SamplingParams params_;
  int vocab_;
  bool filters_;
  LogitAdjuster adjuster_;
  std::vector<TokenKey> keys_;
};

}  // namespace aerie
