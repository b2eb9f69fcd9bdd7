// What one step trains on: some samples side by side, with what the target holds for them.
#pragma once

#include <ATen/ATen.h>

#include "train/nn/documents.h"

namespace aerie::train {

struct Batch {
  Documents documents;   // rows are tokens; each document is one sample
  at::Tensor tokens;     // int64 [rows]
  at::Tensor positions;  // int64 [rows], from 0 in each document
  at::Tensor mask;       // float [rows]: 1 where the target generated the token, else 0
  // Streams that enter the layers that the method named, side by side: float [rows, taps * hidden].
  at::Tensor taps;
  // The stream behind the target's last layer, before the final norm: float [rows, hidden].
  at::Tensor last;
  // On the way to a device both of these are here instead, side by side, in 16 bits.
  at::Tensor features;      // bfloat16 [rows, tap_columns and those of `last`]
  int64_t tap_columns = 0;  // 0: there are no taps

  // The values of x [rows, ...] that lie `by` rows further on in the same document; zeros behind
  // a document's end.
  at::Tensor shifted(const at::Tensor& x, int64_t by) const;
};

}  // namespace aerie::train
