// Attention over keys of which the newest come from a head's own earlier passes.
#pragma once

#include <ATen/ATen.h>

#include <span>

#include "train/nn/documents.h"
#include "train/nn/ops.h"

namespace aerie::train {

// Attention within documents, as attend(), of queries q [rows, heads, dimension] in the last of
// `passes`, number j: row r sees row c <= r of its document as pass j - (r - c) made it, and as the
// first pass did where there is no such pass. Each entry is of all rows. Returns
// [rows, heads * dimension].
at::Tensor attend_passes(const at::Tensor& q, std::span<const OwnEntry> passes,
                         const Documents& documents);

}  // namespace aerie::train
