// Matrix products of more rows than a tile of matmul_impl.h, by AMX (Intel SDM, volume 1, chapter
// "Programming with Intel AMX"): the bytes of a group of 32 k of 16 outputs times those of up to 16
// rows of activations. The sums are integers, exact in any order, and are scaled group by group as
// elsewhere: bits are those of every other instruction set.
#pragma once

#include "kernels/cpu/isa/panel_impl.h"

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

// How the eight tiles are used: 0 to 3 hold sums, [row][16 outputs]; 4 and 5 activations, [row][k];
// 6 and 7 weights, [k / 4][16 outputs][4].
constexpr int kSumTiles = 4;

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// For so many rows of activations and k of a product.
void configure_tiles(int rows, int k) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? k : 64);
    config.rows[tile] = static_cast<uint8_t>(tile < 6 ? rows : k / 4);
  }
  _tile_loadconfig(&config);
}

// Tile number `sum` becomes the product of activations and weights. (Numbers of tiles are part of
// an instruction.)
AERIE_INLINE void multiply(int sum, const int8_t* x, const int8_t* w) {
  const int8_t* const activations = x;
  switch (sum) {
    case 0:
      _tile_loadd(4, activations, kGroup);
      _tile_loadd(6, w, 64);
      _tile_zero(0);
      _tile_dpbssd(0, 4, 6);
      break;
    case 1:
      _tile_loadd(5, activations, kGroup);
      _tile_loadd(7, w, 64);
      _tile_zero(1);
      _tile_dpbssd(1, 5, 7);
      break;
    case 2:
      _tile_loadd(4, activations, kGroup);
      _tile_loadd(6, w, 64);
      _tile_zero(2);
      _tile_dpbssd(2, 4, 6);
      break;
    default:
      _tile_loadd(5, activations, kGroup);
      _tile_loadd(7, w, 64);
      _tile_zero(3);
      _tile_dpbssd(3, 5, 7);
  }
}

using Sums = int32_t[kMaxWideTile * 16];

// All of them, whatever they hold: one after the other costs less than apart.
AERIE_INLINE void store_sums(Sums* sums) {
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
}

// A product goes over a group, or over half of one where that has scales of its own.
template <DType kType>
constexpr int kGroupParts = has_halves(panel_format(kType).scale) ? 2 : 1;

// Groups whose unpacked form is kept: enough that the starts of loops do not count, and few enough
// for the first cache to hold them beside activations.
constexpr int kUnpackedGroups = 16;

// Some groups of a panel, from `begin` on.
template <DType kType>
struct Unpacked {
  static constexpr int kParts = kGroupParts<kType>;
  alignas(64) int8_t codes[kUnpackedGroups * kGroup * kPanelRows];
  Floats d[kUnpackedGroups * kParts];
  Floats m[has_min(panel_format(kType).scale) ? kUnpackedGroups * kParts : 1];
  int64_t begin, groups;
  int64_t ready;  // of them
};

// Words [kIndex, 8) of a group, signed.
template <DType kType, int kIndex>
AERIE_INLINE void unpack_words(const uint8_t* codes, int8_t* out) {
  Bytes word = load_word<kType, kIndex>(codes);
  if constexpr (code_zero(kType) != 0) {
    word.v = _mm512_sub_epi8(word.v, _mm512_set1_epi8(static_cast<char>(code_zero(kType))));
  }
  _mm512_store_si512(out + 64 * kIndex, word.v);
  if constexpr (kIndex + 1 < 8) unpack_words<kType, kIndex + 1>(codes, out);
}

// Unpacks the groups of the next products.
template <DType kType>
AERIE_INLINE void unpack_next(const MatmulShare& s, const uint8_t* panel, Unpacked<kType>& w) {
  constexpr PanelFormat kFormat = panel_format(kType);
  constexpr int kCodes = static_cast<int>(kFormat.group_codes());
  constexpr int kScales = panel_group_scales(kFormat.scale);
  constexpr int kParts = kGroupParts<kType>;
  const int64_t next = w.ready + kSumTiles / kParts;
  const int64_t end = w.groups < next ? w.groups : next;
  // They lie within those that share a head.
  const GroupScales head = load_head<kType>(s, panel, w.begin + w.ready);
  for (int64_t i = w.ready; i < end; ++i) {
    const int64_t g = w.begin + i;
    unpack_words<kType, 0>(panel + g * kCodes, w.codes + i * kGroup * kPanelRows);
    const GroupScales scales =
        load_scales<kFormat.scale>(panel + s.scales_offset + g * kScales, head);
    for (int part = 0; part < kParts; ++part) {
      w.d[i * kParts + part] = scales.d[part];
      if constexpr (has_min(kFormat.scale)) w.m[i * kParts + part] = scales.m[part];
    }
  }
  w.ready = end;
}

