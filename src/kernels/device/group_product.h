// Products of many rows where groups of four warps multiply at once (Hopper): a block has kManyRows
// rows and 8 panels of outputs. Each of 8 warps unpacks the weights of one panel in its registers
// and has the panel's sums there; another group brings the activations. The sums are those of
// product.h, in the same order.
//
// Activations lie in shared memory in the order in which weights lie in fragments (unpack.h): a
// step's 16 of k side by side, in the order of the fragment's elements.
#pragma once

#include <cstdint>

#include "kernels/device/epilogue.h"
#include "kernels/device/tile_outputs.h"
#include "kernels/device/unpack.h"

namespace aerie::device {

inline constexpr int kGroupThreads = kTileThreads + 128;  // of which the last 128 bring activations
inline constexpr int kGroupMemory = 227 * 1024;

template <MatrixKind kKind>
struct GroupShape {
  using U = Unpack<kKind>;
  static constexpr int kWarps = kTileThreads / 32;
  static constexpr int kBlockPanels = kWarps;
  static constexpr int kOutputs = kBlockPanels * kPanel;
  static constexpr int kPitch = kOutputs + 4;  // of sums: lanes touch all banks
  static constexpr bool kHasMinima = Panel<kKind, 1>::kHasMinima;
  static constexpr int kRowBytes = kManyRows * kStep * 2;  // of a stage of activations
  static constexpr int kRowDepth = 4;
  // Of a warp's stage: codes, scales, supers.
  static constexpr int kScalesAt = U::kCodeBytes;
  static constexpr int kSupersAt = kScalesAt + U::kScaleBytes;
  static constexpr int kStageBytes = kSupersAt + U::kSuperBytes;
  static constexpr int kMostDepth =
      (kGroupMemory - 8 * 1024 - kRowDepth * kRowBytes) / (kWarps * kStageBytes);
  static constexpr int kDepth = kMostDepth > 6 ? 6 : kMostDepth;
  static_assert(kDepth >= 3);
  // Of k that one product and one scale are for, in 16.
  static constexpr int kUnit = U::kGroupsOf16 ? 1 : 2, kUnits = 4 / kUnit;

  struct Loop {
    unsigned char rows[kRowDepth][kRowBytes];
    unsigned char weights[kWarps][kDepth][kStageBytes];
  };
  struct Shared {
    union {
      Loop loop;
      float sums[kManyRows][kPitch];
    };
    float inverse[kManyRows];
    // Of activations, for each 32 of k, where weights have minima.
    float row_sums[kHasMinima ? kRowDepth : 1][2][kManyRows];
    simt::Barrier full[kRowDepth], empty[kRowDepth], ended, added_up;
  };
  static_assert(sizeof(Shared) <= kGroupMemory);
};

// The warps that bring activations, ahead of those that multiply.
template <MatrixKind kKind>
class GroupRows {
 public:
  using S = GroupShape<kKind>;
  using U = Unpack<kKind>;
  using Shared = typename S::Shared;
  static constexpr int kRowsOfWarp = kManyRows / 4;

  SIMT_DEV GroupRows(const ProductArgs& args, Shared& shared)
      : args_(args),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_((static_cast<int>(threadIdx.x) - kTileThreads) / 32),
        first_row_(static_cast<int>(blockIdx.x) * kManyRows) {}

  SIMT_DEV void run(int rows) {
    const auto* from =
        args_.x + static_cast<int64_t>(first_row_ + warp_ * kRowsOfWarp + lane_ / 8) *
                      args_.x_stride + lane_ % 8 * 8;
    uint4 pieces[kRowsOfWarp / 4];
    load(from, pieces);
    int slot = 0, phase = 1;
    SIMT_UNROLL_BY(1)
    for (int step = 0; step < args_.steps; ++step) {
      if (step >= S::kRowDepth) simt::barrier_wait(shared_.empty[slot], phase);
      store(pieces, shared_.loop.rows[slot]);
      from += kStep;
      if (step + 1 < args_.steps) load(from, pieces);
      simt::fence_operands();
      __syncwarp();
      if constexpr (S::kHasMinima) add_up(slot);
      if (lane_ == 0) simt::barrier_arrive(shared_.full[slot]);
      if (++slot == S::kRowDepth) slot = 0, phase ^= 1;
    }
    find_norms(rows);
    __syncwarp();
    if (lane_ == 0) simt::barrier_arrive(shared_.ended);
  }

 private:
  // A lane has 16 bytes of every fourth row.
  SIMT_DEV void load(const uint16_t* from, uint4 (&pieces)[kRowsOfWarp / 4]) const {
    SIMT_UNROLL
    for (int i = 0; i < kRowsOfWarp / 4; ++i) {
      pieces[i] =
          *reinterpret_cast<const uint4*>(from + static_cast<int64_t>(i) * 4 * args_.x_stride);
    }
  }

