// The arithmetic of transformer layers on tensors that gradients flow through. All of it is what
// the engine computes for the same inputs, up to rounding.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>

#include "train/nn/documents.h"

namespace aerie::train {

// x [rows, width] / sqrt(mean x^2 + eps) * weight [width].
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// Cosines and sines of rotary embedding, plain (Su et al. 2104.09864): [rows, 1, dimension / 2].
struct Rotary {
  at::Tensor cos, sin;
};
// `positions`: int64 [rows].
Rotary make_rotary(const at::Tensor& positions, int64_t dimension, double base);
// x [rows, heads, dimension]: the halves of each head turn against each other, as in Hugging Face's
// files.
at::Tensor rotate(const at::Tensor& x, const Rotary& rotary);

// Keys and values that each row alone sees, beside those that it sees of other rows: EAGLE-3's
// training-time test (2503.01840, figure 6).
struct OwnEntry {
  at::Tensor k, v;  // [rows, kv heads, dimension]
};

// Attention within documents: a row sees its document's rows up to itself, and its own entries. q
// [rows, heads, dimension], k and v [rows, kv heads, dimension], kv heads divide heads; `window` of
// the newest keys, the row's own counted, 0: all. Returns [rows, heads * dimension]. Scores are
// scaled by 1 / sqrt(dimension).
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const Documents& documents, std::span<const OwnEntry> own = {},
                  int64_t window = 0);

// Some of the rows, ascending.
struct QueryRows {
  Documents documents;  // which of them belong to which document; those without any are empty
  at::Tensor rows;      // int64 [queries]
};
QueryRows query_rows(const Documents& documents, const at::Tensor& rows);

// The same for these rows alone: q and the own entries are theirs, in their order.
at::Tensor attend_from(const at::Tensor& q, const QueryRows& queries, const at::Tensor& k,
                       const at::Tensor& v, const Documents& documents,
                       std::span<const OwnEntry> own = {}, int64_t window = 0);

// Both ways to do it: a document after the other, and documents of about one length side by side,
// padded to the longest, so that a GPU has much to do at once.
at::Tensor attend_one_by_one(const at::Tensor& q, const QueryRows& queries, const at::Tensor& k,
                             const at::Tensor& v, const Documents& documents,
                             std::span<const OwnEntry> own, int64_t window);
at::Tensor attend_side_by_side(const at::Tensor& q, const QueryRows& queries, const at::Tensor& k,
                               const at::Tensor& v, const Documents& documents,
                               std::span<const OwnEntry> own, int64_t window);

}  // namespace aerie::train
