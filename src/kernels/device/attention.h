// Attention of a pass over a paged cache. A block takes the query heads of a tile of rows that read
// one head of keys and values, and one chunk of positions; where there are several chunks their
// parts are put together by the block that comes last, in the order of positions.
//
// Keys and values are the left factors of products, columns are query heads of rows: scores are
// [positions][columns], what comes out is [dimensions][columns], and a column's sums do not depend
// on what else there is: shares of positions that a row does not see are 0, and values are finite
// (rows.h). Positions that lie elsewhere for each row (ancestors in a tree) are taken row by row.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/cache_place.h"
#include "kernels/device/device.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

inline constexpr int kAttentionThreads = 256;
inline constexpr int kMostColumns = 32;
inline constexpr int kMostTileRows = 16;
inline constexpr int kMostHeadDim = 256;

// Of what an earlier kernel wrote, which load16() may not be used for.
SIMT_DEV uint4 read16(const uint16_t* from) {
  return *reinterpret_cast<const uint4*>(from);
}
SIMT_DEV uint2 read8(const uint16_t* from) {
  return *reinterpret_cast<const uint2*>(from);
}

template <int kTiles>
struct AttentionShared {
  // Padded so that the lanes of a load touch all banks.
  static constexpr int kQueryStride = kMostHeadDim + 32;
  static constexpr int kScoreStride = kChunk + 4;
  static constexpr int kShareStride = kChunk + 32;
  static constexpr int kPages = kChunk / kPage;
  uint16_t queries[kTiles * 8][kQueryStride];
  float scores[kTiles * 8][kScoreStride];
  uint16_t shares[kTiles * 8][kShareStride];
  float largest[kTiles * 8], sums[kTiles * 8];
  PassRow rows[kMostTileRows];
  int32_t pages[kPages];  // of the chunk
};

// The parts of a row and head: [chunk][head_dim + 2], the largest score and the sum of shares last.
SIMT_DEV float* partial_at(const Attend& a, int row, int head, int chunk) {
  const int64_t in_slice = row - a.pass.tiles[a.first_tile].first;
  return a.partials +
         ((in_slice * a.heads + head) * a.most_chunks + chunk) * (a.shape.head_dim + 2);
}

template <int kTiles, int kHeadDim>
class AttentionBlock {
 public:
  using Shared = AttentionShared<kTiles>;

