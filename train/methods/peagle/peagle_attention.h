// Attention of P-EAGLE's rows, a few of them at a time: neither a mask of all rows by all keys nor
// their scores are ever there.
#pragma once

#include <ATen/ATen.h>

#include "train/methods/peagle/peagle_elements.h"

namespace aerie::train {

// [rows, kv heads, dimension].
struct Keys {
  at::Tensor k, v;
};

// A row sees the context up to its anchor and, if the rows are chains, `own` of its chain as far as
// ElementRows::ends says; else `own` is not read. q [rows, heads, dimension], kv heads divide
// heads. Returns [rows, heads * dimension]. Scores are scaled by 1 / sqrt(dimension); for gradients
// they are made anew.
at::Tensor attend_elements(const at::Tensor& q, const Keys& context, const Keys& own,
                           const ElementRows& rows);

}  // namespace aerie::train
