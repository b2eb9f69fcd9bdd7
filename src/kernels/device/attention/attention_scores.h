// Scores of a chunk's positions: products of keys with queries, and their softmax.
#pragma once

#include <cstdint>

#include "kernels/device/attention/attention_view.h"

namespace aerie::device {

// Of what an earlier kernel wrote, which load16() may not be used for.
SIMT_DEV uint4 read16(const uint16_t* from) {
  return *reinterpret_cast<const uint4*>(from);
}
SIMT_DEV uint2 read8(const uint16_t* from) {
  return *reinterpret_cast<const uint2*>(from);
}

template <int kTiles, int kHeadDim>
class AttentionScores {
 public:
  using View = AttentionView<kTiles, kHeadDim>;
  using Scores = typename View::Scores;
  // Of 32 dimensions: those that there are registers for at a time, in a known head as many times
  // as it takes.
  static constexpr int kKnownSteps = kHeadDim / 32;
  static constexpr int kParts = kHeadDim > kMostHeadDim ? 2 : 1;
  static constexpr int kKeySteps = View::kKnown ? kKnownSteps / kParts : 1;
  static constexpr int kWarpTiles = View::kWarpTiles;
  using Keys = uint4[kWarpTiles][kKeySteps][2];

  SIMT_DEV explicit AttentionScores(const View& view) : v_(view) {}

  // The first part of the warp's.
  SIMT_DEV void load_keys(Keys& keys) const {
    SIMT_UNROLL
    for (int w = 0; w < kWarpTiles; ++w) {
      const int at = v_.tile_of(w);
      if (v_.takes_pages(v_.begin + at, v_.begin + at + 16)) load_part(at, 0, keys[w]);
    }
  }

  SIMT_DEV void load_queries() const {
    const int pieces = v_.head_dim() / 8;
    for (int i = v_.thread; i < kTiles * 8 * pieces; i += kAttentionThreads) {
      const int column = i / pieces, at = i % pieces * 8;
      uint4 q = {0, 0, 0, 0};
      if (column < v_.columns) {
        const int64_t row = v_.tile.first + v_.row_of(column);
        q = read16(v_.args.q + (row * v_.args.heads + v_.head_of(column)) * v_.head_dim() + at);
      }
      *reinterpret_cast<uint4*>(&v_.shared.queries[column][at]) = q;
    }
  }

  // Of the warp's tiles; -infinity where a row does not see the position.
  SIMT_DEV void find(Keys& keys, Scores& scores) const {
    SIMT_UNROLL
    for (int w = 0; w < kWarpTiles; ++w) {
      const int at = v_.tile_of(w), from = v_.begin + at;
      fill(scores[w], -infinity());
      if (!v_.takes_pages(from, from + 16)) continue;
      multiply_paged(at, keys[w], scores[w]);
      hide(from, scores[w]);
    }
    if (!v_.is_linear()) {
      SIMT_UNROLL
      for (int w = 0; w < kWarpTiles; ++w) score_rows(v_.tile_of(w), scores[w]);
    }
    if (v_.args.soft_cap != 0.0f) cap(scores);
  }

