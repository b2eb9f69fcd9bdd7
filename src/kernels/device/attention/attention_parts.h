// What the blocks of attention leave of chunks of positions, and how it is put together: eight
// chunks to a group, by the block that comes last of the group; then all groups, by the block that
// comes last of these. Groups count from position 0, so that a row's sums are the same whatever
// rows it is taken with; what sees nothing of a row adds nothing.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/device.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

inline constexpr int kGroupChunks = 8;

// A part: sums of values by shares, then the largest score and the sum of shares.
SIMT_BOTH constexpr int part_floats(int head_dim) {
  return head_dim + 4;
}
// Parts of a row and head: chunks, then groups of them, the first of which may be cut by a window.
SIMT_BOTH constexpr int parts_of(int chunks) {
  return chunks + chunks / kGroupChunks + 2;
}
// Counters of a block's rows and head of keys: of the groups, then of each one's chunks.
SIMT_BOTH constexpr int counters_of(int chunks) {
  return chunks / kGroupChunks + 3;
}

struct Parts {
  float* at;     // of one row and head
  int head_dim;  // part_floats() apart

  SIMT_DEV float* part(int i) const { return at + static_cast<int64_t>(i) * part_floats(head_dim); }
};

SIMT_DEV float warp_largest(float largest) {
  SIMT_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const float other = simt::shuffle_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  return largest;
}

// Four dimensions of the sum of parts, and the sum of their shares.
struct MergedSums {
  float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  float total = 0.0f;
};

// A warp's merge of a row and head: of `count` parts from `first` on.
class MergeWarp {
 public:
  SIMT_DEV MergeWarp(const Parts& parts, int first, int count)
      : parts_(parts), first_(first), count_(count), lane_(static_cast<int>(threadIdx.x) % 32) {}

  // The result becomes part `to`, or where that is negative what comes out of the row and head. A
  // sink is -infinity if there is none.
  SIMT_DEV void run(int to, float sink, uint16_t* out) const {
    for (int begin = 0; begin < parts_.head_dim; begin += 128) {
      const int d = begin + lane_ * 4;
      float largest;
      const MergedSums sums = merged(d, to < 0 ? sink : -infinity(), largest);
      if (d >= parts_.head_dim) continue;
      if (to < 0) {
        *reinterpret_cast<uint2*>(out + d) = {simt::pack_bf16(simt::divide(sums.v[0], sums.total),
                                                              simt::divide(sums.v[1], sums.total)),
                                              simt::pack_bf16(simt::divide(sums.v[2], sums.total),
                                                              simt::divide(sums.v[3], sums.total))};
        continue;
      }
      float* part = parts_.part(to);
      *reinterpret_cast<float4*>(part + d) = {sums.v[0], sums.v[1], sums.v[2], sums.v[3]};
      if (d != 0) continue;
      part[parts_.head_dim] = largest;
      part[parts_.head_dim + 1] = sums.total;
    }
  }

 private:
  static constexpr int kAtOnce = 8;  // parts whose loads are under way together
  struct Batch {
    float4 v[kAtOnce];
    float largest, sum;  // of part lane % kAtOnce
  };

  SIMT_DEV void load(Batch& batch, int from, int d) const {
    SIMT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      batch.v[i] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (from + i < count_ && d < parts_.head_dim) {
        batch.v[i] = *reinterpret_cast<const float4*>(parts_.part(first_ + from + i) + d);
      }
    }
    const int mine = from + lane_ % kAtOnce;
    const bool is_there = mine < count_;
    const float* end = parts_.part(first_ + (is_there ? mine : 0)) + parts_.head_dim;
    batch.largest = is_there ? end[0] : -infinity();
    batch.sum = is_there ? end[1] : 0.0f;
  }

  // Of four dimensions from d on.
  SIMT_DEV MergedSums merged(int d, float sink, float& largest) const {
    Batch batch;
    load(batch, 0, d);
    largest = sink;
    for (int i = lane_; i < count_; i += 32) {
      const float m = parts_.part(first_ + i)[parts_.head_dim];
      largest = m > largest ? m : largest;
    }
    largest = warp_largest(largest);
    MergedSums sums;
    if (sink != -infinity()) sums.total = simt::exp(sink - largest);
    for (int from = 0; from < count_; from += kAtOnce) {
      if (from > 0) load(batch, from, d);
      add(batch, largest, sums);
    }
    return sums;
  }

  SIMT_DEV static void add(const Batch& batch, float largest, MergedSums& sums) {
    // A part that sees nothing has no largest score.
    const bool hidden = batch.largest == -infinity();
    const float mine = hidden ? 0.0f : simt::exp(batch.largest - largest);
    SIMT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const float factor = simt::shuffle(mine, i);
      sums.total = simt::fma(factor, simt::shuffle(batch.sum, i), sums.total);
      sums.v[0] = simt::fma(factor, batch.v[i].x, sums.v[0]);
      sums.v[1] = simt::fma(factor, batch.v[i].y, sums.v[1]);
      sums.v[2] = simt::fma(factor, batch.v[i].z, sums.v[2]);
      sums.v[3] = simt::fma(factor, batch.v[i].w, sums.v[3]);
    }
  }

  Parts parts_;
  int first_, count_, lane_;
};

}  // namespace aerie::device
