// What heads of a state space give, with a share of their values, gated and normed by groups, as
// the next product takes it.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/linear/linear_ops.h"
#include "kernels/device/warp_sums.h"

namespace aerie::device {

inline constexpr int kGroupThreads = 256;

struct GateGroupsShared {
  float sums[kGroupThreads / 32];
};

// A block has a group of a row.
__global__ void __launch_bounds__(kGroupThreads)
    gate_groups_kernel(const __grid_constant__ GateGroups a) {
  auto& shared = simt::shared<GateGroupsShared>();
  simt::release_dependents();
  simt::wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.y;
  if (row >= *a.rows) return;
  const int first = static_cast<int>(blockIdx.x) * a.width;
  const float *x = a.x + row * a.x_stride, *values = a.values + row * a.values_stride,
              *gates = a.gates + row * a.gates_stride;
  const auto gated = [&](int at) {
    return activated(Glu::kSilu, gates[at]) * simt::fma(a.skip[at / a.dim], values[at], x[at]);
  };
  float squares = 0.0f;
  SIMT_UNROLL_BY(1)
  for (int i = thread; i < a.width; i += kGroupThreads) {
    const float y = gated(first + i);
    squares = simt::fma(y, y, squares);
  }
  squares = warp_sum(squares);
  if (thread % 32 == 0) shared.sums[thread / 32] = squares;
  __syncthreads();
  float sum = 0.0f;
  SIMT_UNROLL
  for (int i = 0; i < kGroupThreads / 32; ++i) sum += shared.sums[i];
  const float by = inverse_root_mean(sum, a.width, a.eps);
  uint16_t* out = a.out + row * a.out_stride;
  SIMT_UNROLL_BY(1)
  for (int i = thread; i < a.width; i += kGroupThreads) {
    out[first + i] = simt::to_bf16(gated(first + i) * by * a.norm[first + i]);
  }
}

}  // namespace aerie::device