// Rows of activations that are multiplied together, as tiles.h has them.
struct WideTile {
  int64_t row, rows;
  const int8_t* codes;
  const float* scales;
  const float* scaled_sums;
};

// Adds the products that parts [begin, end) of the groups, at most kSumTiles, have in `sums`, to
// those of rows [row, row + kCount) of the tile.
template <DType kType, int kCount>
void scale_rows(const Sums* sums, const Unpacked<kType>& w, int64_t begin, int64_t end,
                const WideTile& x, int64_t row, int64_t groups, Floats* out) {
  constexpr int kParts = kGroupParts<kType>;
  constexpr int kFirstSums = kParts == 2 ? 0 : 2;
  Floats acc[kCount];
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) acc[r] = out[row + r];
  const int64_t first = w.begin + begin / kParts;
  const float* scales = x.scales + first * x.rows + row;
  const float* scaled_sums = x.scaled_sums + (kFirstSums * groups + first) * x.rows + row;
  const auto add_part = [&](int i) {
    const int32_t* dots = sums[i] + row * 16;
    const Floats d = w.d[begin + i];
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) {
      acc[r] = fma(to_floats(load(dots + r * 16)), mul(d, set1(scales[r])), acc[r]);
      if constexpr (has_min(panel_format(kType).scale)) {
        const float* sum = scaled_sums + (i % kParts) * groups * x.rows;
        acc[r] = fma(w.m[begin + i], set1(sum[r]), acc[r]);
      }
    }
    if (i % kParts == kParts - 1) {
      scales += x.rows;
      scaled_sums += x.rows;
    }
  };
  if (end - begin == kSumTiles) {
#pragma GCC unroll 4
    for (int i = 0; i < kSumTiles; ++i) add_part(i);
  } else {
    for (int i = 0; i < end - begin; ++i) add_part(i);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) out[row + r] = acc[r];
}

template <DType kType>
using ScaleRows = void (*)(const Sums*, const Unpacked<kType>&, int64_t, int64_t, const WideTile&,
                           int64_t, int64_t, Floats*);

// Of at most kMaxWideTile rows.
template <DType kType>
void scale_tile(const Sums* sums, const Unpacked<kType>& w, int64_t begin, int64_t end,
                const WideTile& x, int64_t groups, Floats* out) {
  constexpr ScaleRows<kType> kSome[] = {
      scale_rows<kType, 1>, scale_rows<kType, 2>, scale_rows<kType, 3>, scale_rows<kType, 4>,
      scale_rows<kType, 5>, scale_rows<kType, 6>, scale_rows<kType, 7>, scale_rows<kType, 8>};
  if (x.rows == kMaxWideTile) {
    scale_rows<kType, kMaxWideTile>(sums, w, begin, end, x, 0, groups, out);
    return;
  }
  for (int64_t row = 0; row < x.rows; row += 8) {
    const int64_t left = x.rows - row;
    kSome[(left < 8 ? left : 8) - 1](sums, w, begin, end, x, row, groups, out);
  }
}

// What to ask for meanwhile: so many bytes with each turn.
struct Fetched {
  const std::byte* at;
  int64_t step;
};

WideTile wide_tile(const MatmulShare& s, int64_t tile) {
  const int64_t row = tile_begin(s.rows, kMaxWideTile, tile);
  const int64_t groups = s.k / kGroup;
  return {row, tile_begin(s.rows, kMaxWideTile, tile + 1) - row, s.codes + row * s.k,
          s.scales + row * groups, s.scaled_sums + row * kGroupSums * groups};
}

// Tiles of activations that share what has been unpacked, and their sums.
constexpr int64_t kTilesTogether = 8;
struct Block {
  WideTile tiles[kTilesTogether];
  Floats sums[kTilesTogether][kMaxWideTile];
  int64_t count;
};

// Where the parts of what has been unpacked, some for each of a block's tiles in turn, have got to.
struct Cursor {
  int64_t tile, part;

  int64_t end(int64_t parts) const { return parts < part + kSumTiles ? parts : part + kSumTiles; }
  void advance(int64_t parts) {
    part += kSumTiles;
    if (part < parts) return;
    part = 0;
    ++tile;
  }
};

// Tile number `sum` and those after it become the products of as many parts as are left, four at
// most. `row_bytes` lie between groups of activations.
template <DType kType, int kSum>
AERIE_INLINE void multiply_parts(const int8_t* w, const int8_t* x, int64_t row_bytes,
                                 int64_t left) {
  constexpr int kParts = kGroupParts<kType>;
  constexpr int kPartDepth = kGroup / kParts;
  multiply(kSum, x + kSum / kParts * row_bytes + kSum % kParts * kPartDepth,
           w + kSum * kPartDepth * kPanelRows);
  if constexpr (kSum + 1 < kSumTiles) {
    if (left > kSum + 1) multiply_parts<kType, kSum + 1>(w, x, row_bytes, left);
  }
}

