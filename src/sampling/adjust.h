// The first part of the sampling pipeline, whatever the temperature: logit bias, constraint mask,
// penalties.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/sampling_params.h"
#include "sampling/context.h"

namespace aerie {

// Keeps scratch memory, allocated when first needed. Not thread-safe. Logits are [vocab] floats.
class LogitAdjuster {
 public:
  explicit LogitAdjuster(int vocab) : vocab_(static_cast<size_t>(vocab)) {}

  // The adjusted logits: `logits` itself if nothing touches them, else a copy that holds until the
  // next call. Each step is computed in double and rounded to float. +infinity (in `logits`, or by
  // overflow) becomes the largest float; -infinity and NaN mean that the token cannot come.
  // The penalties count the last penalty_window tokens of committed, then path; ids outside the
  // vocabulary are passed over.
  std::span<const float> adjust(std::span<const float> logits, const SamplingParams& params,
                                const SamplingContext& context);

  // Whether adjust() would change more than +infinity.
  static bool touches(const SamplingParams& params, const SamplingContext& context);

  // `logits` with +infinity replaced by the largest float: `logits` itself if there is none, else a
  // copy that holds until the next call.
  std::span<const float> bounded(std::span<const float> logits);

  // What to emit where adjust() left no token: the smallest id that the constraint allows, if
  // possible one without a bias of -infinity. 0 where there is none at all.
  int32_t fallback(const SamplingParams& params, const TokenConstraint* constraint);

 private:
  void apply_bias(const SamplingParams& params);
  void apply_mask(const TokenConstraint& constraint);
  void apply_penalties(const SamplingParams& params, const SamplingContext& context);
  std::span<bool> mask_of(const TokenConstraint& constraint);

  size_t vocab_;
  std::vector<float> adjusted_;
  std::vector<int32_t> counts_;  // all zero between calls
  std::unique_ptr<bool[]> allowed_;
};

}  // namespace aerie
