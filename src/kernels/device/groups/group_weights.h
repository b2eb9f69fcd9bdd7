// What warps of groups that multiply have of weights: a panel's, which come by a ring of
// asynchronous copies into memory of the warp's own, and are unpacked into the registers.
#pragma once

#include <cstdint>

#include "kernels/device/epilogue.h"
#include "kernels/device/unpack.h"

namespace aerie::device {

inline constexpr int kGroupMemory = 227 * 1024;

template <MatrixKind kKind>
struct GroupStage {
  using U = Unpack<kKind>;
  // Of a panel and a step: codes, scales, supers.
  static constexpr int kScalesAt = U::kCodeBytes;
  static constexpr int kSupersAt = kScalesAt + U::kScaleBytes;
  static constexpr int kBytes = kSupersAt + U::kSuperBytes;
  // Of k that one product and one scale are for, in 16.
  static constexpr int kUnit = U::kGroupsOf16 ? 1 : 2, kUnits = 4 / kUnit;
  static constexpr int kFragments = 4 * U::kTerms;  // of kinds without scales
  static constexpr bool kHasMinima = Panel<kKind, 1>::kHasMinima;
};

using GroupSums = float[8][4];  // of 16 outputs and 64 rows, a warp's

// What a lane has of a unit: the weights, and what their products are multiplied by.
template <MatrixKind kKind>
struct GroupUnit {
  uint32_t weights[GroupStage<kKind>::kUnit][4];
  float2 by, less;

  // d = weights x 64 rows, or more, of which this unit's k begins at `rows`.
  template <int kTiles>
  SIMT_DEV void multiply(uint64_t rows, float (&d)[kTiles][4]) const {
    simt::group_fence();
    SIMT_UNROLL
    for (int i = 0; i < GroupStage<kKind>::kUnit; ++i) {
      simt::group_mma_bf16(d, weights[i], rows + i * 2, i > 0);
    }
    simt::group_commit();
  }
  // The products have been waited for.
  SIMT_DEV void keep() {
    SIMT_UNROLL
    for (int i = 0; i < GroupStage<kKind>::kUnit; ++i) simt::group_keep(weights[i]);
  }
  // sums += d by the scales; row_sums: of the rows, this unit's k.
  SIMT_DEV void apply(const GroupSums& d, [[maybe_unused]] const float* row_sums, int lane,
                      GroupSums& sums) const {
    SIMT_UNROLL
    for (int i = 0; i < 8; ++i) scale_into(d[i], by, sums[i]);
    if constexpr (GroupStage<kKind>::kHasMinima) {
      SIMT_UNROLL
      for (int i = 0; i < 8; ++i) {
        const float2 two = *reinterpret_cast<const float2*>(row_sums + i * 8 + lane % 4 * 2);
        const float x[4] = {two.x, two.y, two.x, two.y};
        scale_into(x, {-less.x, -less.y}, sums[i]);
      }
    }
  }
};

SIMT_DEV void clear(GroupSums& sums) {
  SIMT_UNROLL
  for (int i = 0; i < 8; ++i) {
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) sums[i][j] = 0.0f;
  }
}

template <MatrixKind kKind, int kDepth>
class GroupWeights {
 public:
  using U = Unpack<kKind>;
  using S = GroupStage<kKind>;

  // Of panel `index` of all; of one that is not there those of the last one, computed for nothing.
  SIMT_DEV GroupWeights(const ProductArgs& args, int index, unsigned char (*ring)[S::kBytes])
      : ring_(ring), lane_(static_cast<int>(threadIdx.x % 32)) {
    const PanelPlace place = panel_place(args, index < args.panels ? index : args.panels - 1);
    const ProductArgs::Part& part = args.parts[place.part];
    const int64_t first = static_cast<int64_t>(place.index) * args.steps;
    codes_ = part.codes + first * U::kCodeBytes + lane_ * 16;
    factors_ = codes_;
    if constexpr (U::kScaleBytes > 0) factors_ = part.scales + first * U::kScaleBytes + lane_ * 16;
    if constexpr (U::kSuperBytes > 0) {
      if (lane_ >= 16) factors_ = part.supers + first / 4 * U::kSuperBytes + (lane_ - 16) * 16;
    }
  }

  // Asks for weights, kDepth times before first().
  SIMT_DEV void ask(bool is_there, int step, int slot) const {
    unsigned char* stage = ring_[slot];
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
                            stage + S::kScalesAt + lane_ * 16, factors_ + step * U::kScaleBytes);
    }
    simt::copy_commit();
  }

  // The first weights that were asked for are there.
  SIMT_DEV void first() {
    simt::copy_wait<kDepth - 1>();
    __syncwarp();
  }
  // The next ones are; those before them make room for what is asked for.
  SIMT_DEV void next(bool is_there, int step) {
    simt::copy_wait<kDepth - 2>();
    __syncwarp();
    ask(is_there, step, slot_);
    slot_ = slot_ == kDepth - 1 ? 0 : slot_ + 1;
  }

  SIMT_DEV void unpack(int index, GroupUnit<kKind>& unit) const {
    Codes<U> codes;
    read(codes);
    SIMT_UNROLL
    for (int i = 0; i < S::kUnit; ++i) U::step(codes, index * S::kUnit + i, unit.weights[i], 0);
    unit.by = U::scale(codes, index);
    if constexpr (S::kHasMinima) unit.less = U::minimum(codes, index);
  }

  SIMT_DEV void unpack(uint32_t (&weights)[S::kFragments][4]) const {
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

 private:
  SIMT_DEV void read(Codes<U>& codes) const {
    const unsigned char* stage = ring_[slot_];
    Reader<kKind>::read(stage, stage + S::kScalesAt, stage + S::kSupersAt, lane_, codes);
  }

  unsigned char (*ring_)[S::kBytes];
  int lane_, slot_ = 0;
  const unsigned char *codes_, *factors_;
};

}  // namespace aerie::device