// Adds the products of the groups with tiles [from, to) of the block, which have as many rows as
// the tiles are configured for. Groups are unpacked a turn before they are first multiplied, so
// that memory is read all the time; what a turn multiplied is stored in the next and scaled in the
// one after: loads of what was just stored would wait.
template <DType kType>
void add_unpacked(const MatmulShare& s, const uint8_t* panel, Unpacked<kType>& w, int64_t from,
                  int64_t to, Fetched& fetched, Block& block) {
  alignas(64) Sums sums[2][kSumTiles];
  const int64_t groups = s.k / kGroup, parts = w.groups * kGroupParts<kType>;
  const int64_t turns = (to - from) * ((parts + kSumTiles - 1) / kSumTiles);
  Cursor multiplied = {from, 0}, scaled = {from, 0};
  for (int64_t turn = 0; turn < turns + 2; ++turn) {
    if (turn >= 1 && turn <= turns) store_sums(sums[turn % 2]);
    if (turn < turns) {
      const WideTile& x = block.tiles[multiplied.tile];
      const int64_t row_bytes = x.rows * kGroup;
      multiply_parts<kType, 0>(w.codes + multiplied.part * (kGroup / kGroupParts<kType>)*kPanelRows,
                               x.codes + (w.begin + multiplied.part / kGroupParts<kType>)*row_bytes,
                               row_bytes, multiplied.end(parts) - multiplied.part);
      multiplied.advance(parts);
      if (w.ready < w.groups) unpack_next(s, panel, w);
      for (int64_t line = 0; line < fetched.step; line += 64) {
        __builtin_prefetch(fetched.at + line, 0, 2);
      }
      fetched.at += fetched.step;
    }
    if (turn >= 2) {
      scale_tile(sums[(turn + 1) % 2], w, scaled.part, scaled.end(parts), block.tiles[scaled.tile],
                 groups, block.sums[scaled.tile]);
      scaled.advance(parts);
    }
  }
}

template <DType kType>
void add_panel(const MatmulShare& s, int64_t panel, int64_t& configured) {
  constexpr int kParts = kGroupParts<kType>;
  const int64_t tiles = tile_count(s.rows, kMaxWideTile), groups = s.k / kGroup;
  const int64_t turns = (groups * kParts + kSumTiles - 1) / kSumTiles;
  const std::byte* next = s.panels + (panel + 1 < s.panel_end ? panel + 1 : panel) * s.panel_bytes;
  Fetched fetched = {next, s.panel_bytes / (turns * tiles)};
  const auto* base = reinterpret_cast<const uint8_t*>(s.panels + panel * s.panel_bytes);
  Unpacked<kType> w;
  Block block;
  for (int64_t first = 0; first < tiles; first += block.count) {
    block.count = tiles - first < kTilesTogether ? tiles - first : kTilesTogether;
    for (int64_t i = 0; i < block.count; ++i) {
      block.tiles[i] = wide_tile(s, first + i);
      for (Floats& sum : block.sums[i]) sum = zero();
    }
    for (int64_t begin = 0; begin < groups; begin += kUnpackedGroups) {
      w.begin = begin;
      w.groups = groups - begin < kUnpackedGroups ? groups - begin : kUnpackedGroups;
      w.ready = 0;
      unpack_next(s, base, w);
      for (int64_t from = 0, to = 0; from < block.count; from = to) {
        const int64_t rows = block.tiles[from].rows;
        while (to < block.count && block.tiles[to].rows == rows) ++to;
        if (rows != configured) configure_tiles(static_cast<int>(rows), kGroup / kParts);
        configured = rows;
        add_unpacked(s, base, w, from, to, fetched, block);
      }
    }
    for (int64_t i = 0; i < block.count; ++i) {
      store_tile(s, block.tiles[i].row, block.tiles[i].rows, panel, block.sums[i]);
    }
  }
}

template <DType kType>
void matmul_of(const MatmulShare& s) {
  int64_t configured = 0;  // rows
  for (int64_t panel = s.panel_begin; panel < s.panel_end; ++panel) {
    add_panel<kType>(s, panel, configured);
  }
  // Else the system would keep the tiles at every change of threads.
  _tile_release();
}

void matmul(const MatmulShare& s) {
  with_type(s.dtype, [&](auto type) {
    if constexpr (panel_format(type.value).scale != PanelScale::kFloat) matmul_of<type.value>(s);
  });
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
