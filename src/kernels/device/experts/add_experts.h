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

}  // namespace aerie::device
