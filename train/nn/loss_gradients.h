// The divergences of losses.h with their gradients, row by row and in place: autograd would go
// through a vocabulary of floats a dozen times for each row.
#pragma once

#include <ATen/ATen.h>

#include "train/nn/losses.h"

namespace aerie::train {

// Both [rows, tokens], contiguous, of one type (float or bfloat16) and on one device. Returns
// divergence(kind, target_logits, draft_logits), float [rows]; `draft_logits` then holds the
// gradients of `scale` times each with respect to what it held.
at::Tensor divergence_to_gradients(Divergence kind, const at::Tensor& target_logits,
                                   const at::Tensor& draft_logits, double scale);

// The same out of operations on whole tensors, for devices that are no memory.
at::Tensor divergence_by_tensors(Divergence kind, const at::Tensor& target_logits,
                                 const at::Tensor& draft_logits, double scale);

// The place of the largest of each row, of equals the first: int64 [rows].
at::Tensor likeliest(const at::Tensor& logits);

}  // namespace aerie::train
