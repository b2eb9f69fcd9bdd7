// Products of many rows where groups of four warps multiply at once (Hopper): a block has kManyRows
// rows and 8 panels of outputs. Each of its 8 warps unpacks the weights of one panel in its
// registers and has the panel's sums there; activations come as ordered_rows.h has put them. The
// sums are those of product.h, in the same order.
#pragma once

#include <cstdint>

#include "kernels/device/epilogue.h"
#include "kernels/device/groups/group_weights.h"
#include "kernels/device/groups/ordered_rows.h"
#include "kernels/device/tile_outputs.h"

namespace aerie::device {

template <MatrixKind kKind>
struct GroupShape {
  using G = GroupStage<kKind>;
  static constexpr int kThreads = kTileThreads, kRows = kManyRows;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kBlockPanels = kWarps;
  static constexpr int kOutputs = kBlockPanels * kPanel;
  static constexpr int kPitch = kOutputs + 4;  // of sums: lanes touch all banks
  // Stages of activations, which come kRowDepth - 2 steps ahead: warps may be that far apart.
  static constexpr int kRowDepth = 5;
  static constexpr int kMostDepth =
      (kGroupMemory - 8 * 1024 - kRowDepth * 2 * kOrderedRowBytes) / (kWarps * G::kBytes);
  static constexpr int kDepth = kMostDepth > 6 ? 6 : kMostDepth;
  static_assert(kDepth >= 3);

  struct Loop {
    unsigned char rows[kRowDepth][2][kOrderedRowBytes];
    unsigned char weights[kWarps][kDepth][G::kBytes];
  };
  struct Shared {
    union {
      Loop loop;
      float sums[kRows][kPitch];
    };
    float inverse[kRows];
    float row_sums[G::kHasMinima ? kRowDepth : 1][2][2][kOrderedRows];  // [half][32 of k]
    simt::Barrier full[kRowDepth], empty[kRowDepth];
  };
  static_assert(sizeof(Shared) <= kGroupMemory);

  SIMT_DEV static void begin(Shared& shared) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kRowDepth; ++i) {
        simt::barrier_begin(shared.full[i], 1);
        simt::barrier_begin(shared.empty[i], kWarps);
      }
      simt::barriers_begun();
    }
    __syncthreads();
  }
};

template <MatrixKind kKind>
class GroupWarp {
 public:
  using S = GroupShape<kKind>;
  using G = GroupStage<kKind>;
  using Shared = typename S::Shared;
  using Unit = GroupUnit<kKind>;
  using Fragments = uint32_t[G::kFragments][4];