  // Word i of a piece of a row, or of half of it, goes to piece i of those of its 32 (16) of k.
  SIMT_DEV void store(const uint4 (&pieces)[kRowsOfWarp / 4], unsigned char* stage) const {
    const int piece = lane_ % 8;
    SIMT_UNROLL
    for (int i = 0; i < kRowsOfWarp / 4; ++i) {
      const int row = warp_ * kRowsOfWarp + i * 4 + lane_ / 8;
      SIMT_UNROLL
      for (int word = 0; word < 4; ++word) {
        int to = piece / 4 * 4 + word, at = piece % 4;
        if constexpr (U::kGroupsOf16) to = piece / 2 * 2 + word % 2, at = piece % 2 * 2 + word / 2;
        simt::store_operand(stage + row * 128 + (to ^ row % 8) * 16 + at * 4,
                            part_of(pieces[i], word));
      }
    }
  }

  // What a panel of ones gives (Inputs::add_up) for the warp's rows of the stage.
  SIMT_DEV void add_up(int slot) {
    const unsigned char* stage = shared_.loop.rows[slot];
    const int g = lane_ / 4, t = lane_ % 4;
    SIMT_UNROLL
    for (int i = 0; i < kRowsOfWarp / 8; ++i) {
      const int first = warp_ * kRowsOfWarp + i * 8;
      SIMT_UNROLL
      for (int group = 0; group < 2; ++group) {
        const Fragment ones = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
        float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        SIMT_UNROLL
        for (int s = 0; s < 2; ++s) {
          uint32_t x[2];
          SIMT_UNROLL
          for (int j = 0; j < 2; ++j) {
            const int piece = group * 4 + s * 2 + j;
            x[j] = *reinterpret_cast<const uint32_t*>(stage + (first + g) * 128 +
                                                      (piece ^ g) * 16 + t * 4);
          }
          simt::mma_bf16(d, ones, x);
        }
        if (g == 0) {
          shared_.row_sums[slot][group][first + 2 * t] = d[0];
          shared_.row_sums[slot][group][first + 2 * t + 1] = d[1];
        }
      }
    }
    __syncwarp();
  }

  SIMT_DEV void find_norms(int rows) {
    if (args_.norm.squares == nullptr) return;
    constexpr int kAtOnce = 4;
    SIMT_UNROLL_BY(1)
    for (int i = warp_; i < kManyRows; i += 4 * kAtOnce) {
      float inverse[kAtOnce];
      inverse_rms(args_.norm, first_row_ + i, 4, rows, inverse);
      SIMT_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        if (lane_ == 0) shared_.inverse[i + r * 4] = inverse[r];
      }
    }
  }

  const ProductArgs& args_;
  Shared& shared_;
  int lane_, warp_, first_row_;
};

