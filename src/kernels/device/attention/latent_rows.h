// Rows around multi-head latent attention: parts of heads for the products with each head's
// matrix, and queries and keys to where attention takes them.
#pragma once

#include <cstdint>

#include "kernels/device/device.h"
#include "kernels/device/rows.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

// A thread has an element of a head of a row.
__global__ void __launch_bounds__(kRowThreads)
    narrow_heads_kernel(const __grid_constant__ NarrowHeads a) {
  simt::release_dependents();
  simt::wait_for_previous();
  const int row = static_cast<int>(blockIdx.y);
  const int i = static_cast<int>(blockIdx.x) * kRowThreads + static_cast<int>(threadIdx.x);
  const int head = i / a.width, n = i % a.width;
  if (row >= *a.rows || head >= a.heads) return;
  a.out[row * a.out_row + head * a.out_head + n] =
      simt::to_bf16(a.x[row * a.x_row + head * a.x_head + n]);
}

// A warp has the queries of a head of a row, or the row's key.
class PlaceLatentWarp {
 public:
  SIMT_DEV PlaceLatentWarp(const PlaceLatent& args, int row, int head, int slot)
      : a_(args), row_(row), head_(head), slot_(slot), lane_(static_cast<int>(threadIdx.x) % 32) {}

  SIMT_DEV void run() const {
    const int64_t dim = a_.rank + a_.rope;
    if (head_ < a_.heads) {
      const float* taken = a_.taken + (head_ * a_.taken_apart + row_) * a_.rank;
      uint16_t* q = a_.q + (static_cast<int64_t>(row_) * a_.heads + head_) * dim;
      for (int d = lane_; d < a_.rank; d += 32) q[d] = simt::to_f16(taken[d]);
      return turn(a_.turning + row_ * a_.turning_row + head_ * a_.turning_head, q + a_.rank);
    }
    const float* latent = a_.latent + row_ * a_.latent_row;
    uint16_t* key = a_.plane + slot_ * dim;
    float sum = 0.0f;
    for (int d = lane_; d < a_.rank; d += 32) sum = simt::fma(latent[d], latent[d], sum);
    const float inverse = inverse_root_mean(warp_sum(sum), a_.rank, a_.eps);
    for (int d = lane_; d < a_.rank; d += 32) {
      key[d] = simt::to_f16(latent[d] * inverse * a_.norm[d]);
    }
    turn(latent + a_.rank, key + a_.rank);
  }

 private:
  SIMT_DEV void turn(const float* x, uint16_t* out) const {
    const float* by = a_.turns + static_cast<int64_t>(row_) * a_.turns_stride;
    const int pairs = a_.rope / 2;
    for (int p = lane_; p < pairs; p += 32) {
      const int first = a_.halves ? p : 2 * p, second = a_.halves ? p + pairs : 2 * p + 1;
      const float u = x[first], v = x[second], c = by[p], s = by[pairs + p];
      out[first] = simt::to_f16(simt::fma(u, c, -(v * s)));
      out[second] = simt::to_f16(simt::fma(u, s, v * c));
    }
  }

  const PlaceLatent& a_;
  int row_, head_;
  int64_t slot_;
  int lane_;
};

__global__ void __launch_bounds__(kRowThreads)
    place_latent_kernel(const __grid_constant__ PlaceLatent a) {
  simt::release_dependents();
  simt::wait_for_previous();
  const int row = static_cast<int>(blockIdx.y);
  const int head =
      static_cast<int>(blockIdx.x) * (kRowThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  if (row >= a.pass.counts[kRowCount] || head > a.heads) return;
  PlaceLatentWarp(a, row, head, a.pass.rows[row].slot).run();
}

}  // namespace aerie::device
