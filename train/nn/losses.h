// Distances of a drafter's distribution q from the target's p, row by row. All take logits
// [rows, tokens] and return [rows]; gradients flow through the drafter's alone.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie::train {

enum class Divergence : uint8_t {
  kForwardKl,              // sum p log(p / q)
  kReverseKl,              // sum q log(q / p)
  kJensenShannon,          // to the mean of both, half of each
  kTotalVariation,         // 1 - sum min(p, q): the chance that a drafted token is refused
  kNegativeLogAcceptance,  // -log sum min(p, q)
  // l KL + (1 - l) TV with l = exp(-3 acceptance), the acceptance taken as it is (2602.23881).
  kAcceptance,
};
// "kl", "reverse-kl", "js", "tv", "nla", "lk".
Expected<Divergence> parse_divergence(std::string_view name);
std::string_view divergence_name(Divergence divergence);

at::Tensor divergence(Divergence kind, const at::Tensor& target_logits,
                      const at::Tensor& draft_logits);

// Smooth L1 (Huber with a threshold of 1), the mean over the columns: [rows].
at::Tensor smooth_l1_rows(const at::Tensor& a, const at::Tensor& b);

// sum min(p, q): the chance that a token drawn from q is accepted. No gradient.
at::Tensor acceptance(const at::Tensor& target_logits, const at::Tensor& draft_logits);

}  // namespace aerie::train
