#include "train/methods/pass_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace aerie::train {
namespace {

// [rows, kv heads, dimension] of a document -> [kv heads, 1, rows, dimension].
at::Tensor of_document(const at::Tensor& x, int64_t begin, int64_t rows) {
  return x.narrow(0, begin, rows).transpose(0, 1).unsqueeze(1);
}

at::Tensor attend_document(const at::Tensor& q, std::span<const OwnEntry> passes, int64_t begin,
                           int64_t rows) {
  constexpr double kUnseen = -std::numeric_limits<double>::infinity();
  const at::Tensor keys = of_document(passes[0].k, begin, rows);
  const at::Tensor values = of_document(passes[0].v, begin, rows);
  const int64_t heads = q.size(1), kv_heads = keys.size(0), dimension = q.size(2);
  const at::Tensor queries = q.narrow(0, begin, rows)
                                 .view({rows, kv_heads, heads / kv_heads, dimension})
                                 .permute({1, 2, 0, 3});
  at::Tensor scores = at::matmul(queries, keys.transpose(2, 3)) +
                      at::full({rows, rows}, kUnseen, q.options().requires_grad(false)).triu(1);
  const int64_t last = static_cast<int64_t>(passes.size()) - 1, near = std::min(last, rows);
  const auto pass_back = [&](int64_t back) { return passes[static_cast<size_t>(last - back)]; };
  for (int64_t back = 0; back < near; ++back) {
    const at::Tensor key = of_document(pass_back(back).k, begin, rows - back);
    const at::Tensor own = (queries.narrow(2, back, rows - back) * key).sum(-1);
    scores = at::diagonal_scatter(scores, own, -back, 2, 3);
  }
  const at::Tensor weights = scores.softmax(-1);
  at::Tensor out = at::matmul(weights, values);
  for (int64_t back = 0; back < near; ++back) {
    const at::Tensor value = of_document(pass_back(back).v, begin, rows - back);
    const at::Tensor change =
        weights.diagonal(-back, 2, 3).unsqueeze(-1) * (value - values.narrow(2, 0, rows - back));
    out = out + at::constant_pad_nd(change, {0, 0, back, 0});
  }
  return out.permute({2, 0, 1, 3}).reshape({rows, heads * dimension});
}

}  // namespace

at::Tensor attend_passes(const at::Tensor& q, std::span<const OwnEntry> passes,
                         const Documents& documents) {
  const at::Tensor scaled = q * (1.0 / std::sqrt(static_cast<double>(q.size(2))));
  std::vector<at::Tensor> parts;
  parts.reserve(static_cast<size_t>(documents.count()));
  for (int64_t d = 0; d < documents.count(); ++d) {
    parts.push_back(attend_document(scaled, passes, documents.start(d), documents.length(d)));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
}

}  // namespace aerie::train
