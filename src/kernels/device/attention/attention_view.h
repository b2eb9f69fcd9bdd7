// What a block of attention is of, and where what it reads lies: its rows, the positions that they
// see, pages and slots of the chunk.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/cache_place.h"
#include "kernels/device/device.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

inline constexpr int kAttentionThreads = 256;
inline constexpr int kAttentionWarps = kAttentionThreads / 32;
inline constexpr int kMostColumns = 32;
inline constexpr int kMostTileRows = 16;

struct AttendLaunch {
  Attend a;
  int rows;    // of a block: a tile is cut where there are few blocks
  int pieces;  // of a tile
};

template <int kTiles, int kHeadDim>
struct AttentionShared {
  static constexpr int kColumns = kTiles * 8;
  // Padded so that the lanes of a load touch all banks.
  static constexpr int kQueryStride = (kHeadDim > kMostHeadDim ? kHeadDim : kMostHeadDim) + 32;
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

// Any GPU gives a block that.
static_assert(sizeof(AttentionShared<kMostColumns / 8, kWideHeadDim>) <= 99 * 1024);

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

// Positions that a block looks at are counted from the beginning of its chunk (`in_chunk`), or from
// 0 (`position`). Of kHeadDim 0 the dimensions are not known to the compiler.
template <int kTiles, int kHeadDim>
class AttentionView {
 public:
  using Shared = AttentionShared<kTiles, kHeadDim>;
  static constexpr bool kKnown = kHeadDim > 0;
  static constexpr int kWarpTiles = kChunk / 16 / kAttentionWarps;  // of 16 positions
  using Scores = float[kWarpTiles][kTiles][4];

  const Attend& args;
  Shared& shared;
  const PassTile tile;
  const int slice_first, thread, lane, warp, kv_head;
  const int in_tile;  // number of the chunk among those of the tile
  const int first_chunk, chunks, begin;
  const int per_row, columns;

  SIMT_DEV AttentionView(const Attend& a, Shared& memory, const AttentionPiece& piece)
      : args(a),
        shared(memory),
        tile(piece.tile),
        slice_first(piece.slice_first),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % 32),
        warp(thread / 32),
        kv_head(static_cast<int>(blockIdx.y)),
        in_tile(static_cast<int>(blockIdx.x)),
        first_chunk(piece.first_chunk(a)),
        chunks(piece.chunk_count(a)),
        begin((first_chunk + in_tile) * kChunk),
        per_row(a.heads / a.shape.kv_heads),
        columns(per_row * tile.count) {}

  // What does not depend on the launch before. All threads of the block.
  SIMT_DEV void prepare() {
    load_rows();
    __syncthreads();
    find_bounds();
    if (!is_linear()) load_tails();
    fetch_pages();
  }

  SIMT_DEV int head_dim() const { return kKnown ? kHeadDim : args.shape.head_dim; }
  SIMT_DEV bool is_linear() const { return shared.rows[0].linear != 0; }
  SIMT_DEV int row_of(int column) const { return shared.row_of[column]; }
  SIMT_DEV int head_of(int column) const { return (kv_head - row_of(column)) * per_row + column; }
  // The lane's columns of a tile of products are this one and the next.
  SIMT_DEV int column_of(int columns_tile) const { return columns_tile * 8 + lane % 4 * 2; }
  // Whether the row has columns in the tile of products; all have some of row -1.
  SIMT_DEV bool has_row(int columns_tile, int row) const {
    return row < 0 ||
           (row * per_row < columns_tile * 8 + 8 && (row + 1) * per_row > columns_tile * 8);
  }

  // The warp's tiles of positions.
  SIMT_DEV int tile_of(int w) const { return (warp + w * kAttentionWarps) * 16; }

  SIMT_DEV bool sees(const PassRow& row, int position) const {
    return position <= row.position && (args.window == 0 || position > row.position - args.window);
  }
  SIMT_DEV bool all_see(int from, int to) const { return from >= all_begin_ && to <= all_end_; }
  SIMT_DEV bool none_sees(int from, int to) const { return from > tile.most || to <= least_seen_; }
  // Whether all that any row sees there is where the pages put it.
  SIMT_DEV bool is_paged(int to) const { return to <= paged_end_ || is_linear(); }
  // Whether that is so, and some row sees some of it.
  SIMT_DEV bool takes_pages(int from, int to) const { return !none_sees(from, to) && is_paged(to); }

