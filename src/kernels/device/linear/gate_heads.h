// What heads give, normed and gated, as the next product takes it.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/device.h"
#include "kernels/device/warp_sums.h"

namespace aerie::device {

inline constexpr int kGateThreads = 256;
inline constexpr int kGateEach = kMostHeadDim / 32;  // elements of a lane

// A warp has a head of a row.
class GateWarp {
 public:
  SIMT_DEV GateWarp(const GateHeads& args, int row, int head)
      : a_(args),
        lane_(static_cast<int>(threadIdx.x) % 32),
        out_(args.out + static_cast<int64_t>(row) * args.out_stride + head * args.dim),
        x_(args.x != nullptr ? args.x + static_cast<int64_t>(row) * args.x_stride + head * args.dim
                             : nullptr),
        gates_(args.gates + static_cast<int64_t>(row) * args.gates_stride +
               static_cast<int64_t>(head) * args.gates_apart) {}

  SIMT_DEV void run() const {
    float x[kGateEach], gates[kGateEach];
    float squares = 0.0f;
    SIMT_UNROLL
    for (int i = 0; i < kGateEach; ++i) {
      const int at = i * 32 + lane_;
      x[i] = gates[i] = 0.0f;
      if (at >= a_.dim) continue;
      x[i] = x_ != nullptr ? x_[at] : simt::from_bf16(out_[at]);
      gates[i] = gates_[at];
      squares = simt::fma(x[i], x[i], squares);
    }
    float by = 1.0f;
    if (a_.norm != nullptr) by = inverse_root_mean(warp_sum(squares), a_.dim, a_.eps);
    SIMT_UNROLL
    for (int i = 0; i < kGateEach; ++i) {
      const int at = i * 32 + lane_;
      if (at >= a_.dim) continue;
      if (a_.norm != nullptr) x[i] = x[i] * by * a_.norm[at];
      out_[at] = simt::to_bf16(x[i] * factor(gates[i]));
    }
  }

 private:
  SIMT_DEV float factor(float gate) const {
    if (a_.by == GateHeads::By::kItself) return gate;
    return simt::divide(a_.by == GateHeads::By::kSilu ? gate : 1.0f, 1.0f + simt::exp(-gate));
  }

  const GateHeads& a_;
  int lane_;
  uint16_t* out_;
  const float* x_;
  const float* gates_;
};

__global__ void __launch_bounds__(kGateThreads)
    gate_heads_kernel(const __grid_constant__ GateHeads a) {
  simt::release_dependents();
  simt::wait_for_previous();
  const int row = static_cast<int>(blockIdx.y);
  const int head =
      static_cast<int>(blockIdx.x) * (kGateThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  if (row < *a.rows && head < a.heads) GateWarp(a, row, head).run();
}

}  // namespace aerie::device
