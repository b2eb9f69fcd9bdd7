// What becomes of the products of experts.
#pragma once

#include <cstdint>

#include "kernels/device/rows.h"

namespace aerie::device {

// A block has a part of a row.
__global__ void __launch_bounds__(kRowThreads)
    add_experts_kernel(const __grid_constant__ AddExperts a) {
  simt::release_dependents();
  const int row = static_cast<int>(blockIdx.y);
  const bool is_row = row < *a.rows;
  simt::wait_for_previous();
  if (!is_row) return;
  const int n = static_cast<int>(blockIdx.x) * kRowThreads + static_cast<int>(threadIdx.x);
  const bool is_there = n < a.width;
  float sum = 0.0f;
  if (is_there) {
    float* x = a.x + static_cast<int64_t>(row) * a.x_stride + n;
    sum = *x;
    for (int i = row * a.used; i < (row + 1) * a.used; ++i) {
      sum = simt::fma(a.weights[i], a.y[static_cast<int64_t>(a.places[i]) * a.y_stride + n], sum);
    }
    if (a.shared != nullptr) {
      float by = a.shared_scale;
      if (a.shared_gates != nullptr) {
        const float gate = a.shared_gates[static_cast<int64_t>(row) * a.gates_stride];
        by = simt::divide(by, 1.0f + simt::exp(-gate));
      }
      sum = simt::fma(by, a.shared[static_cast<int64_t>(row) * a.shared_stride + n], sum);
    }
    *x = sum;
  }
  make_next(a.next, row, n, is_there, sum);
}

// Element n of what a row's experts give, by their weights.
SIMT_DEV float expert_sum(const AddBeside& a, int row, int n) {
  float sum = 0.0f;
  for (int i = row * a.used; i < (row + 1) * a.used; ++i) {
    sum = simt::fma(a.weights[i], a.y[static_cast<int64_t>(a.places[i]) * a.y_stride + n], sum);
  }
  return sum;
}

// A block has a row, a thread the same elements of it throughout.
__global__ void __launch_bounds__(kRowThreads)
    add_beside_kernel(const __grid_constant__ AddBeside a) {
  auto& shared = simt::shared<RowShared>();
  const int row = row_of_block(a.rows), thread = static_cast<int>(threadIdx.x);
  if (row < 0) return;
  float* beside = a.beside + static_cast<int64_t>(row) * a.beside_stride;
  float* x = a.x + static_cast<int64_t>(row) * a.x_stride;
  float squares = 0.0f;
  for (int n = thread; n < a.width; n += kRowThreads) {
    const float sum = expert_sum(a, row, n);
    squares = simt::fma(sum, sum, squares);
  }
  const float of_experts = inverse_root_mean(block_sum(shared, squares), a.width, a.eps);
  const float of_beside = row_inverse_rms(shared, beside, a.width, a.eps);
  squares = 0.0f;
  for (int n = thread; n < a.width; n += kRowThreads) {
    const float both = simt::fma(beside[n] * of_beside, a.beside_norm[n],
                                 expert_sum(a, row, n) * of_experts * a.expert_norm[n]);
    beside[n] = both;
    squares = simt::fma(both, both, squares);
  }
  const float inverse = inverse_root_mean(block_sum(shared, squares), a.width, a.eps);
  for (int n = thread; n < rounded_up(a.width, kRowThreads); n += kRowThreads) {
    const bool is_there = n < a.width;
    float sum = 0.0f;
    if (is_there) {
      sum = simt::fma(beside[n] * inverse, a.norm[n], x[n]) * a.scale;
      x[n] = sum;
    }
    make_next(a.next, row, n, is_there, sum);
  }
}

}  // namespace aerie::device
