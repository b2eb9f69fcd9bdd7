// Which rows a drafter learns from.
#pragma once

#include <ATen/ATen.h>

#include "train/batches/batch.h"

namespace aerie::train {

// Row t is asked in step j for the token at t + 2 + j, with the token at t + 1 + j known; both are
// to be tokens that the target generated, as they are where it drafts. 1 or 0: float [rows].
inline at::Tensor supervised_rows(const Batch& batch, int64_t step) {
  return batch.shifted(batch.mask, step + 1) * batch.shifted(batch.mask, step + 2);
}

// Their places: int64 [some], ascending.
inline at::Tensor places_of(const at::Tensor& asked) {
  return asked.nonzero().squeeze(1);
}

}  // namespace aerie::train