  SIMT_DEV AttentionBlock(const Attend& args, Shared& shared, const PassTile& tile)
      : a_(args),
        shared_(shared),
        tile_(tile),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32),
        kv_head_(static_cast<int>(blockIdx.y)),
        in_tile_(static_cast<int>(blockIdx.x)),
        chunk_(first_chunk(args, tile) + in_tile_),
        per_row_(args.heads / args.shape.kv_heads),
        columns_(per_row_ * tile.count) {}

  static SIMT_DEV int first_chunk(const Attend& a, const PassTile& tile) {
    const int first = a.window > 0 ? tile.least - a.window + 1 : 0;
    return first > 0 ? first / kChunk : 0;
  }
  static SIMT_DEV int chunk_count(const Attend& a, const PassTile& tile) {
    return tile.most / kChunk + 1 - first_chunk(a, tile);
  }

  SIMT_DEV void run() {
    load_queries();
    __syncthreads();
    find_bounds();
    score_all();
    __syncthreads();
    for (int c = warp_; c < columns_; c += kAttentionThreads / 32) weigh(c);
    __syncthreads();
    const int chunks = chunk_count(a_, tile_);
    for (int d = warp_ * 16; d < head_dim(); d += kAttentionThreads / 32 * 16) {
      float sums[kTiles][4];
      add_values(d, sums);
      if (chunks == 1) {
        write(d, sums);
      } else {
        keep(d, sums);
      }
    }
    if (chunks == 1) return;
    if (thread_ < columns_) {
      float* part = partial_of_column(thread_) + head_dim();
      part[0] = shared_.largest[thread_];
      part[1] = shared_.sums[thread_];
    }
    if (simt::arrive_last(a_.arrived + blockIdx.z * a_.shape.kv_heads + kv_head_,
                          static_cast<unsigned>(chunks))) {
      merge();
    }
  }

 private:
  SIMT_DEV int head_dim() const { return kHeadDim > 0 ? kHeadDim : a_.shape.head_dim; }
  SIMT_DEV int row_of(int column) const { return column / per_row_; }
  SIMT_DEV int head_of(int column) const { return kv_head_ * per_row_ + column % per_row_; }
  SIMT_DEV float* partial_of_column(int column) const {
    return partial_at(a_, tile_.first + row_of(column), head_of(column), in_tile_);
  }

  SIMT_DEV void load_queries() {
    if (thread_ < tile_.count) shared_.rows[thread_] = a_.pass.rows[tile_.first + thread_];
    if (thread_ >= 32 && thread_ < 32 + Shared::kPages) {
      // Of what lies behind the last position there need be none.
      const int page = chunk_ * Shared::kPages + thread_ - 32;
      const bool is_there = page * kPage <= tile_.most;
      const PassRow& row = a_.pass.rows[tile_.first];
      const bool in_pages = row.linear != 0 || page * kPage < row.committed;
      shared_.pages[thread_ - 32] = is_there && in_pages ? a_.pass.indices[row.pages + page] : 0;
    }
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

  // Positions before paged_end_ are where the pages put them; those from all_begin_ to all_end_ are
  // seen by every row.
  SIMT_DEV void find_bounds() {
    const PassRow& first = shared_.rows[0];
    paged_end_ = first.linear != 0 ? tile_.most + 1 : first.committed;
    all_end_ = tile_.least + 1;
    all_begin_ = a_.window > 0 ? tile_.most - a_.window + 1 : 0;
    least_seen_ = a_.window > 0 ? tile_.least - a_.window + 1 : 0;
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
  SIMT_DEV int slot_of(const PassRow& row, int in_chunk) const {
    const int position = chunk_ * kChunk + in_chunk;
    if (position < row.committed || row.linear != 0) return paged_slot(in_chunk);
    return a_.pass.indices[row.tail + position - row.committed];
  }
  SIMT_DEV const uint16_t* head_at(int slot) const {
    return a_.plane + head_offset(a_.shape, slot, kv_head_);
  }
  SIMT_DEV const uint16_t* key_at(int slot) const {
    return head_at(slot) + key_element(a_.shape, slot, 0);
  }

  // Tiles of 16 positions, and rows of those that are taken row by row, dealt out to the warps.
  SIMT_DEV void score_all() {
    int item = 0;
    const auto is_mine = [&] { return item++ % (kAttentionThreads / 32) == warp_; };
    for (int tile = 0; tile < kChunk / 16; ++tile) {
      const int begin = chunk_ * kChunk + tile * 16;
      if (none_sees(begin, begin + 16)) {
        if (is_mine()) hide(tile);
      } else if (is_paged(begin + 16)) {
        if (is_mine()) score_paged(tile);
      } else {
        for (int r = 0; r < tile_.count; ++r) {
          if (is_mine()) score_row(tile, r);
        }
      }
    }
  }

  SIMT_DEV void score_paged(int tile) {
    const int begin = tile * 16;
    float sums[kTiles][4];
    multiply_keys(key_at(paged_slot(begin + lane_ / 4)), key_at(paged_slot(begin + 8 + lane_ / 4)),
                  sums);
    const bool whole = all_see(chunk_ * kChunk + begin, chunk_ * kChunk + begin + 16);
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) write_scores(tile, i, sums[i], -1, whole);
  }

  SIMT_DEV void score_row(int tile, int r) {
    const PassRow row = shared_.rows[r];
    const int at = tile * 16 + lane_ / 4, p = chunk_ * kChunk + at;
    const uint16_t* first = key_at(sees(row, p) ? slot_of(row, at) : row.slot);
    const uint16_t* second = key_at(sees(row, p + 8) ? slot_of(row, at + 8) : row.slot);
    float sums[kTiles][4];
    multiply_keys(first, second, sums);
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) write_scores(tile, i, sums[i], r, false);
  }

  SIMT_DEV void hide(int tile) {
    for (int i = lane_; i < kTiles * 8 * 16; i += 32) {
      shared_.scores[i / 16][tile * 16 + i % 16] = -infinity();
    }
  }

  // 32 dimensions at a time: a lane has 8 of them side by side, 4 for each of two steps.
  SIMT_DEV void multiply_keys(const uint16_t* first, const uint16_t* second,
                              float (&sums)[kTiles][4]) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = 0.0f;
    }
    const int t = lane_ % 4, g = lane_ / 4;
    const int whole = head_dim() / 32 * 32;
    SIMT_UNROLL
    for (int d = 0; d < (kHeadDim > 0 ? kHeadDim / 32 * 32 : whole); d += 32) {
      const uint4 k0 = read16(first + d + t * 8);
      const uint4 k1 = read16(second + d + t * 8);
      const uint32_t a0[4] = {k0.x, k1.x, k0.y, k1.y}, a1[4] = {k0.z, k1.z, k0.w, k1.w};
      SIMT_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        const uint4 q = *reinterpret_cast<const uint4*>(&shared_.queries[i * 8 + g][d + t * 8]);
        const uint32_t b0[2] = {q.x, q.y}, b1[2] = {q.z, q.w};
        simt::mma_f16(sums[i], a0, b0);
        simt::mma_f16(sums[i], a1, b1);
      }
    }
    if (whole == head_dim()) return;
    const uint2 k0 = read8(first + whole + t * 4);
    const uint2 k1 = read8(second + whole + t * 4);
    const uint32_t a[4] = {k0.x, k1.x, k0.y, k1.y};
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const uint2 q = *reinterpret_cast<const uint2*>(&shared_.queries[i * 8 + g][whole + t * 4]);
      const uint32_t b[2] = {q.x, q.y};
      simt::mma_f16(sums[i], a, b);
    }
  }

  // Of all columns, or of one row's. `whole`: every row sees all of the tile.
  SIMT_DEV void write_scores(int tile, int column_tile, const float (&sums)[4], int row,
                             bool whole) {
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int column = column_tile * 8 + lane_ % 4 * 2 + j % 2;
      const int in_chunk = tile * 16 + lane_ / 4 + j / 2 * 8;
      if (column >= columns_ || (row >= 0 && row_of(column) != row)) continue;
      float s = sums[j] * a_.scale;
      if (a_.soft_cap != 0.0f) s = a_.soft_cap * simt::tanh(simt::divide(s, a_.soft_cap));
      if (!whole && !sees(shared_.rows[row_of(column)], chunk_ * kChunk + in_chunk)) {
        s = -infinity();
      }
      shared_.scores[column][in_chunk] = s;
    }
  }

  // Softmax of a column's scores over the chunk: its shares, not divided by their sum yet.
  SIMT_DEV void weigh(int column) {
    float s[kChunk / 32];
    float largest = -infinity();
    SIMT_UNROLL
    for (int i = 0; i < kChunk / 32; ++i) {
      s[i] = shared_.scores[column][i * 32 + lane_];
      largest = s[i] > largest ? s[i] : largest;
    }
    SIMT_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = simt::shuffle_xor(largest, mask);
      largest = other > largest ? other : largest;
    }
    float sum = 0.0f;
    SIMT_UNROLL
    for (int i = 0; i < kChunk / 32; ++i) {
      // Where nothing is seen there is no largest one. Shares are at most 1.
      const bool hidden = s[i] == -infinity();
      const uint16_t share = hidden ? uint16_t{0} : simt::to_f16(simt::exp(s[i] - largest));
      shared_.shares[column][i * 32 + lane_] = share;
      sum += simt::from_f16(share);
    }
    SIMT_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) sum += simt::shuffle_xor(sum, mask);
    if (lane_ == 0) {
      shared_.largest[column] = largest;
      shared_.sums[column] = sum;
    }
  }

  // Dimensions [d, d + 16) of the sum of values by shares.
  SIMT_DEV void add_values(int d, float (&sums)[kTiles][4]) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = 0.0f;
    }
    // Four loads at a time are on their way.
    for (int at = 0; at < kChunk; at += 64) {
      const int begin = chunk_ * kChunk + at;
      if (none_sees(begin, begin + 64)) continue;
      uint4 values[2][2];
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) load_values(d, at + i * 32, values[i]);
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int end = begin + i * 32 + 32;
        if (none_sees(end - 32, end)) continue;
        if (is_paged(end)) {
          multiply_values(at + i * 32, values[i][0], values[i][1], -1, sums);
        } else {
          for (int r = 0; r < tile_.count; ++r) add_of_row(d, at + i * 32, r, sums);
        }
      }
    }
  }

  SIMT_DEV void load_values(int d, int at, uint4 (&values)[2]) const {
    const int slot = paged_slot(at);
    const uint16_t* from =
        head_at(slot) + value_element(a_.shape, slot, d + lane_ / 4) + lane_ % 4 * 8;
    values[0] = read16(from);
    values[1] = read16(from + 8 * kPage);
  }

  SIMT_DEV void add_of_row(int d, int at, int r, float (&sums)[kTiles][4]) const {
    const PassRow row = shared_.rows[r];
    const int t = lane_ % 4, begin = chunk_ * kChunk + at;
    if (begin > row.position) return;
    uint32_t v[2][4];
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      v[0][i] = v[1][i] = 0;
      SIMT_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int in_chunk = at + t * 8 + i * 2 + j;
        if (!sees(row, chunk_ * kChunk + in_chunk)) continue;
        const int slot = slot_of(row, in_chunk);
        const uint16_t* values = head_at(slot) + value_element(a_.shape, slot, d + lane_ / 4);
        v[0][i] |= static_cast<uint32_t>(values[0]) << 16 * j;
        v[1][i] |= static_cast<uint32_t>(values[8 * kPage]) << 16 * j;
      }
    }
    multiply_values(at, {v[0][0], v[0][1], v[0][2], v[0][3]}, {v[1][0], v[1][1], v[1][2], v[1][3]},
                    r, sums);
  }

  // Of all columns, or of one row's: what a product of zeros leaves of the others' sums is not for
  // sure what they were.
  SIMT_DEV void multiply_values(int at, uint4 v0, uint4 v1, int row,
                                float (&sums)[kTiles][4]) const {
    const uint32_t a0[4] = {v0.x, v1.x, v0.y, v1.y}, a1[4] = {v0.z, v1.z, v0.w, v1.w};
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const int column = i * 8 + lane_ / 4;
      uint4 p = {0, 0, 0, 0};
      if (column < columns_) {
        p = *reinterpret_cast<const uint4*>(&shared_.shares[column][at + lane_ % 4 * 8]);
      }
      const uint32_t b0[2] = {p.x, p.y}, b1[2] = {p.z, p.w};
      float all[4] = {sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
      simt::mma_f16(all, a0, b0);
      simt::mma_f16(all, a1, b1);
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) {
        if (row < 0 || row_of(i * 8 + lane_ % 4 * 2 + j % 2) == row) sums[i][j] = all[j];
      }
    }
  }

  // Calls for each column and dimension that the lane has a sum of.
  template <typename F>
  SIMT_DEV void for_each(int d, const float (&sums)[kTiles][4], const F& fn) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int column = i * 8 + lane_ % 4 * 2 + j % 2;
        if (column < columns_) fn(column, d + lane_ / 4 + j / 2 * 8, sums[i][j]);
      }
    }
  }

  SIMT_DEV void write(int d, const float (&sums)[kTiles][4]) const {
    for_each(d, sums, [&](int column, int dim, float sum) {
      float largest = shared_.largest[column];
      float factor = 1.0f, total = shared_.sums[column];
      if (a_.sinks != nullptr) {
        const float sink = a_.sinks[head_of(column)];
        const float both = sink > largest ? sink : largest;
        factor = simt::exp(largest - both);
        total = simt::fma(factor, total, simt::exp(sink - both));
      }
      put(column, dim, simt::divide(factor * sum, total));
    });
  }

  SIMT_DEV void put(int column, int dim, float value) const {
    a_.out[static_cast<int64_t>(tile_.first + row_of(column)) * a_.out_stride +
           head_of(column) * head_dim() + dim] = simt::to_bf16(value);
  }

  SIMT_DEV void keep(int d, const float (&sums)[kTiles][4]) const {
    for_each(d, sums,
             [&](int column, int dim, float sum) { partial_of_column(column)[dim] = sum; });
  }

  SIMT_DEV void merge() const {
    const int stride = head_dim() + 2, chunks = chunk_count(a_, tile_);
    for (int i = thread_; i < columns_ * head_dim(); i += kAttentionThreads) {
      const int column = i / head_dim(), dim = i % head_dim();
      const float* part = partial_at(a_, tile_.first + row_of(column), head_of(column), 0);
      float largest = a_.sinks != nullptr ? a_.sinks[head_of(column)] : -infinity();
      for (int c = 0; c < chunks; ++c) {
        const float m = part[static_cast<int64_t>(c) * stride + head_dim()];
        largest = m > largest ? m : largest;
      }
      float total = a_.sinks != nullptr ? simt::exp(a_.sinks[head_of(column)] - largest) : 0.0f;
      float sum = 0.0f;
      for (int c = 0; c < chunks; ++c) {
        const float* of_chunk = part + static_cast<int64_t>(c) * stride;
        const float m = of_chunk[head_dim()];
        if (m == -infinity() && of_chunk[head_dim() + 1] == 0.0f) continue;  // sees nothing
        const float factor = simt::exp(m - largest);
        total = simt::fma(factor, of_chunk[head_dim() + 1], total);
        sum = simt::fma(factor, of_chunk[dim], sum);
      }
      put(column, dim, simt::divide(sum, total));
    }
  }

  const Attend& a_;
  Shared& shared_;
  PassTile tile_;
  int thread_, lane_, warp_, kv_head_, in_tile_, chunk_, per_row_, columns_;
  int paged_end_ = 0, all_begin_ = 0, all_end_ = 0, least_seen_ = 0;
};

template <int kTiles, int kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_kernel(const __grid_constant__ Attend args) {
  auto& shared = simt::shared<AttentionShared<kTiles>>();
  simt::release_dependents();
  simt::wait_for_previous();
  const int tile_index = args.first_tile + static_cast<int>(blockIdx.z);
  if (tile_index >= args.pass.counts[kTileCount]) return;
  const PassTile tile = args.pass.tiles[tile_index];
  using Block = AttentionBlock<kTiles, kHeadDim>;
  if (static_cast<int>(blockIdx.x) >= Block::chunk_count(args, tile)) return;
  Block(args, shared, tile).run();
}

}  // namespace aerie::device