// A warp that multiplies: what both kinds of it share.
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
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32) {
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

  // Asks for the first weights.
  SIMT_DEV void start() {
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < S::kDepth; ++i) copy(i, i);
  }

  // The sums, to shared memory.
  SIMT_DEV void run() {
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
    __syncwarp();
    if (lane_ == 0) simt::barrier_arrive(shared_.ended);
    simt::barrier_wait(shared_.ended, 0);
    SIMT_UNROLL
    for (int i = 0; i < 16; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) {
        shared_.sums[i * 8 + lane_ % 4 * 2 + j % 2][warp_ * kPanel + lane_ / 4 + j / 2 * 8] =
            totals[i / 8][i % 8][j];
      }
    }
    __syncwarp();
    if (lane_ == 0) simt::barrier_arrive(shared_.added_up);
    simt::barrier_wait(shared_.added_up, 0);
  }

 private:
  static constexpr int kPieces = S::kRowBytes / 16;  // of a stage, as operands count them

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

  // The next stage of weights is there, and that of `step` is free.
  SIMT_DEV void next_weights(int step) {
    simt::copy_wait<S::kDepth - 2>();
    __syncwarp();
    copy(step + S::kDepth, weights_slot_);
    weights_slot_ = weights_slot_ == S::kDepth - 1 ? 0 : weights_slot_ + 1;
  }

  SIMT_DEV void next_rows() {
    if (++slot_ == S::kRowDepth) slot_ = 0, phase_ ^= 1;
  }

  // The end of the segment that begins at `begin`.
  SIMT_DEV int find_end(int begin) {
    int end = begin;
    while (end == begin) end = segment_begin(args_.steps, ++segment_);
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
        end_segment(end, sums, totals);
        adds = false;
      }
    }
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
    simt::barrier_wait(shared_.full[slot_], phase_);
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
    if (step > 0 && lane_ == 0) {
      simt::barrier_arrive(shared_.empty[slot_ == 0 ? S::kRowDepth - 1 : slot_ - 1]);
    }
    next_weights(step);
    unpack(others);
    next_rows();
  }

  SIMT_DEV void end_segment(int& end, float (&sums)[16][4], Half (&totals)[2]) {
    simt::group_wait<0>(sums);
    SIMT_UNROLL
    for (int i = 0; i < 16; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) totals[i / 8][i % 8][j] += sums[i][j];
    }
    if (end < args_.steps) end = find_end(end);
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

  // sums += d by the unit's scales, of the stage of rows in `slot`.
  SIMT_DEV void apply(const Half& d, const Unit& unit, int index, int half, int slot,
                      Half& sums) const {
    SIMT_UNROLL
    for (int i = 0; i < 8; ++i) scale_into(d[i], unit.by, sums[i]);
    if constexpr (S::kHasMinima) {
      const float* of_rows = shared_.row_sums[slot][index] + half * 64 + lane_ % 4 * 2;
      SIMT_UNROLL
      for (int i = 0; i < 8; ++i) {
        const float2 two = *reinterpret_cast<const float2*>(of_rows + i * 8);
        const float x[4] = {two.x, two.y, two.x, two.y};
        scale_into(x, {-unit.less.x, -unit.less.y}, sums[i]);
      }
    }
  }

  // Halves of the rows in turn: while one's product is under way the other's is applied. What is
  // left of a step is applied when the next one's first product is under way.
  SIMT_DEV void add_scaled(Half (&totals)[2]) {
    constexpr int kLast = S::kUnits - 1;
    Unit units[2];
    Half sums[2], d[2];
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) clear(sums[half]), clear(d[half]);
    simt::copy_wait<S::kDepth - 1>();
    __syncwarp();
    unpack(0, units[0]);
    bool is_left = false;
    int end = find_end(0);
    SIMT_UNROLL_BY(1)
    for (int step = 0; step < args_.steps; ++step) {
      const int before = slot_ == 0 ? S::kRowDepth - 1 : slot_ - 1;
      simt::barrier_wait(shared_.full[slot_], phase_);
      multiply(units[0], 0, 0, d[0]);
      if (is_left) {
        apply(d[1], units[1], kLast, 1, before, sums[1]);
        __syncwarp();
        if (lane_ == 0) simt::barrier_arrive(shared_.empty[before]);
      }
      multiply(units[0], 0, 1, d[1]);
      SIMT_UNROLL
      for (int i = 1; i < S::kUnits; ++i) {
        unpack(i, units[i % 2]);
        simt::group_wait<1>(d[0]);
        apply(d[0], units[1 - i % 2], i - 1, 0, slot_, sums[0]);
        multiply(units[i % 2], i, 0, d[0]);
        simt::group_wait<1>(d[1]);
        keep(units[1 - i % 2]);
        apply(d[1], units[1 - i % 2], i - 1, 1, slot_, sums[1]);
        multiply(units[i % 2], i, 1, d[1]);
      }
      next_weights(step);
      unpack(0, units[0]);
      simt::group_wait<1>(d[0]);
      apply(d[0], units[1], kLast, 0, slot_, sums[0]);
      simt::group_wait<0>(d[1]);
      keep(units[1]);
      is_left = step + 1 != end;
      if (!is_left) {
        apply(d[1], units[1], kLast, 1, slot_, sums[1]);
        end_segment(end, sums, totals);
      }
      next_rows();
    }
  }

  SIMT_DEV void end_segment(int& end, Half (&sums)[2], Half (&totals)[2]) {
    __syncwarp();
    if (lane_ == 0) simt::barrier_arrive(shared_.empty[slot_]);
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      SIMT_UNROLL
      for (int i = 0; i < 8; ++i) {
        SIMT_UNROLL
        for (int j = 0; j < 4; ++j) totals[half][i][j] += sums[half][i][j];
      }
      clear(sums[half]);
    }
    if (end < args_.steps) end = find_end(end);
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
SIMT_DEV void begin_barriers(typename GroupShape<kKind>::Shared& shared) {
  using S = GroupShape<kKind>;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kRowDepth; ++i) {
      simt::barrier_begin(shared.full[i], 4);
      simt::barrier_begin(shared.empty[i], S::kWarps);
    }
    simt::barrier_begin(shared.ended, S::kWarps + 4);
    simt::barrier_begin(shared.added_up, S::kWarps);
    simt::barriers_begun();
  }
  __syncthreads();
}

template <MatrixKind kKind>
__global__ void __launch_bounds__(kGroupThreads, 1)
    group_product_kernel(const __grid_constant__ ProductArgs args) {
  if constexpr (simt::kHasGroups) {
    auto& shared = simt::shared<typename GroupShape<kKind>::Shared>();
    simt::release_dependents();
    begin_barriers<kKind>(shared);
    if (threadIdx.x >= kTileThreads) {
      simt::leave_registers<48>();
      simt::wait_for_previous();
      const int rows = *args.rows;
      if (static_cast<int>(blockIdx.x) * kManyRows < rows) {
        GroupRows<kKind>(args, shared).run(rows);
      }
    } else {
      simt::take_registers<232>();
      GroupWarp<kKind> warp(args, shared);
      warp.start();
      simt::wait_for_previous();
      if (static_cast<int>(blockIdx.x) * kManyRows < *args.rows) {
        warp.run();
        TileOutputs<GroupShape<kKind>>(args, shared).write();
      } else {
        simt::copy_wait<0>();
      }
    }
  }
}

}  // namespace aerie::device