  SIMT_DEV GroupWarp(const ProductArgs& args, Shared& shared)
      : args_(args),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x / 32)),
        weights_(args, static_cast<int>(blockIdx.y) * S::kBlockPanels + warp_,
                 shared.loop.weights[warp_]) {}

  // The sums, to shared memory; false: the block has no rows.
  SIMT_DEV bool run() {
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < S::kDepth; ++i) weights_.ask(i < args_.steps, i, i);
    // Weights are there before the kernel that makes the activations is done.
    simt::wait_for_previous();
    const int rows = *args_.rows;
    if (static_cast<int>(blockIdx.x) * kManyRows >= rows) {
      simt::copy_wait<0>();
      return false;
    }
    if (threadIdx.x == 0) {
      SIMT_UNROLL_BY(1)
      for (int i = 0; i < S::kRowDepth && i < args_.steps; ++i) ask_for_rows(i, i);
    }
    find_norms();
    GroupSums totals[2];
    clear(totals[0]);
    clear(totals[1]);
    rows_ = simt::operand_of(shared_.loop.rows[0][0]);
    if constexpr (Unpack<kKind>::kScaleBytes > 0) {
      add_scaled(totals);
    } else {
      add_plain(totals);
    }
    simt::copy_wait<0>();
    __syncthreads();
    SIMT_UNROLL
    for (int i = 0; i < 16; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) {
        shared_.sums[i * 8 + lane_ % 4 * 2 + j % 2][warp_ * kPanel + lane_ / 4 + j / 2 * 8] =
            totals[i / 8][i % 8][j];
      }
    }
    __syncthreads();
    return true;
  }

 private:
  static constexpr int kPieces = kOrderedRowBytes / 16;  // of a half, as operands count them

  SIMT_DEV void find_norms() {
    if (args_.norm.squares == nullptr || threadIdx.x >= kManyRows) return;
    const int row = static_cast<int>(blockIdx.x * kManyRows + threadIdx.x);
    shared_.inverse[threadIdx.x] = ordered_norms(args_)[row];
  }

  SIMT_DEV void ask_for_rows(int step, int slot) {
    using O = Ordered<kKind>;
    simt::barrier_expect(shared_.full[slot], 2 * O::kBytes);
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const unsigned char* from = O::block(args_, static_cast<int>(blockIdx.x) * 2 + half, step);
      simt::copy_block(shared_.loop.rows[slot][half], from, kOrderedRowBytes, shared_.full[slot]);
      if constexpr (O::kHasSums) {
        simt::copy_block(shared_.row_sums[slot][half], from + kOrderedRowBytes, kOrderedSumBytes,
                         shared_.full[slot]);
      }
    }
  }

  // The rows of the step are there. One thread asks for those that take the place of the step's
  // before the last one, as soon as all warps have multiplied by these.
  SIMT_DEV void wait_for_rows(int step) {
    const int next = step - 2 + S::kRowDepth;
    if (threadIdx.x == 0 && step >= 2 && next < args_.steps) {
      const int slot = slot_ >= 2 ? slot_ - 2 : slot_ - 2 + S::kRowDepth;
      simt::barrier_wait(shared_.empty[slot], slot_ >= 2 ? phase_ : phase_ ^ 1);
      ask_for_rows(next, slot);
    }
    __syncwarp();
    simt::barrier_wait(shared_.full[slot_], phase_);
  }

  // The warp is done with the rows there.
  SIMT_DEV void free_rows(int slot) {
    if constexpr (G::kHasMinima) __syncwarp();
    if (lane_ == 0) simt::barrier_arrive(shared_.empty[slot]);
  }
  SIMT_DEV void next_rows() {
    if (++slot_ == S::kRowDepth) slot_ = 0, phase_ ^= 1;
  }
  SIMT_DEV void next_weights(int step) {
    weights_.next(step + S::kDepth < args_.steps, step + S::kDepth);
  }

  // The end of the segment that begins at `begin`; of none behind the last one.
  SIMT_DEV int find_end(int begin) {
    int end = begin;
    while (end == begin && segment_ < kSegments) end = segment_begin(args_.steps, ++segment_);
    return end;
  }

  // ------------------------------------------------------------ kinds without scales

  // One chain of products for a segment; the weights of two steps in registers, of which one's
  // products are under way.
  SIMT_DEV void add_plain(GroupSums (&totals)[2]) {
    Fragments weights[2];
    float sums[16][4];
    SIMT_UNROLL
    for (int i = 0; i < 16; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = 0.0f;
    }
    weights_.first();
    weights_.unpack(weights[0]);
    int end = find_end(0);
    bool adds = false;
    SIMT_UNROLL_BY(1)
    for (int step = 0; step < args_.steps; step += 2) {
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (step + i >= args_.steps) break;
        add_step(weights[i], weights[1 - i], step + i, adds, sums);
        if (step + i + 1 != end) continue;
        end = end_segment(end, sums, totals);
        adds = false;
      }
    }
    simt::group_wait<0>(sums);  // of nothing: the compiler does not know
  }

  SIMT_DEV void add_step(Fragments& weights, Fragments& others, int step, bool& adds,
                         float (&sums)[16][4]) {
    wait_for_rows(step);
    const uint64_t rows = rows_ + slot_ * (2 * kPieces);
    simt::group_fence();
    SIMT_UNROLL
    for (int i = 0; i < G::kFragments; ++i) {
      simt::group_mma_bf16(sums, weights[i], rows + i / Unpack<kKind>::kTerms * 2, adds || i > 0);
    }
    simt::group_commit();
    adds = true;
    simt::group_wait<1>();
    SIMT_UNROLL
    for (int i = 0; i < G::kFragments; ++i) simt::group_keep(others[i]);
    // The step before is done.
    if (step > 0) free_rows(slot_ == 0 ? S::kRowDepth - 1 : slot_ - 1);
    next_weights(step);
    weights_.unpack(others);
    next_rows();
  }

  SIMT_DEV int end_segment(int end, float (&sums)[16][4], GroupSums (&totals)[2]) {
    simt::group_wait<0>(sums);
    SIMT_UNROLL
    for (int i = 0; i < 16; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) totals[i / 8][i % 8][j] += sums[i][j];
    }
    return find_end(end);
  }

  // ------------------------------------------------------------ kinds with scales

  // While a group's products are under way it unpacks the next weights; the other group multiplies
  // while this one applies what came of them.
  SIMT_DEV void add_scaled(GroupSums (&totals)[2]) {
    Unit units[2];
    GroupSums sums[2];
    float d[16][4];
    clear(sums[0]);
    clear(sums[1]);
    weights_.first();
    weights_.unpack(0, units[0]);
    int end = find_end(0);
    wait_for_rows(0);
    SIMT_UNROLL_BY(1)
    for (int step = 0; step < args_.steps; ++step) {
      const int slot = slot_;
      SIMT_UNROLL
      for (int i = 0; i < G::kUnits; ++i) {
        units[i % 2].multiply(rows_ + slot * (2 * kPieces) + i * G::kUnit * 2, d);
        if (i + 1 == G::kUnits) next_weights(step);
        weights_.unpack((i + 1) % G::kUnits, units[1 - i % 2]);
        if (i + 1 == G::kUnits) {
          next_rows();
          if (step + 1 < args_.steps) wait_for_rows(step + 1);
        }
        simt::group_wait<0>(d);
        units[i % 2].keep();
        SIMT_UNROLL
        for (int half = 0; half < 2; ++half) {
          GroupSums part;
          SIMT_UNROLL
          for (int t = 0; t < 32; ++t) part[t / 4][t % 4] = d[half * 8 + t / 4][t % 4];
          const float* row_sums = G::kHasMinima ? shared_.row_sums[slot][half][i] : nullptr;
          units[i % 2].apply(part, row_sums, lane_, sums[half]);
        }
      }
      free_rows(slot);
      if (step + 1 == end) end = end_segment(end, sums, totals);
    }
  }

  SIMT_DEV int end_segment(int end, GroupSums (&sums)[2], GroupSums (&totals)[2]) {
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      SIMT_UNROLL
      for (int i = 0; i < 8; ++i) {
        SIMT_UNROLL
        for (int j = 0; j < 4; ++j) totals[half][i][j] += sums[half][i][j];
      }
      clear(sums[half]);
    }
    return find_end(end);
  }

  const ProductArgs& args_;
  Shared& shared_;
  int lane_, warp_;
  GroupWeights<kKind, S::kDepth> weights_;
  uint64_t rows_ = 0;
  int slot_ = 0, phase_ = 0;  // of the rows
  int segment_ = 0;
};

template <MatrixKind kKind>
__global__ void __launch_bounds__(kTileThreads, 1)
    group_product_kernel(const __grid_constant__ ProductArgs args) {
  if constexpr (simt::kHasGroups) {
    using S = GroupShape<kKind>;
    auto& shared = simt::shared<typename S::Shared>();
    simt::release_dependents();
    S::begin(shared);
    GroupWarp<kKind> warp(args, shared);
    if (warp.run()) TileOutputs<S>(args, shared).write();
  }
}

}  // namespace aerie::device
