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
  // Reads what no launch writes.
  SIMT_DEV GateWarp(const GateHeads& args, int row, int head)
      : a_(args),
        lane_(static_cast<int>(threadIdx.x % 32)),
        out_(args.out + static_cast<int64_t>(row) * args.out_stride + head * args.dim),
        x_(args.x != nullptr ? args.x + static_cast<int64_t>(row) * args.x_stride + head * args.dim
                             : nullptr),
        gates_(args.gates + static_cast<int64_t>(row) * args.gates_stride +
               static_cast<int64_t>(head) * args.gates_apart) {
    if (a_.norm == nullptr) return;
    for_lane([&](int i, int at) { norm_[i] = a_.norm[at]; });
  }

  SIMT_DEV void run() const {
    float x[kGateEach], gates[kGateEach];
    read(x);
    for_lane([&](int i, int at) { gates[i] = gates_[at]; });
    if (a_.norm != nullptr) {
      float squares = 0.0f;
      for_lane([&](int i, int) { squares = simt::fma(x[i], x[i], squares); });
      const float by = inverse_root_mean(warp_sum(squares), a_.dim, a_.eps);
      for_lane([&](int i, int) { x[i] = x[i] * by * norm_[i]; });
    }
    for_lane([&](int i, int at) { out_[at] = simt::to_bf16(x[i] * factor(gates[i])); });
  }

 private:
  // use(i, element) of the lane's elements.
  template <typename Use>
  SIMT_DEV void for_lane(const Use& use) const {
    SIMT_UNROLL
    for (int i = 0; i < kGateEach; ++i) {
      const int at = i * 32 + lane_;
      if (at < a_.dim) use(i, at);
    }
  }
  SIMT_DEV void read(float (&x)[kGateEach]) const {
    if (x_ != nullptr) return for_lane([&](int i, int at) { x[i] = x_[at]; });
    for_lane([&](int i, int at) { x[i] = simt::from_bf16(out_[at]); });
  }
  SIMT_DEV float factor(float gate) const {
    if (a_.by == GateHeads::By::kItself) return gate;
    return simt::divide(a_.by == GateHeads::By::kSilu ? gate : 1.0f, 1.0f + simt::exp(-gate));
  }

  const GateHeads& a_;
  int lane_;
  uint16_t* out_;
  const float* x_;
  const float* gates_;
  float norm_[kGateEach];
};

__global__ void __launch_bounds__(kGateThreads)
    gate_heads_kernel(const __grid_constant__ GateHeads a) {
  simt::release_dependents();
  const int row = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.x * (kGateThreads / 32) + threadIdx.x / 32);
  // What a pass is told no launch writes.
  if (row >= *a.rows || head >= a.heads) return simt::wait_for_previous();
  const GateWarp of(a, row, head);
  simt::wait_for_previous();
  of.run();
}

}  // namespace aerie::device
