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
class GroupGate {
 public:
  static constexpr int kAtOnce = 4;  // elements of a thread that are asked for together
  static constexpr int kStep = kAtOnce * kGroupThreads;

  SIMT_DEV GroupGate(const GateGroups& args, int group, int64_t row)
      : a_(args),
        first_(group * args.width),
        x_(args.x + row * args.x_stride + first_),
        values_(args.values + row * args.values_stride + first_),
        gates_(args.gates + row * args.gates_stride + first_),
        out_(args.out + row * args.out_stride + first_) {}

  SIMT_DEV float squares() const {
    float sum = 0.0f;
    float y[kAtOnce];
    SIMT_UNROLL_BY(1)
    for (int from = static_cast<int>(threadIdx.x); from < a_.width; from += kStep) {
      read(from, y);
      for_each(from, [&](int i, int) { sum = simt::fma(y[i], y[i], sum); });
    }
    return sum;
  }
  SIMT_DEV void write(float by) const {
    float y[kAtOnce];
    SIMT_UNROLL_BY(1)
    for (int from = static_cast<int>(threadIdx.x); from < a_.width; from += kStep) {
      read(from, y);
      for_each(from,
               [&](int i, int at) { out_[at] = simt::to_bf16(y[i] * by * a_.norm[first_ + at]); });
    }
  }

 private:
  // use(i, element) of the thread's elements from this one on.
  template <typename Use>
  SIMT_DEV void for_each(int from, const Use& use) const {
    SIMT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = from + i * kGroupThreads;
      if (at < a_.width) use(i, at);
    }
  }
  // Gated.
  SIMT_DEV void read(int from, float (&y)[kAtOnce]) const {
    float values[kAtOnce], gates[kAtOnce], skip[kAtOnce];
    for_each(from, [&](int i, int at) {
      y[i] = x_[at];
      values[i] = values_[at];
      gates[i] = gates_[at];
      skip[i] = a_.skip[(first_ + at) / a_.dim];
    });
    for_each(from, [&](int i, int) {
      y[i] = activated(Glu::kSilu, gates[i]) * simt::fma(skip[i], values[i], y[i]);
    });
  }

  const GateGroups& a_;
  int first_;
  const float *x_, *values_, *gates_;
  uint16_t* out_;
};

__global__ void __launch_bounds__(kGroupThreads)
    gate_groups_kernel(const __grid_constant__ GateGroups a) {
  auto& shared = simt::shared<GateGroupsShared>();
  simt::release_dependents();
  simt::wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.y;
  if (row >= *a.rows) return;
  const GroupGate gate(a, static_cast<int>(blockIdx.x), row);
  const float squares = warp_sum(gate.squares());
  if (thread % 32 == 0) shared.sums[thread / 32] = squares;
  __syncthreads();
  float sum = 0.0f;
  SIMT_UNROLL
  for (int i = 0; i < kGroupThreads / 32; ++i) sum += shared.sums[i];
  gate.write(inverse_root_mean(sum, a.width, a.eps));
}

}  // namespace aerie::device
