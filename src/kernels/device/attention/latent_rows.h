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
  const int row = static_cast<int>(blockIdx.y);
  const int i = static_cast<int>(blockIdx.x) * kRowThreads + static_cast<int>(threadIdx.x);
  const int head = i / a.width, n = i % a.width;
  const bool is_there = row < *a.rows && head < a.heads;
  simt::wait_for_previous();
  if (!is_there) return;
  a.out[row * a.out_row + head * a.out_head + n] =
      simt::to_bf16(a.x[row * a.x_row + head * a.x_head + n]);
}

// A warp has the queries of a head of a row, or the row's key. All that it needs is asked for
// before anything is written.
class PlaceLatentWarp {
 public:
  SIMT_DEV PlaceLatentWarp(const PlaceLatent& args, int row, int head, int slot)
      : a_(args), row_(row), head_(head), slot_(slot), lane_(static_cast<int>(threadIdx.x) % 32) {
    turn_ = turn_of(lane_);
    if (!is_query()) load(a_.norm, norm_);
  }

  // Once the launch before has ended.
  SIMT_DEV void run() const {
    const int64_t dim = a_.rank + a_.rope;
    Numbers x;
    if (is_query()) {
      uint16_t* q = a_.q + (static_cast<int64_t>(row_) * a_.heads + head_) * dim;
      load(a_.taken + (head_ * a_.taken_apart + row_) * a_.rank, x);
      turn(a_.turning + row_ * a_.turning_row + head_ * a_.turning_head, q + a_.rank);
      return put(x, q);
    }
    const float* latent = a_.latent + row_ * a_.latent_row;
    uint16_t* key = a_.plane + slot_ * dim;
    load(latent, x);
    turn(latent + a_.rank, key + a_.rank);
    float sum = 0.0f;
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) sum = simt::fma(x[i], x[i], sum);
    const float inverse = inverse_root_mean(warp_sum(sum), a_.rank, a_.eps);
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) x[i] = x[i] * inverse * norm_[i];
    put(x, key);
  }

 private:
  static constexpr int kEach = kMostLatentDim / 32;
  using Numbers = float[kEach];  // lane, lane + 32, ... of `rank`; zeros behind them

  SIMT_DEV bool is_query() const { return head_ < a_.heads; }

  SIMT_DEV void load(const float* from, Numbers& x) const {
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int d = i * 32 + lane_;
      x[i] = d < a_.rank ? from[d] : 0.0f;
    }
  }
  SIMT_DEV void put(const Numbers& x, uint16_t* out) const {
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int d = i * 32 + lane_;
      if (d < a_.rank) out[d] = simt::to_f16(x[i]);
    }
  }

  // Cosine and sine of a pair.
  SIMT_DEV float2 turn_of(int pair) const {
    const float* by = a_.turns + static_cast<int64_t>(row_) * a_.turns_stride;
    const int pairs = a_.rope / 2;
    if (pair >= pairs) return {1.0f, 0.0f};
    return {by[pair], by[pairs + pair]};
  }

  SIMT_DEV void turn(const float* x, uint16_t* out) const {
    const int pairs = a_.rope / 2;
    SIMT_UNROLL_BY(1)
    for (int p = lane_; p < pairs; p += 32) {
      const int first = a_.halves ? p : 2 * p, second = a_.halves ? p + pairs : 2 * p + 1;
      const float u = x[first], v = x[second];
      const float2 by = p < 32 ? turn_ : turn_of(p);
      out[first] = simt::to_f16(simt::fma(u, by.x, -(v * by.y)));
      out[second] = simt::to_f16(simt::fma(u, by.y, v * by.x));
    }
  }

  const PlaceLatent& a_;
  int row_, head_;
  int64_t slot_;
  int lane_;
  float2 turn_;   // of the lane's first pair
  Numbers norm_;  // of a key
};

__global__ void __launch_bounds__(kRowThreads)
    place_latent_kernel(const __grid_constant__ PlaceLatent a) {
  simt::release_dependents();
  const int row = static_cast<int>(blockIdx.y);
  const int head =
      static_cast<int>(blockIdx.x) * (kRowThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  // What a pass is told no launch writes.
  if (row >= a.pass.counts[kRowCount] || head > a.heads) return simt::wait_for_previous();
  const PlaceLatentWarp warp(a, row, head, a.pass.rows[row].slot);
  simt::wait_for_previous();
  warp.run();
}

}  // namespace aerie::device
