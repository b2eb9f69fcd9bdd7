// Products of many rows where groups of four warps multiply at once (Hopper): a block has kManyRows
// rows and 8 panels of outputs. Each of its 8 warps unpacks the weights of one panel in its
// registers and has the panel's sums there; activations come as ordered_rows.h has put them. The
// sums are those of product.h, in the same order.
#pragma once

#include <cstdint>

#include "kernels/device/epilogue.h"
#include "kernels/device/ordered_rows.h"
#include "kernels/device/tile_outputs.h"
#include "kernels/device/unpack.h"

namespace aerie::device {

inline constexpr int kGroupMemory = 227 * 1024;

template <MatrixKind kKind>
struct GroupShape {
  using U = Unpack<kKind>;
  static constexpr int kWarps = kTileThreads / 32;
  static constexpr int kBlockPanels = kWarps;
  static constexpr int kOutputs = kBlockPanels * kPanel;
  static constexpr int kPitch = kOutputs + 4;  // of sums: lanes touch all banks
  static constexpr bool kHasMinima = Panel<kKind, 1>::kHasMinima;
  // Stages of activations, which come kRowDepth - 2 steps ahead: warps may be that far apart.
  static constexpr int kRowDepth = 5;
  // Of a warp's stage: codes, scales, supers.
  static constexpr int kScalesAt = U::kCodeBytes;
  static constexpr int kSupersAt = kScalesAt + U::kScaleBytes;
  static constexpr int kStageBytes = kSupersAt + U::kSuperBytes;
  static constexpr int kMostDepth =
      (kGroupMemory - 8 * 1024 - kRowDepth * kOrderedRowBytes) / (kWarps * kStageBytes);
  static constexpr int kDepth = kMostDepth > 6 ? 6 : kMostDepth;
  static_assert(kDepth >= 3);
  // Of k that one product and one scale are for, in 16.
  static constexpr int kUnit = U::kGroupsOf16 ? 1 : 2, kUnits = 4 / kUnit;

  struct Loop {
    unsigned char rows[kRowDepth][kOrderedRowBytes];
    unsigned char weights[kWarps][kDepth][kStageBytes];
  };
  struct Shared {
    union {
      Loop loop;
      float sums[kManyRows][kPitch];
    };
    float inverse[kManyRows];
    float row_sums[kHasMinima ? kRowDepth : 1][2][kManyRows];
    simt::Barrier full[kRowDepth], empty[kRowDepth];
  };
  static_assert(sizeof(Shared) <= kGroupMemory);
};

template <MatrixKind kKind>
class GroupWarp {
 public:
  using S = GroupShape<kKind>;
  using U = Unpack<kKind>;
  using Shared = typename S::Shared;
  using Half = float[8][4];  // of 64 rows