  // Keys and values of the kv head in the page of a position that the pages hold.
  SIMT_DEV const uint16_t* page_at(int in_chunk) const {
    return page_of(shared.pages[in_chunk / kPage]);
  }
  SIMT_DEV const uint16_t* paged_key(int in_chunk) const {
    return page_at(in_chunk) + key_element(args.shape, in_chunk, 0);
  }
  // Element d of values, positions side by side.
  SIMT_DEV const uint16_t* paged_value(int in_chunk, int d) const {
    return page_at(in_chunk) + (head_dim() + d) * kPage + in_chunk % kPage;
  }
  // Of any slot.
  SIMT_DEV const uint16_t* key_at(int slot) const {
    return page_of(slot / kPage) + key_element(args.shape, slot, 0);
  }
  SIMT_DEV const uint16_t* value_at(int slot, int d) const {
    return page_of(slot / kPage) + value_element(args.shape, slot, d);
  }
  SIMT_DEV int slot_of(int row, int in_chunk) const {
    return begin + in_chunk < paged_end_ ? shared.pages[in_chunk / kPage] * kPage + in_chunk % kPage
                                         : shared.tails[row][in_chunk];
  }

 private:
  SIMT_DEV const uint16_t* page_of(int page) const {
    const int64_t head = page * args.shape.kv_heads + kv_head;
    return args.plane + head * (2 * kPage) * head_dim();
  }

  SIMT_DEV void load_rows() {
    if (thread < Shared::kColumns) shared.row_of[thread] = thread / per_row;
    if (thread < tile.count) shared.rows[thread] = args.pass.rows[tile.first + thread];
    if (thread >= 32 && thread < 32 + Shared::kPages) {
      // Of what lies behind the last position there need be none.
      const int page = begin / kPage + thread - 32;
      const bool is_there = page * kPage <= tile.most;
      const PassRow& row = args.pass.rows[tile.first];
      const bool in_pages = row.linear != 0 || page * kPage < row.committed;
      shared.pages[thread - 32] = is_there && in_pages ? args.pass.indices[row.pages + page] : 0;
    }
  }

  SIMT_DEV void find_bounds() {
    const PassRow& first = shared.rows[0];
    paged_end_ = first.linear != 0 ? tile.most + 1 : first.committed;
    all_end_ = tile.least + 1;
    all_begin_ = args.window > 0 ? tile.most - args.window + 1 : 0;
    least_seen_ = args.window > 0 ? tile.least - args.window + 1 : 0;
  }

  SIMT_DEV void load_tails() {
    static_assert(kAttentionThreads == kChunk);
    const int position = begin + thread;
    if (position < paged_end_) return;
    for (int r = 0; r < tile.count; ++r) {
      const PassRow& row = shared.rows[r];
      if (position > row.position) continue;
      shared.tails[r][thread] = args.pass.indices[row.tail + position - row.committed];
    }
  }

  SIMT_DEV void fetch_pages() const {
    constexpr int kLine = 64;  // elements
    const int lines = head_dim() * kPage / kLine;
    for (int page = 0; page < kChunk; page += kPage) {
      const int from = begin + page;
      if (none_sees(from, from + kPage) || from >= paged_end_) continue;
      const uint16_t* at = page_at(page);
      for (int i = thread; i < 2 * lines; i += kAttentionThreads) {
        if (i >= lines || from + i * kLine / head_dim() <= tile.most) {
          simt::fetch_line(at + i * kLine);
        }
      }
    }
  }

  // Positions before paged_end_ are where the pages put them; those from all_begin_ to all_end_ are
  // seen by every row, those before least_seen_ by none.
  int paged_end_ = 0, all_begin_ = 0, all_end_ = 0, least_seen_ = 0;
};

}  // namespace aerie::device
