// Attention of a pass over a paged cache. A block takes the query heads of some rows of a tile that
// read one head of keys and values, and one chunk of positions; parts of several chunks are put
// together as attention_parts.h says.
//
// Keys and values are the left factors of products, columns are query heads of rows: scores are
// [positions][columns], what comes out is [dimensions][columns], and a column's sums do not depend
// on what else there is: shares of positions that a row does not see are 0, and values are finite
// (rows.h). Positions that lie elsewhere for each row (ancestors in a tree) are taken row by row.
//
// What a pass is told and where its pages lie no launch writes, so that a block finds out about
// these, and has its keys and values brought near, while the launch before it still runs.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/attention/attention_parts.h"
#include "kernels/device/cache_place.h"
#include "kernels/device/device.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

inline constexpr int kAttentionThreads = 256;
inline constexpr int kAttentionWarps = kAttentionThreads / 32;
inline constexpr int kMostColumns = 32;
inline constexpr int kMostTileRows = 16;
inline constexpr int kMostHeadDim = 256;

struct AttendLaunch {
  Attend a;
  int rows;    // of a block: a tile is cut where there are few blocks
  int pieces;  // of a tile
};

// Of what an earlier kernel wrote, which load16() may not be used for.
SIMT_DEV uint4 read16(const uint16_t* from) {
  return *reinterpret_cast<const uint4*>(from);
}
SIMT_DEV uint2 read8(const uint16_t* from) {
  return *reinterpret_cast<const uint2*>(from);
}

template <int kTiles>
struct AttentionShared {
  static constexpr int kColumns = kTiles * 8;
  // Padded so that the lanes of a load touch all banks.
  static constexpr int kQueryStride = kMostHeadDim + 32;
  static constexpr int kShareStride = kChunk + 32;
  static constexpr int kPages = kChunk / kPage;
  uint16_t queries[kColumns][kQueryStride];
  uint16_t shares[kColumns][kShareStride];  // see share_at()
  float largest[kAttentionWarps][kColumns], sums[kAttentionWarps][kColumns];
  PassRow rows[kMostTileRows];
  int32_t row_of[kColumns];
  int32_t pages[kPages];                 // of the chunk
  int32_t tails[kMostTileRows][kChunk];  // slots behind the committed positions, unless linear

  // Eight positions side by side move with the column, so that columns in turn are other banks.
  static SIMT_DEV int share_at(int column, int position) {
    return (position & ~31) + ((position ^ column << 2) & 24) + (position & 7);
  }
};

// A block's place in the launch.
struct AttentionPiece {
  PassTile tile;    // its rows of a tile; least and most are the tile's
  int slice_first;  // row of the launch's first
  bool is_there;

  SIMT_DEV explicit AttentionPiece(const AttendLaunch& launch) {
    const Attend& a = launch.a;
    const int z = static_cast<int>(blockIdx.z), begin = z % launch.pieces * launch.rows;
    const int index = a.first_tile + z / launch.pieces;
    is_there = index < a.pass.counts[kTileCount];
    if (!is_there) return;
    tile = a.pass.tiles[index];
    slice_first = a.pass.tiles[a.first_tile].first;
    const int left = tile.count - begin;
    is_there = left > 0 && static_cast<int>(blockIdx.x) < chunk_count(a);
    tile.first += begin;
    tile.count = left < launch.rows ? left : launch.rows;
  }

  SIMT_DEV int first_chunk(const Attend& a) const {
    const int first = a.window > 0 ? tile.least - a.window + 1 : 0;
    return first > 0 ? first / kChunk : 0;
  }
  SIMT_DEV int chunk_count(const Attend& a) const {
    return tile.most / kChunk + 1 - first_chunk(a);
  }
};

template <int kTiles, int kHeadDim>
class AttentionBlock {
 public:
  using Shared = AttentionShared<kTiles>;

