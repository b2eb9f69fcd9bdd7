// Sums of a chunk's values by their shares.
#pragma once

#include <cstdint>

#include "kernels/device/attention/attention_scores.h"
#include "kernels/device/attention/attention_view.h"

namespace aerie::device {

// A warp sums 16 dimensions at a time.
template <int kTiles, int kHeadDim>
class AttentionValues {
 public:
  using View = AttentionView<kTiles, kHeadDim>;
  static constexpr int kBlocks = kChunk / 32;  // of 32 positions
  // Blocks of values that are asked for before the softmax, and before its end: as many as there
  // are registers for.
  static constexpr int kFewer = kTiles == 1 ? 0 : kTiles;
  static constexpr int kAhead = kBlocks / 2 - kFewer, kHeld = kBlocks - kFewer;
  using Values = uint4[kHeld][2];

  SIMT_DEV explicit AttentionValues(const View& view) : v_(view) {}

  // Blocks kFrom to kTo, of 16 dimensions from d on. For a known head size.
  template <int kFrom, int kTo>
  SIMT_DEV void load(int d, Values& values) const {
    SIMT_UNROLL
    for (int b = kFrom; b < kTo; ++b) {
      const int end = v_.begin + b * 32 + 32;
      if (d >= kHeadDim || !v_.takes_pages(end - 32, end)) continue;
      load_block(d, b * 32, values[b % kHeld]);
    }
  }

  // Dimensions [d, d + 16) of the sum of values by shares; of a known head size `values` holds the
  // first kHeld blocks of these.
  SIMT_DEV void add(int d, Values& values, float (&sums)[kTiles][4]) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 4; ++i) sums[i / 4][i % 4] = 0.0f;
    SIMT_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      if constexpr (View::kKnown && kHeld < kBlocks) {
        if (b == kHeld) load<kHeld, kBlocks>(d, values);
      }
      const int from = v_.begin + b * 32;
      if (!v_.takes_pages(from, from + 32)) continue;
      if constexpr (View::kKnown) {
        multiply(b * 32, values[b % kHeld], -1, sums);
      } else {
        uint4 loaded[2];
        load_block(d, b * 32, loaded);
        multiply(b * 32, loaded, -1, sums);
      }
    }
    if (v_.is_linear()) return;
    // These are behind all that pages hold.
    SIMT_UNROLL_BY(1)
    for (int b = 0; b < kBlocks; ++b) {
      const int end = v_.begin + b * 32 + 32;
      if (!v_.none_sees(end - 32, end) && !v_.is_paged(end)) add_rows(d, b * 32, sums);
    }
  }

 private:
  SIMT_DEV void load_block(int d, int at, uint4 (&values)[2]) const {
    const uint16_t* from = v_.paged_value(at, d + v_.lane / 4) + v_.lane % 4 * 8;
    values[0] = read16(from);
    values[1] = read16(from + 8 * kPage);
  }

  // The next row's values are on their way while one's are multiplied.
  SIMT_DEV void add_rows(int d, int at, float (&sums)[kTiles][4]) const {
    uint4 next[2];
    gather(d, at, 0, next);
    SIMT_UNROLL_BY(1)
    for (int r = 0; r < v_.tile.count; ++r) {
      const uint4 now[2] = {next[0], next[1]};
      if (r + 1 < v_.tile.count) gather(d, at, r + 1, next);
      multiply(at, now, r, sums);
    }
  }

  SIMT_DEV void gather(int d, int at, int r, uint4 (&values)[2]) const {
    const PassRow& row = v_.shared.rows[r];
    uint32_t v[2][4];
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      v[0][i] = v[1][i] = 0;
      SIMT_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int in_chunk = at + v_.lane % 4 * 8 + i * 2 + j;
        if (!v_.sees(row, v_.begin + in_chunk)) continue;
        const uint16_t* from = v_.value_at(v_.slot_of(r, in_chunk), d + v_.lane / 4);
        v[0][i] |= static_cast<uint32_t>(from[0]) << 16 * j;
        v[1][i] |= static_cast<uint32_t>(from[8 * kPage]) << 16 * j;
      }
    }
    values[0] = {v[0][0], v[0][1], v[0][2], v[0][3]};
    values[1] = {v[1][0], v[1][1], v[1][2], v[1][3]};
  }

  // Of all columns, or of one row's: what a product of zeros leaves of the others' sums is not for
  // sure what they were.
  SIMT_DEV void multiply(int at, const uint4 (&v)[2], int row, float (&sums)[kTiles][4]) const {
    const uint32_t a0[4] = {v[0].x, v[1].x, v[0].y, v[1].y};
    const uint32_t a1[4] = {v[0].z, v[1].z, v[0].w, v[1].w};
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      if (!v_.has_row(i, row)) continue;
      const int column = i * 8 + v_.lane / 4;
      const uint4 p = *reinterpret_cast<const uint4*>(
          &v_.shared.shares[column][View::Shared::share_at(column, at + v_.lane % 4 * 8)]);
      const uint32_t b0[2] = {p.x, p.y}, b1[2] = {p.z, p.w};
      float all[4] = {sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
      simt::mma_f16(all, a0, b0);
      simt::mma_f16(all, a1, b1);
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) {
        if (row < 0 || v_.row_of(v_.column_of(i) + j % 2) == row) sums[i][j] = all[j];
      }
    }
  }

  const View& v_;
};

}  // namespace aerie::device