  // To shared memory: the largest of each column over the warp's positions.
  SIMT_DEV void put_largest(const Scores& scores) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 2; ++i) {
      float largest = -infinity();
      SIMT_UNROLL
      for (int w = 0; w < kWarpTiles * 2; ++w) {
        const float s = scores[w / 2][i / 2][w % 2 * 2 + i % 2];
        largest = s > largest ? s : largest;
      }
      SIMT_UNROLL
      for (int mask = 4; mask < 32; mask *= 2) {
        const float other = simt::shuffle_xor(largest, mask);
        largest = other > largest ? other : largest;
      }
      if (v_.lane < 4) v_.shared.largest[v_.warp][v_.column_of(i / 2) + i % 2] = largest;
    }
  }

  // To shared memory: the softmax over the chunk, shares that are not divided by their sum yet, and
  // the sums over the warp's positions.
  SIMT_DEV void put_shares(const Scores& scores) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const int column = v_.column_of(i);
      const float largest[2] = {largest_of(column), largest_of(column + 1)};
      float sums[2] = {0.0f, 0.0f};
      SIMT_UNROLL
      for (int w = 0; w < kWarpTiles; ++w) {
        const int at = v_.tile_of(w);
        uint32_t shares[2] = {0, 0};  // of a column each, the second position in the upper half
        if (!v_.none_sees(v_.begin + at, v_.begin + at + 16)) {
          SIMT_UNROLL
          for (int j = 0; j < 4; ++j) {
            const uint32_t share = share_of(scores[w][i][j], largest[j % 2]);
            sums[j % 2] += simt::from_f16(static_cast<uint16_t>(share));
            shares[j % 2] |= share << j / 2 * 16;
          }
        }
        put_pairs(column, at, shares);
      }
      SIMT_UNROLL
      for (int j = 0; j < 2; ++j) {
        SIMT_UNROLL
        for (int mask = 4; mask < 32; mask *= 2) sums[j] += simt::shuffle_xor(sums[j], mask);
        if (v_.lane < 4) v_.shared.sums[v_.warp][column + j] = sums[j];
      }
    }
  }

  // Over the chunk, once all warps have put theirs.
  SIMT_DEV float largest_of(int column) const {
    float largest = -infinity();
    SIMT_UNROLL
    for (int w = 0; w < kAttentionWarps; ++w) {
      const float m = v_.shared.largest[w][column];
      largest = m > largest ? m : largest;
    }
    return largest;
  }
  SIMT_DEV float sum_of(int column) const {
    float sum = 0.0f;
    SIMT_UNROLL
    for (int w = 0; w < kAttentionWarps; ++w) sum += v_.shared.sums[w][column];
    return sum;
  }

 private:
  static SIMT_DEV void fill(float (&sums)[kTiles][4], float with) {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 4; ++i) sums[i / 4][i % 4] = with;
  }

  using TileKeys = uint4[kKeySteps][2];

  SIMT_DEV void load_part(int at, int part, TileKeys& keys) const {
    const uint16_t* first =
        v_.paged_key(at + v_.lane / 4) + v_.lane % 4 * 8 + part * (kKeySteps * 32);
    SIMT_UNROLL
    for (int s = 0; s < kKeySteps; ++s) {
      keys[s][0] = read16(first + s * 32);
      keys[s][1] = read16(first + 8 * kHeadDim + s * 32);
    }
  }

  SIMT_DEV void multiply_paged(int at, TileKeys& keys, float (&scores)[kTiles][4]) const {
    if constexpr (View::kKnown) {
      fill(scores, 0.0f);
      SIMT_UNROLL
      for (int part = 0; part < kParts; ++part) {
        if (part > 0) load_part(at, part, keys);
        SIMT_UNROLL
        for (int s = 0; s < kKeySteps; ++s) {
          const int d = (part * kKeySteps + s) * 32;
          multiply_step(keys[s][0], keys[s][1], d, -1, scores);
        }
      }
    } else {
      const uint16_t* first = v_.paged_key(at + v_.lane / 4);
      multiply_keys(first, first + 8 * v_.head_dim(), -1, scores);
    }
  }

  // Scales what rows see of 16 positions from `from` on.
  SIMT_DEV void hide(int from, float (&scores)[kTiles][4]) const {
    const bool whole = v_.all_see(from, from + 16);
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 4; ++i) {
      float& s = scores[i / 4][i % 4];
      const int column = v_.column_of(i / 4) + i % 2;
      bool seen = column < v_.columns;
      if (!whole && seen) {
        seen = v_.sees(v_.shared.rows[v_.row_of(column)], from + v_.lane / 4 + i % 4 / 2 * 8);
      }
      s = seen ? s * v_.args.scale : -infinity();
    }
  }

  // Positions that lie elsewhere for each row.
  SIMT_DEV void score_rows(int at, float (&scores)[kTiles][4]) const {
    const int from = v_.begin + at;
    if (v_.none_sees(from, from + 16) || v_.is_paged(from + 16)) return;
    SIMT_UNROLL_BY(1)
    for (int r = 0; r < v_.tile.count; ++r) {
      const int slot = readable_slot(r, at + v_.lane / 4);
      const int other = readable_slot(r, at + v_.lane / 4 + 8);
      float sums[kTiles][4];
      multiply_keys(v_.key_at(slot), v_.key_at(other), r, sums);
      take_scores(at, r, sums, scores);
    }
  }

  // A slot whose key may be read: the row's own where it does not see the position.
  SIMT_DEV int readable_slot(int r, int in_chunk) const {
    const PassRow& row = v_.shared.rows[r];
    return v_.sees(row, v_.begin + in_chunk) ? v_.slot_of(r, in_chunk) : row.slot;
  }

  // 32 dimensions at a time: a lane has 8 of them side by side, 4 for each of two steps.
  SIMT_DEV void multiply_keys(const uint16_t* first, const uint16_t* second, int row,
                              float (&sums)[kTiles][4]) const {
    fill(sums, 0.0f);
    const int t = v_.lane % 4, g = v_.lane / 4;
    const int whole = v_.head_dim() / 32 * 32;
    SIMT_UNROLL_BY(kTiles == 4 && kHeadDim == 64 ? 1 : 4)
    for (int d = 0; d < whole; d += 32) {
      multiply_step(read16(first + d + t * 8), read16(second + d + t * 8), d, row, sums);
    }
    if (whole == v_.head_dim()) return;
    const uint2 k0 = read8(first + whole + t * 4);
    const uint2 k1 = read8(second + whole + t * 4);
    const uint32_t a[4] = {k0.x, k1.x, k0.y, k1.y};
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      if (!v_.has_row(i, row)) continue;
      const uint2 q = *reinterpret_cast<const uint2*>(&v_.shared.queries[i * 8 + g][whole + t * 4]);
      const uint32_t b[2] = {q.x, q.y};
      simt::mma_f16(sums[i], a, b);
    }
  }

  SIMT_DEV void multiply_step(uint4 k0, uint4 k1, int d, int row, float (&sums)[kTiles][4]) const {
    const uint32_t a0[4] = {k0.x, k1.x, k0.y, k1.y}, a1[4] = {k0.z, k1.z, k0.w, k1.w};
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      if (!v_.has_row(i, row)) continue;
      const uint4 q = *reinterpret_cast<const uint4*>(
          &v_.shared.queries[i * 8 + v_.lane / 4][d + v_.lane % 4 * 8]);
      const uint32_t b0[2] = {q.x, q.y}, b1[2] = {q.z, q.w};
      simt::mma_f16(sums[i], a0, b0);
      simt::mma_f16(sums[i], a1, b1);
    }
  }

  // Of one row's columns.
  SIMT_DEV void take_scores(int at, int r, const float (&sums)[kTiles][4],
                            float (&scores)[kTiles][4]) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 4; ++i) {
      const int column = v_.column_of(i / 4) + i % 2;
      const int position = v_.begin + at + v_.lane / 4 + i % 4 / 2 * 8;
      if (column >= v_.columns || v_.row_of(column) != r) continue;
      if (v_.sees(v_.shared.rows[r], position)) {
        scores[i / 4][i % 4] = sums[i / 4][i % 4] * v_.args.scale;
      }
    }
  }

  // Of what is seen.
  SIMT_DEV void cap(Scores& scores) const {
    const float most = v_.args.soft_cap;
    SIMT_UNROLL
    for (int i = 0; i < kWarpTiles * kTiles * 4; ++i) {
      float& s = scores[i / (kTiles * 4)][i / 4 % kTiles][i % 4];
      if (s != -infinity()) s = most * simt::tanh(simt::divide(s, most));
    }
  }

  static SIMT_DEV uint32_t share_of(float score, float largest) {
    // Where nothing is seen there is no largest one. Shares are at most 1.
    return score == -infinity() ? 0u : simt::to_f16(simt::exp(score - largest));
  }

  // Lanes of neighbouring positions exchange columns, so that each writes two positions of one.
  SIMT_DEV void put_pairs(int column, int at, const uint32_t (&shares)[2]) const {
    const int odd = v_.lane / 4 % 2;
    const uint32_t other = simt::shuffle_xor(shares[1 - odd], 4);
    const uint32_t first = odd != 0 ? other : shares[0], second = odd != 0 ? shares[1] : other;
    const int position = at + v_.lane / 4 - odd;
    uint16_t* to = v_.shared.shares[column + odd];
    *reinterpret_cast<uint32_t*>(to + View::Shared::share_at(column + odd, position)) =
        (first & 0xffffu) | second << 16;
    *reinterpret_cast<uint32_t*>(to + View::Shared::share_at(column + odd, position + 8)) =
        first >> 16 | (second & 0xffff0000u);
  }

  const View& v_;
};

}  // namespace aerie::device
