// Attention by a mask that says it all.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace aerie::test {

// As attend(); `visible`: bool [queries, keys], with a key for each query.
inline at::Tensor attend_masked(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const at::Tensor& visible) {
  const int64_t heads = q.size(1), dimension = q.size(2);
  const auto for_heads = [&](const at::Tensor& x) {
    return x.transpose(0, 1).repeat_interleave(heads / x.size(1), 0);
  };
  const at::Tensor queries = q.transpose(0, 1) * (1.0 / std::sqrt(static_cast<double>(dimension)));
  const at::Tensor scores =
      at::bmm(queries, for_heads(k).transpose(1, 2))
          .masked_fill(visible.logical_not().unsqueeze(0), -std::numeric_limits<float>::infinity());
  return at::bmm(scores.softmax(-1), for_heads(v))
      .transpose(0, 1)
      .reshape({q.size(0), heads * dimension});
}

}  // namespace aerie::test