  SIMT_DEV AttentionBlock(const Attend& args, Shared& shared, const AttentionPiece& piece)
      : a_(args),
        shared_(shared),
        tile_(piece.tile),
        slice_first_(piece.slice_first),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32),
        kv_head_(static_cast<int>(blockIdx.y)),
        in_tile_(static_cast<int>(blockIdx.x)),
        first_chunk_(piece.first_chunk(args)),
        chunks_(piece.chunk_count(args)),
        chunk_(first_chunk_ + in_tile_),
        per_row_(args.heads / args.shape.kv_heads),
        columns_(per_row_ * tile_.count) {}

  // What does not depend on the launch before.
  SIMT_DEV void prepare() {
    load_rows();
    __syncthreads();
    find_bounds();
    if (shared_.rows[0].linear == 0) load_tails();
    fetch_pages();
  }

  SIMT_DEV void run() {
    Keys keys;
    if constexpr (kKnown) load_keys(keys);
    load_queries();
    __syncthreads();
    Scores scores;
    SIMT_UNROLL
    for (int w = 0; w < kWarpTiles; ++w) multiply_paged(w, keys[w], scores[w]);
    SIMT_UNROLL
    for (int w = 0; w < kWarpTiles; ++w) hide(w, scores[w]);
    if (shared_.rows[0].linear == 0) {
      SIMT_UNROLL
      for (int w = 0; w < kWarpTiles; ++w) score_rows(w, scores[w]);
    }
    if (a_.soft_cap != 0.0f) cap(scores);
    find_largest(scores);
    Values values;
    if constexpr (kKnown) load_values<0, kAhead>(values);
    __syncthreads();
    weigh(scores);
    if constexpr (kKnown) load_values<kAhead, kHeld>(values);
    __syncthreads();
    for (int d = warp_ * 16; d < head_dim(); d += kAttentionWarps * 16) {
      float sums[kTiles][4];
      add_values(d, values, sums);
      if (chunks_ == 1) {
        write(d, sums);
      } else {
        keep(d, sums);
      }
    }
    if (chunks_ > 1) finish_chunk();
  }

 private:
  // Of kHeadDim 0 the dimensions are not known to the compiler, and nothing is loaded ahead.
  static constexpr bool kKnown = kHeadDim > 0;
  static constexpr int kKeySteps = kKnown ? kHeadDim / 32 : 1;      // of 32 dimensions
  static constexpr int kWarpTiles = kChunk / 16 / kAttentionWarps;  // of 16 positions
  static constexpr int kBlocks = kChunk / 32;                       // of 32 positions
  // Blocks of values that are asked for before the softmax, and before its end: as many as there
  // are registers for.
  static constexpr int kAhead = kTiles == 4 ? 0 : kBlocks / 2;
  static constexpr int kHeld = kTiles == 4 ? kBlocks / 2 : kBlocks;
  using Keys = uint4[kWarpTiles][kKeySteps][2];
  using Values = uint4[kHeld][2];
  using Scores = float[kWarpTiles][kTiles][4];

  SIMT_DEV int head_dim() const { return kKnown ? kHeadDim : a_.shape.head_dim; }
  SIMT_DEV int row_of(int column) const { return shared_.row_of[column]; }
  SIMT_DEV int head_of(int column) const { return (kv_head_ - row_of(column)) * per_row_ + column; }
  // The lane's columns of a tile of products are this one and the next.
  SIMT_DEV int column_of(int tile) const { return tile * 8 + lane_ % 4 * 2; }
  // Whether the row has columns in it.
  SIMT_DEV bool has_row(int tile, int row) const {
    return row < 0 || (row * per_row_ < tile * 8 + 8 && (row + 1) * per_row_ > tile * 8);
  }

  SIMT_DEV void load_rows() {
    if (thread_ < Shared::kColumns) shared_.row_of[thread_] = thread_ / per_row_;
    if (thread_ < tile_.count) shared_.rows[thread_] = a_.pass.rows[tile_.first + thread_];
    if (thread_ >= 32 && thread_ < 32 + Shared::kPages) {
      // Of what lies behind the last position there need be none.
      const int page = chunk_ * Shared::kPages + thread_ - 32;
      const bool is_there = page * kPage <= tile_.most;
      const PassRow& row = a_.pass.rows[tile_.first];
      const bool in_pages = row.linear != 0 || page * kPage < row.committed;
      shared_.pages[thread_ - 32] = is_there && in_pages ? a_.pass.indices[row.pages + page] : 0;
    }
  }

  // Positions before paged_end_ are where the pages put them; those from all_begin_ to all_end_ are
  // seen by every row.
  SIMT_DEV void find_bounds() {
    const PassRow& first = shared_.rows[0];
    paged_end_ = first.linear != 0 ? tile_.most + 1 : first.committed;
    all_end_ = tile_.least + 1;
    all_begin_ = a_.window > 0 ? tile_.most - a_.window + 1 : 0;
    least_seen_ = a_.window > 0 ? tile_.least - a_.window + 1 : 0;
  }

  SIMT_DEV void load_tails() {
    const int position = chunk_ * kChunk + thread_;
    static_assert(kAttentionThreads == kChunk);
    if (position < paged_end_) return;
    for (int r = 0; r < tile_.count; ++r) {
      const PassRow& row = shared_.rows[r];
      if (position > row.position) continue;
      shared_.tails[r][thread_] = a_.pass.indices[row.tail + position - row.committed];
    }
  }

  SIMT_DEV void fetch_pages() const {
    constexpr int kLine = 64;  // elements
    const int lines = head_dim() * kPage / kLine;
    for (int page = 0; page < Shared::kPages; ++page) {
      const int begin = chunk_ * kChunk + page * kPage;
      if (none_sees(begin, begin + kPage) || begin >= paged_end_) continue;
      const uint16_t* from = head_at(shared_.pages[page] * kPage);
      for (int i = thread_; i < 2 * lines; i += kAttentionThreads) {
        if (i >= lines || begin + i * kLine / head_dim() <= tile_.most) {
          simt::fetch_line(from + i * kLine);
        }
      }
    }
  }

  SIMT_DEV void load_queries() {
    const int pieces = head_dim() / 8;
    for (int i = thread_; i < kTiles * 8 * pieces; i += kAttentionThreads) {
      const int column = i / pieces, at = i % pieces * 8;
      uint4 v = {0, 0, 0, 0};
      if (column < columns_) {
        const int64_t row = tile_.first + row_of(column);
        v = read16(a_.q + (row * a_.heads + head_of(column)) * head_dim() + at);
      }
      *reinterpret_cast<uint4*>(&shared_.queries[column][at]) = v;
    }
  }

  SIMT_DEV bool all_see(int begin, int end) const { return begin >= all_begin_ && end <= all_end_; }
  SIMT_DEV bool none_sees(int begin, int end) const {
    return begin > tile_.most || end <= least_seen_;
  }
  // Whether all that any row sees there is where the pages put it.
  SIMT_DEV bool is_paged(int end) const { return end <= paged_end_ || shared_.rows[0].linear != 0; }
  SIMT_DEV bool sees(const PassRow& row, int position) const {
    return position <= row.position && (a_.window == 0 || position > row.position - a_.window);
  }

  SIMT_DEV int paged_slot(int in_chunk) const {
    return shared_.pages[in_chunk / kPage] * kPage + in_chunk % kPage;
  }
  SIMT_DEV int slot_of(int r, int in_chunk) const {
    return chunk_ * kChunk + in_chunk < paged_end_ ? paged_slot(in_chunk)
                                                   : shared_.tails[r][in_chunk];
  }
  SIMT_DEV const uint16_t* head_at(int slot) const {
    return a_.plane + head_offset(a_.shape, slot, kv_head_);
  }
  SIMT_DEV const uint16_t* key_at(int slot) const {
    return head_at(slot) + key_element(a_.shape, slot, 0);
  }

  // The warp's tiles of positions.
  SIMT_DEV int tile_of(int w) const { return warp_ + w * kAttentionWarps; }

  SIMT_DEV void load_keys(Keys& keys) const {
    SIMT_UNROLL
    for (int w = 0; w < kWarpTiles; ++w) {
      const int at = tile_of(w) * 16, begin = chunk_ * kChunk + at;
      const bool is_there = takes_pages(begin, begin + 16);
      const uint16_t* first = is_there ? key_at(paged_slot(at + lane_ / 4)) : nullptr;
      SIMT_UNROLL
      for (int s = 0; s < kKeySteps; ++s) {
        const int d = s * 32 + lane_ % 4 * 8;
        if (!is_there) continue;
        keys[w][s][0] = read16(first + d);
        keys[w][s][1] = read16(first + 8 * kHeadDim + d);
      }
    }
  }

  // Whether some row sees some of these, and all that rows see of them is where the pages put it.
  SIMT_DEV bool takes_pages(int begin, int end) const {
    return !none_sees(begin, end) && is_paged(end);
  }

  SIMT_DEV void multiply_paged(int w, const uint4 (&keys)[kKeySteps][2],
                               float (&scores)[kTiles][4]) const {
    const int at = tile_of(w) * 16, begin = chunk_ * kChunk + at;
    clear(scores);
    if (!takes_pages(begin, begin + 16)) return;
    if constexpr (kKnown) {
      SIMT_UNROLL
      for (int s = 0; s < kKeySteps; ++s) multiply_step(keys[s][0], keys[s][1], s * 32, -1, scores);
    } else {
      const uint16_t* first = key_at(paged_slot(at + lane_ / 4));
      multiply_keys(first, first + 8 * head_dim(), -1, scores);
    }
  }

  // What rows do not see, or not where the pages put it.
  SIMT_DEV void hide(int w, float (&scores)[kTiles][4]) const {
    const int begin = chunk_ * kChunk + tile_of(w) * 16;
    const bool is_there = takes_pages(begin, begin + 16), whole = all_see(begin, begin + 16);
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 4; ++i) {
      float& s = scores[i / 4][i % 4];
      const int column = column_of(i / 4) + i % 2;
      const int position = begin + lane_ / 4 + i % 4 / 2 * 8;
      const bool seen =
          is_there && column < columns_ && (whole || sees(shared_.rows[row_of(column)], position));
      s = seen ? s * a_.scale : -infinity();
    }
  }

  SIMT_DEV void score_rows(int w, float (&scores)[kTiles][4]) const {
    const int at = tile_of(w) * 16, begin = chunk_ * kChunk + at;
    if (none_sees(begin, begin + 16) || is_paged(begin + 16)) return;
    SIMT_UNROLL_BY(1)
    for (int r = 0; r < tile_.count; ++r) {
      const int slot = readable_slot(r, at + lane_ / 4);
      const int other = readable_slot(r, at + lane_ / 4 + 8);
      float sums[kTiles][4];
      multiply_keys(key_at(slot), key_at(other), r, sums);
      take_scores(at, r, sums, scores);
    }
  }

  // A slot whose key may be read: the row's own where it does not see the position.
  SIMT_DEV int readable_slot(int r, int in_chunk) const {
    const PassRow& row = shared_.rows[r];
    return sees(row, chunk_ * kChunk + in_chunk) ? slot_of(r, in_chunk) : row.slot;
  }

  static SIMT_DEV void clear(float (&sums)[kTiles][4]) {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 4; ++i) sums[i / 4][i % 4] = 0.0f;
  }

  // 32 dimensions at a time: a lane has 8 of them side by side, 4 for each of two steps.
  SIMT_DEV void multiply_keys(const uint16_t* first, const uint16_t* second, int row,
                              float (&sums)[kTiles][4]) const {
    clear(sums);
    const int t = lane_ % 4, g = lane_ / 4;
    const int whole = head_dim() / 32 * 32;
    SIMT_UNROLL_BY(kTiles == 4 && kHeadDim == 64 ? 1 : 4)
    for (int d = 0; d < whole; d += 32) {
      multiply_step(read16(first + d + t * 8), read16(second + d + t * 8), d, row, sums);
    }
    if (whole == head_dim()) return;
    const uint2 k0 = read8(first + whole + t * 4);
    const uint2 k1 = read8(second + whole + t * 4);
    const uint32_t a[4] = {k0.x, k1.x, k0.y, k1.y};
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      if (!has_row(i, row)) continue;
      const uint2 q = *reinterpret_cast<const uint2*>(&shared_.queries[i * 8 + g][whole + t * 4]);
      const uint32_t b[2] = {q.x, q.y};
      simt::mma_f16(sums[i], a, b);
    }
  }

  SIMT_DEV void multiply_step(uint4 k0, uint4 k1, int d, int row, float (&sums)[kTiles][4]) const {
    const uint32_t a0[4] = {k0.x, k1.x, k0.y, k1.y}, a1[4] = {k0.z, k1.z, k0.w, k1.w};
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      if (!has_row(i, row)) continue;
      const uint4 q =
          *reinterpret_cast<const uint4*>(&shared_.queries[i * 8 + lane_ / 4][d + lane_ % 4 * 8]);
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
      const int column = column_of(i / 4) + i % 2;
      const int position = chunk_ * kChunk + at + lane_ / 4 + i % 4 / 2 * 8;
      if (column >= columns_ || row_of(column) != r) continue;
      if (sees(shared_.rows[r], position)) scores[i / 4][i % 4] = sums[i / 4][i % 4] * a_.scale;
    }
  }

  // Of what is seen.
  SIMT_DEV void cap(Scores& scores) const {
    SIMT_UNROLL
    for (int i = 0; i < kWarpTiles * kTiles * 4; ++i) {
      float& s = scores[i / (kTiles * 4)][i / 4 % kTiles][i % 4];
      if (s != -infinity()) s = a_.soft_cap * simt::tanh(simt::divide(s, a_.soft_cap));
    }
  }

  // Of each column, over the warp's positions.
  SIMT_DEV void find_largest(const Scores& scores) {
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
      if (lane_ < 4) shared_.largest[warp_][column_of(i / 2) + i % 2] = largest;
    }
  }

  SIMT_DEV float largest_of(int column) const {
    float largest = -infinity();
    SIMT_UNROLL
    for (int w = 0; w < kAttentionWarps; ++w) {
      const float m = shared_.largest[w][column];
      largest = m > largest ? m : largest;
    }
    return largest;
  }
  SIMT_DEV float sum_of(int column) const {
    float sum = 0.0f;
    SIMT_UNROLL
    for (int w = 0; w < kAttentionWarps; ++w) sum += shared_.sums[w][column];
    return sum;
  }

  // Softmax over the chunk: shares, not divided by their sum yet.
  SIMT_DEV void weigh(const Scores& scores) {
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const int column = column_of(i);
      const float largest[2] = {largest_of(column), largest_of(column + 1)};
      float sums[2] = {0.0f, 0.0f};
      SIMT_UNROLL
      for (int w = 0; w < kWarpTiles; ++w) {
        uint32_t shares[2] = {0, 0};  // of a column each, the second position in the upper half
        SIMT_UNROLL
        for (int j = 0; j < 4; ++j) {
          const uint32_t share = share_of(scores[w][i][j], largest[j % 2]);
          sums[j % 2] += simt::from_f16(static_cast<uint16_t>(share));
          shares[j % 2] |= share << j / 2 * 16;
        }
        put_shares(column, tile_of(w) * 16, shares);
      }
      SIMT_UNROLL
      for (int j = 0; j < 2; ++j) {
        SIMT_UNROLL
        for (int mask = 4; mask < 32; mask *= 2) sums[j] += simt::shuffle_xor(sums[j], mask);
        if (lane_ < 4) shared_.sums[warp_][column + j] = sums[j];
      }
    }
  }

  static SIMT_DEV uint32_t share_of(float score, float largest) {
    // Where nothing is seen there is no largest one. Shares are at most 1.
    return score == -infinity() ? 0u : simt::to_f16(simt::exp(score - largest));
  }

  // Lanes of neighbouring positions exchange columns, so that each writes two positions of one.
  SIMT_DEV void put_shares(int column, int at, const uint32_t (&shares)[2]) {
    const int odd = lane_ / 4 % 2;
    const uint32_t other = simt::shuffle_xor(shares[1 - odd], 4);
    const uint32_t first = odd != 0 ? other : shares[0], second = odd != 0 ? shares[1] : other;
    const int position = at + lane_ / 4 - odd;
    uint16_t* to = shared_.shares[column + odd];
    *reinterpret_cast<uint32_t*>(to + Shared::share_at(column + odd, position)) =
        (first & 0xffffu) | second << 16;
    *reinterpret_cast<uint32_t*>(to + Shared::share_at(column + odd, position + 8)) =
        first >> 16 | (second & 0xffff0000u);
  }

  template <int kFrom, int kTo>
  SIMT_DEV void load_values(Values& values) const {
    SIMT_UNROLL
    for (int b = kFrom; b < kTo; ++b) {
      const int end = chunk_ * kChunk + b * 32 + 32;
      if (warp_ * 16 >= kHeadDim || !takes_pages(end - 32, end)) continue;
      load_block(warp_ * 16, b * 32, values[b % kHeld]);
    }
  }

  SIMT_DEV void load_block(int d, int at, uint4 (&values)[2]) const {
    const int slot = paged_slot(at);
    const uint16_t* from =
        head_at(slot) + value_element(a_.shape, slot, d + lane_ / 4) + lane_ % 4 * 8;
    values[0] = read16(from);
    values[1] = read16(from + 8 * kPage);
  }

  // Dimensions [d, d + 16) of the sum of values by shares.
  SIMT_DEV void add_values(int d, Values& values, float (&sums)[kTiles][4]) const {
    clear(sums);
    const int begin = chunk_ * kChunk;
    SIMT_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      if constexpr (kKnown && kHeld < kBlocks) {
        if (b == kHeld) load_values<kHeld, kBlocks>(values);
      }
      if (!takes_pages(begin + b * 32, begin + b * 32 + 32)) continue;
      if constexpr (kKnown) {
        multiply_values(b * 32, values[b % kHeld], -1, sums);
      } else {
        uint4 loaded[2];
        load_block(d, b * 32, loaded);
        multiply_values(b * 32, loaded, -1, sums);
      }
    }
    if (shared_.rows[0].linear != 0) return;
    // These are behind all that pages hold.
    SIMT_UNROLL_BY(1)
    for (int b = 0; b < kBlocks; ++b) {
      const int end = begin + b * 32 + 32;
      if (!none_sees(end - 32, end) && !is_paged(end)) add_rows(d, b * 32, sums);
    }
  }

  // The next row's values are on their way while one's are multiplied.
  SIMT_DEV void add_rows(int d, int at, float (&sums)[kTiles][4]) const {
    uint4 next[2];
    gather(d, at, 0, next);
    SIMT_UNROLL_BY(1)
    for (int r = 0; r < tile_.count; ++r) {
      const uint4 now[2] = {next[0], next[1]};
      if (r + 1 < tile_.count) gather(d, at, r + 1, next);
      multiply_values(at, now, r, sums);
    }
  }

  SIMT_DEV void gather(int d, int at, int r, uint4 (&values)[2]) const {
    const PassRow& row = shared_.rows[r];
    uint32_t v[2][4];
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      v[0][i] = v[1][i] = 0;
      SIMT_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int in_chunk = at + lane_ % 4 * 8 + i * 2 + j;
        if (!sees(row, chunk_ * kChunk + in_chunk)) continue;
        const int slot = slot_of(r, in_chunk);
        const uint16_t* from = head_at(slot) + value_element(a_.shape, slot, d + lane_ / 4);
        v[0][i] |= static_cast<uint32_t>(from[0]) << 16 * j;
        v[1][i] |= static_cast<uint32_t>(from[8 * kPage]) << 16 * j;
      }
    }
    values[0] = {v[0][0], v[0][1], v[0][2], v[0][3]};
    values[1] = {v[1][0], v[1][1], v[1][2], v[1][3]};
  }

  // Of all columns, or of one row's: what a product of zeros leaves of the others' sums is not for
  // sure what they were.
  SIMT_DEV void multiply_values(int at, const uint4 (&v)[2], int row,
                                float (&sums)[kTiles][4]) const {
    const uint32_t a0[4] = {v[0].x, v[1].x, v[0].y, v[1].y};
    const uint32_t a1[4] = {v[0].z, v[1].z, v[0].w, v[1].w};
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      if (!has_row(i, row)) continue;
      const int column = i * 8 + lane_ / 4;
      const uint4 p = *reinterpret_cast<const uint4*>(
          &shared_.shares[column][Shared::share_at(column, at + lane_ % 4 * 8)]);
      const uint32_t b0[2] = {p.x, p.y}, b1[2] = {p.z, p.w};
      float all[4] = {sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
      simt::mma_f16(all, a0, b0);
      simt::mma_f16(all, a1, b1);
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) {
        if (row < 0 || row_of(column_of(i) + j % 2) == row) sums[i][j] = all[j];
      }
    }
  }

  SIMT_DEV void write(int d, const float (&sums)[kTiles][4]) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 2; ++i) {
      const int column = column_of(i / 2) + i % 2;
      if (column >= columns_) continue;
      const float largest = largest_of(column);
      float factor = 1.0f, total = sum_of(column);
      if (a_.sinks != nullptr) {
        const float sink = a_.sinks[head_of(column)];
        const float both = sink > largest ? sink : largest;
        factor = simt::exp(largest - both);
        total = simt::fma(factor, total, simt::exp(sink - both));
      }
      uint16_t* out = out_of(column) + d + lane_ / 4;
      out[0] = simt::to_bf16(simt::divide(factor * sums[i / 2][i % 2], total));
      out[8] = simt::to_bf16(simt::divide(factor * sums[i / 2][i % 2 + 2], total));
    }
  }

  SIMT_DEV uint16_t* out_of(int column) const {
    return a_.out + static_cast<int64_t>(tile_.first + row_of(column)) * a_.out_stride +
           head_of(column) * head_dim();
  }

  SIMT_DEV Parts parts_of_column(int column) const {
    const int64_t row = tile_.first + row_of(column) - slice_first_;
    const int64_t first = (row * a_.heads + head_of(column)) * parts_of(a_.most_chunks);
    return {a_.partials + first * part_floats(head_dim()), head_dim()};
  }

  SIMT_DEV void keep(int d, const float (&sums)[kTiles][4]) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 2; ++i) {
      const int column = column_of(i / 2) + i % 2;
      if (column >= columns_) continue;
      float* part = parts_of_column(column).part(in_tile_) + d + lane_ / 4;
      part[0] = sums[i / 2][i % 2];
      part[8] = sums[i / 2][i % 2 + 2];
    }
  }

  SIMT_DEV void finish_chunk() const {
    if (thread_ < columns_) {
      float* part = parts_of_column(thread_).part(in_tile_) + head_dim();
      part[0] = largest_of(thread_);
      part[1] = sum_of(thread_);
    }
    const int end = first_chunk_ + chunks_;
    const int first_group = first_chunk_ / kGroupChunks, group = chunk_ / kGroupChunks;
    const int groups = (end - 1) / kGroupChunks + 1 - first_group, at = group - first_group;
    const int from = group * kGroupChunks > first_chunk_ ? group * kGroupChunks : first_chunk_;
    const int to = (group + 1) * kGroupChunks < end ? (group + 1) * kGroupChunks : end;
    unsigned* counters =
        a_.arrived +
        (static_cast<int64_t>(tile_.first - slice_first_) * a_.shape.kv_heads + kv_head_) *
            counters_of(a_.most_chunks);
    if (!simt::arrive_last(counters + 1 + at, static_cast<unsigned>(to - from))) return;
    merge(from - first_chunk_, to - from, groups > 1 ? a_.most_chunks + at : -1);
    if (groups == 1) return;
    if (!simt::arrive_last(counters, static_cast<unsigned>(groups))) return;
    merge(a_.most_chunks, groups, -1);
  }

  // To part `to`, or to what comes out.
  SIMT_DEV void merge(int first, int count, int to) const {
    for (int c = warp_; c < columns_; c += kAttentionWarps) {
      const MergeWarp merged(parts_of_column(c), first, count);
      if (to >= 0) {
        merged.to_part(to);
      } else {
        merged.to_output(a_.sinks != nullptr ? a_.sinks + head_of(c) : nullptr, out_of(c));
      }
    }
  }

  const Attend& a_;
  Shared& shared_;
  PassTile tile_;
  int slice_first_, thread_, lane_, warp_, kv_head_, in_tile_, first_chunk_, chunks_, chunk_,
      per_row_, columns_;
  int paged_end_ = 0, all_begin_ = 0, all_end_ = 0, least_seen_ = 0;
};

template <int kTiles, int kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads, kHeadDim > 0 ? 2 : 1)
    attention_kernel(const __grid_constant__ AttendLaunch launch) {
  auto& shared = simt::shared<AttentionShared<kTiles>>();
  simt::release_dependents();
  const AttentionPiece piece(launch);
  if (!piece.is_there) return simt::wait_for_previous();
  AttentionBlock<kTiles, kHeadDim> block(launch.a, shared, piece);
  block.prepare();
  simt::wait_for_previous();
  block.run();
}

}  // namespace aerie::device
