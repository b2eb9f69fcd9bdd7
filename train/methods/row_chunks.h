// Losses over a whole vocabulary, of some rows at a time: the logits of a batch with their
// gradients would take gigabytes.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace aerie::train {

inline constexpr int64_t kRowsInChunk = 256;

// Calls loss(part, begin), a scalar, with the rows begin, begin + 1, ... of x [rows, width], chunk
// by chunk. Where gradients are on, those of scale * (sum of the losses) are added to all
// parameters that `loss` itself reads, and the one of x is returned, [rows, width], for what lies
// before x; undefined otherwise.
template <typename Loss>
at::Tensor loss_in_chunks(const at::Tensor& x, double scale, const Loss& loss) {
  const bool train = at::GradMode::is_enabled();
  std::vector<at::Tensor> gradients;
  for (int64_t begin = 0; begin < x.size(0); begin += kRowsInChunk) {
    const int64_t rows = std::min(kRowsInChunk, x.size(0) - begin);
    const at::Tensor part = x.detach().narrow(0, begin, rows).set_requires_grad(train);
    const at::Tensor value = loss(part, begin);
    if (!train) continue;
    (value * scale).backward();
    gradients.push_back(part.grad());
  }
  return gradients.empty() ? at::Tensor() : at::cat(gradients, 0);
}

}  // namespace aerie::train