  SIMT_DEV GroupWarp(const ProductArgs& args, Shared& shared)
      : args_(args),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x / 32)) {
    int index = static_cast<int>(blockIdx.y) * S::kBlockPanels + warp_;
    if (index >= args.panels) index = args.panels - 1;  // computed for nothing
    const PanelPlace place = panel_place(args, index);
    const ProductArgs::Part& part = args.parts[place.part];
    const int64_t first = static_cast<int64_t>(place.index) * args.steps;
    codes_ = part.codes + first * U::kCodeBytes + lane_ * 16;
    factors_ = codes_;
    if constexpr (U::kScaleBytes > 0) factors_ = part.scales + first * U::kScaleBytes + lane_ * 16;
    if constexpr (U::kSuperBytes > 0) {
      if (lane_ >= 16) factors_ = part.supers + first / 4 * U::kSuperBytes + (lane_ - 16) * 16;
    }
  }

  // The sums, to shared memory; false: the block has no rows.
  SIMT_DEV bool run() {
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < S::kDepth; ++i) copy(i, i);
    // Weights are there before the kernel that makes the activations is done.
    simt::wait_for_previous();
    const int rows = *args_.rows;
    if (static_cast<int>(blockIdx.x) * kManyRows >= rows) {
      simt::copy_wait<0>();
      return false;
    }
    if (threadIdx.x == 0) {
      SIMT_UNROLL_BY(1)
      for (int i = 0; i < S::kRowDepth && i < args_.steps; ++i) copy_rows(i, i);
    }
    find_norms(rows);
    Half totals[2];
    clear(totals[0]);
    clear(totals[1]);
    rows_ = simt::operand_of(shared_.loop.rows[0]);
    if constexpr (U::kScaleBytes > 0) {
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
  static constexpr int kPieces = kOrderedRowBytes / 16;  // of a stage, as operands count them

  // While the first activations are on their way.
  SIMT_DEV void find_norms(int rows) {
    if (args_.norm.squares == nullptr) return;
    constexpr int kAtOnce = 8;
    const int first_row = static_cast<int>(blockIdx.x) * kManyRows;
    SIMT_UNROLL_BY(1)
    for (int i = warp_; i < kManyRows; i += S::kWarps * kAtOnce) {
      float inverse[kAtOnce];
      inverse_rms(args_.norm, first_row + i, S::kWarps, rows, inverse);
      SIMT_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        if (lane_ == 0) shared_.inverse[i + r * S::kWarps] = inverse[r];
      }
    }
  }

  SIMT_DEV static void clear(Half& sums) {
    SIMT_UNROLL
    for (int i = 0; i < 8; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = 0.0f;
    }
  }

  SIMT_DEV void copy(int step, int slot) {
    unsigned char* stage = shared_.loop.weights[warp_][slot];
    const bool is_there = step < args_.steps;
    const unsigned char* codes = codes_ + static_cast<int64_t>(step) * U::kCodeBytes;
    SIMT_UNROLL
    for (int at = 0; at < U::kCodeBytes; at += 512) {
      simt::copy_async16_if(is_there && (at + 512 <= U::kCodeBytes || lane_ < 16),
                            stage + at + lane_ * 16, codes + at);
    }
    if constexpr (U::kSuperBytes > 0) {
      const bool is_scale = lane_ < 16;
      simt::copy_async16_if(
          is_there && lane_ % 16 < (is_scale ? U::kScaleBytes : U::kSuperBytes) / 16,
          stage + (is_scale ? S::kScalesAt : S::kSupersAt) + lane_ % 16 * 16,
          factors_ + (is_scale ? step * U::kScaleBytes : step / 4 * U::kSuperBytes));
    } else if constexpr (U::kScaleBytes > 0) {
      simt::copy_async16_if(is_there && lane_ < U::kScaleBytes / 16,
                            stage + S::kScalesAt + lane_ * 16,
                            factors_ + step * U::kScaleBytes);
    }
    simt::copy_commit();
  }

  SIMT_DEV void copy_rows(int step, int slot) {
    using O = Ordered<kKind>;
    const unsigned char* from =
        static_cast<const unsigned char*>(args_.ordered) +
        (static_cast<int64_t>(blockIdx.x) * args_.steps + step) * O::kBytes;
    simt::barrier_expect(shared_.full[slot], O::kBytes);
    simt::copy_block(shared_.loop.rows[slot], from, kOrderedRowBytes, shared_.full[slot]);
    if constexpr (O::kHasSums) {
      simt::copy_block(shared_.row_sums[slot], from + kOrderedRowBytes, kOrderedSumBytes,
                       shared_.full[slot]);
    }
  }

  // The rows of the step are there. One thread asks for those that take the place of the step's
  // before the last one, as soon as all warps have multiplied by these.
  SIMT_DEV void wait_for_rows(int step) {
    const int next = step - 2 + S::kRowDepth;
    if (threadIdx.x == 0 && step >= 2 && next < args_.steps) {
      const int slot = slot_ >= 2 ? slot_ - 2 : slot_ - 2 + S::kRowDepth;
      simt::barrier_wait(shared_.empty[slot], slot_ >= 2 ? phase_ : phase_ ^ 1);
      copy_rows(next, slot);
    }
    __syncwarp();
    simt::barrier_wait(shared_.full[slot_], phase_);
  }

  // The next stage of weights is there, and that of `step` is free.
  SIMT_DEV void next_weights(int step) {
    simt::copy_wait<S::kDepth - 2>();
    __syncwarp();
    copy(step + S::kDepth, weights_slot_);
    weights_slot_ = weights_slot_ == S::kDepth - 1 ? 0 : weights_slot_ + 1;
  }

  // The warp is done with the rows there.
  SIMT_DEV void free_rows(int slot) {
    if constexpr (S::kHasMinima) __syncwarp();
    if (lane_ == 0) simt::barrier_arrive(shared_.empty[slot]);
  }
  SIMT_DEV void next_rows() {
    if (++slot_ == S::kRowDepth) slot_ = 0, phase_ ^= 1;
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
  SIMT_DEV void add_plain(Half (&totals)[2]) {
    uint32_t weights[2][4 * U::kTerms][4];
    float sums[16][4];
    SIMT_UNROLL
    for (int i = 0; i < 16; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = 0.0f;
    }
    simt::copy_wait<S::kDepth - 1>();
    __syncwarp();
    unpack(weights[0]);
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

  SIMT_DEV void unpack(uint32_t (&weights)[4 * U::kTerms][4]) const {
    Codes<U> codes;
    read(codes);
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      SIMT_UNROLL
      for (int term = 0; term < U::kTerms; ++term) {
        U::step(codes, i, weights[i * U::kTerms + term], term);
      }
    }
  }

  SIMT_DEV void add_step(uint32_t (&weights)[4 * U::kTerms][4],
                         uint32_t (&others)[4 * U::kTerms][4], int step, bool& adds,
                         float (&sums)[16][4]) {
    wait_for_rows(step);
    const uint64_t rows = rows_ + slot_ * kPieces;
    simt::group_fence();
    SIMT_UNROLL
    for (int i = 0; i < 4 * U::kTerms; ++i) {
      simt::group_mma_bf16(sums, weights[i], rows + i / U::kTerms * 2, adds || i > 0);
    }
    simt::group_commit();
    adds = true;
    simt::group_wait<1>();
    SIMT_UNROLL
    for (int i = 0; i < 4 * U::kTerms; ++i) simt::group_keep(others[i]);
    // The step before is done.
    if (step > 0) free_rows(slot_ == 0 ? S::kRowDepth - 1 : slot_ - 1);
    next_weights(step);
    unpack(others);
    next_rows();
  }

  SIMT_DEV int end_segment(int end, float (&sums)[16][4], Half (&totals)[2]) {
    simt::group_wait<0>(sums);
    SIMT_UNROLL
    for (int i = 0; i < 16; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) totals[i / 8][i % 8][j] += sums[i][j];
    }
    return find_end(end);
  }

  // ------------------------------------------------------------ kinds with scales

  // The weights of a unit of k, and what its products are multiplied by.
  struct Unit {
    uint32_t weights[S::kUnit][4];
    float2 by, less;
  };

  SIMT_DEV void read(Codes<U>& codes) const {
    const unsigned char* stage = shared_.loop.weights[warp_][weights_slot_];
    Reader<kKind>::read(stage, stage + S::kScalesAt, stage + S::kSupersAt, lane_, codes);
  }

  SIMT_DEV void unpack(int index, Unit& unit) const {
    Codes<U> codes;
    read(codes);
    SIMT_UNROLL
    for (int i = 0; i < S::kUnit; ++i) U::step(codes, index * S::kUnit + i, unit.weights[i], 0);
    unit.by = U::scale(codes, index);
    if constexpr (S::kHasMinima) unit.less = U::minimum(codes, index);
  }

  // d = the unit's weights x a half of the rows.
  SIMT_DEV void multiply(const Unit& unit, int index, int half, Half& d) const {
    const uint64_t rows =
        rows_ + slot_ * kPieces + half * (kPieces / 2) + index * S::kUnit * 2;
    simt::group_fence();
    SIMT_UNROLL
    for (int i = 0; i < S::kUnit; ++i) {
      simt::group_mma_bf16(d, unit.weights[i], rows + i * 2, i > 0);
    }
    simt::group_commit();
  }

  SIMT_DEV static void keep(Unit& unit) {
    SIMT_UNROLL
    for (int i = 0; i < S::kUnit; ++i) simt::group_keep(unit.weights[i]);
  }

  // sums += d by the unit's scales.
  SIMT_DEV void apply(const Half& d, const Unit& unit, [[maybe_unused]] int index,
                      [[maybe_unused]] int half, Half& sums) const {
    SIMT_UNROLL
    for (int i = 0; i < 8; ++i) scale_into(d[i], unit.by, sums[i]);
    if constexpr (S::kHasMinima) {
      const float* of_rows = shared_.row_sums[slot_][index] + half * 64 + lane_ % 4 * 2;
      SIMT_UNROLL
      for (int i = 0; i < 8; ++i) {
        const float2 two = *reinterpret_cast<const float2*>(of_rows + i * 8);
        const float x[4] = {two.x, two.y, two.x, two.y};
        scale_into(x, {-unit.less.x, -unit.less.y}, sums[i]);
      }
    }
  }

  // Halves of the rows in turn: while one's product is under way the other's is applied.
  SIMT_DEV void add_scaled(Half (&totals)[2]) {
    constexpr int kLast = S::kUnits - 1;
    Unit units[2];
    Half sums[2], d[2];
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) clear(sums[half]);
    simt::copy_wait<S::kDepth - 1>();
    __syncwarp();
    unpack(0, units[0]);
    int end = find_end(0);
    SIMT_UNROLL_BY(1)
    for (int step = 0; step < args_.steps; ++step) {
      wait_for_rows(step);
      multiply(units[0], 0, 0, d[0]);
      multiply(units[0], 0, 1, d[1]);
      SIMT_UNROLL
      for (int i = 1; i < S::kUnits; ++i) {
        unpack(i, units[i % 2]);
        simt::group_wait<1>(d[0]);
        apply(d[0], units[1 - i % 2], i - 1, 0, sums[0]);
        multiply(units[i % 2], i, 0, d[0]);
        simt::group_wait<1>(d[1]);
        keep(units[1 - i % 2]);
        apply(d[1], units[1 - i % 2], i - 1, 1, sums[1]);
        multiply(units[i % 2], i, 1, d[1]);
      }
      next_weights(step);
      unpack(0, units[0]);
      simt::group_wait<1>(d[0]);
      apply(d[0], units[1], kLast, 0, sums[0]);
      simt::group_wait<0>(d[1]);
      keep(units[1]);
      apply(d[1], units[1], kLast, 1, sums[1]);
      free_rows(slot_);
      if (step + 1 == end) end = end_segment(end, sums, totals);
      next_rows();
    }
  }

  SIMT_DEV int end_segment(int end, Half (&sums)[2], Half (&totals)[2]) {
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
  const unsigned char *codes_, *factors_;
  uint64_t rows_ = 0;
  int slot_ = 0, phase_ = 0;  // of the rows
  int weights_slot_ = 0, segment_ = 0;
};

template <MatrixKind kKind>
SIMT_DEV void begin_group(typename GroupShape<kKind>::Shared& shared) {
  using S = GroupShape<kKind>;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kRowDepth; ++i) {
      simt::barrier_begin(shared.full[i], 1);
      simt::barrier_begin(shared.empty[i], S::kWarps);
    }
    simt::barriers_begun();
  }
  __syncthreads();
}

template <MatrixKind kKind>
__global__ void __launch_bounds__(kTileThreads, 1)
    group_product_kernel(const __grid_constant__ ProductArgs args) {
  if constexpr (simt::kHasGroups) {
    using S = GroupShape<kKind>;
    auto& shared = simt::shared<typename S::Shared>();
    simt::release_dependents();
    begin_group<kKind>(shared);
    GroupWarp<kKind> warp(args, shared);
    if (warp.run()) TileOutputs<S>(args, shared).write();
  }
}

}  // namespace aerie::device
