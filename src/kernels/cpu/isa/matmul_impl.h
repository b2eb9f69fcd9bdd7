// Matrix products over panels, written over the sixteen lanes of simd_*.h. A lane is an output row;
// each group of weights is unpacked once and used for all rows of a tile while it sits in
// registers.
#pragma once

#include <utility>  // its types alone: what would be code is shared with other files

#include "kernels/cpu/isa/panel_impl.h"

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

// Numbers from 0 on, to expand.
template <int... kNumbers>
using Numbers = std::integer_sequence<int, kNumbers...>;
template <int kCount>
using NumbersBelow = std::make_integer_sequence<int, kCount>;

// Panels lie one after the other, so what is needed later is known. Without prefetching it the
// arithmetic of several rows and the wait for memory add up instead of running side by side. This
// is how many bytes ahead panels are asked for that are read one after the other, if they are
// quantised and if they are floats (docs/decisions.md has figures).
constexpr int kBytesAhead = 24 << 10;
constexpr int kFloatBytesAhead = 8 << 10;

AERIE_INLINE Floats load_weights(const uint8_t* p, DType dtype) {
  if (dtype == DType::kF32) return load(reinterpret_cast<const float*>(p));
  if (dtype == DType::kF16) return load_half(reinterpret_cast<const uint16_t*>(p));
  return load_bfloat(reinterpret_cast<const uint16_t*>(p));
}

// Products of rows [kRow, kRow + kCount) of a tile of kRows.
template <DType kType, int kRows, int kRow, int kCount>
AERIE_INLINE void add_float_rows(const MatmulShare& s, const uint8_t* w, const float* x,
                                 const std::byte* fetched, int64_t fetched_bytes, Floats* out) {
  constexpr int kStep = kType == DType::kF32 ? 64 : 32;
  Floats acc[kCount];
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) acc[r] = zero();
  const int64_t step = 2 * fetched_bytes / s.k;
  const auto add_one = [&](int64_t k) {
    const Floats weights = load_weights(w + k * kStep, kType);
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) {
      acc[r] = fma(set1(x[k * kRows + kRow + r]), weights, acc[r]);
    }
  };
  int64_t k = 0;
  for (; k + 2 <= s.k; k += 2) {
    // A tile of activations may exceed the first cache.
    for (int i = 0; i < 2 * kRows; i += 16) {
      __builtin_prefetch(x + (k + 64) * kRows + i);
    }
    if (kRow == 0) {
      prefetch(fetched, step);
      fetched += step;
    }
    add_one(k);
    add_one(k + 1);
  }
  if (k < s.k) add_one(k);
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) out[kRow + r] = acc[r];
  if constexpr (kRow + kCount < kRows) {
    constexpr int kLeft = kRows - kRow - kCount;
    add_float_rows < kType, kRows, kRow + kCount,
        kLeft<kCount ? kLeft : kCount>(s, w, x, fetched, fetched_bytes, out);
  }
}

// The products of a tile with a panel; `fetched`: what to ask for meanwhile.
template <int kRows, DType kType>
void float_tile(const MatmulShare& s, int64_t row, int64_t panel, const std::byte* fetched,
                int64_t fetched_bytes) {
  const auto* w = reinterpret_cast<const uint8_t*>(s.panels + panel * s.panel_bytes);
  Floats sums[kRows];
  constexpr int kCount = kRows < kFloatRowsTogether ? kRows : kFloatRowsTogether;
  add_float_rows<kType, kRows, 0, kCount>(s, w, s.ordered + row * s.k, fetched, fetched_bytes,
                                          sums);
  store_tile(s, row, kRows, panel, sums);
}

using FloatTile = void (*)(const MatmulShare&, int64_t row, int64_t panel, const std::byte*,
                           int64_t);

template <DType kType, int... kRows>
void float_matmul(const MatmulShare& s, Numbers<kRows...>) {
  constexpr FloatTile kTiles[] = {float_tile<kRows + 1, kType>...};
  const int64_t tiles = tile_count(s.rows, kMaxFloatTile);
  const int64_t part = s.panel_bytes / tiles;
  for (int64_t panel = s.panel_begin; panel < s.panel_end; ++panel) {
    const std::byte* here = s.panels + panel * s.panel_bytes;
    const std::byte* next = panel + 1 < s.panel_end ? here + s.panel_bytes : here;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t begin = tile_begin(s.rows, kMaxFloatTile, tile);
      const int64_t rows = tile_begin(s.rows, kMaxFloatTile, tile + 1) - begin;
      // Several share in fetching the next panel.
      const std::byte* fetched = tiles == 1 ? here + kFloatBytesAhead : next + tile * part;
      kTiles[rows - 1](s, begin, panel, fetched, part);
    }
  }
}

// What the sums of activations count in a dot product: the zero point, as dot4 takes the codes.
constexpr int zero_factor(DType type) {
  return code_zero(type) - (panel_format(type).high_bytes ? kWideOffset : 0);
}

// What a tile of activations brings to a group or half of one, row by row.
struct TilePart {
  const int8_t* codes;  // rows are kGroup apart
  const float* scales;
  const int32_t* starts;  // what the zero point adds to the dot products
  const float* scaled_sums;
};

// Adds the products of word kIndex, the kAdded-th of [.., kTo), with the rows of a tile from kRow
// on.
template <DType kType, int kRow, int kCount, int kAdded, int kIndex, int kTo, typename Dot>
AERIE_INLINE void add_words_from(Dot* dot, const uint8_t* codes, const int8_t* x) {
  const Bytes word = load_word<kType, kIndex>(codes);
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    add_word<kAdded>(dot[r], word, x + (kRow + r) * kGroup + 4 * kIndex);
  }
  if constexpr (kIndex + 1 < kTo) {
    add_words_from<kType, kRow, kCount, kAdded + 1, kIndex + 1, kTo>(dot, codes, x);
  }
}

// acc += the products of words [kFrom, kTo) with rows [kRow, kRow + kCount) of a tile. The rows
// take turns, so that no instruction waits for the one before it.
template <DType kType, int kRow, int kCount, int kFrom, int kTo>
AERIE_INLINE void add_words(Floats* acc, const uint8_t* codes, Floats d, Floats m,
                            const TilePart& x) {
  Dots<largest_byte(kType), (kCount <= kFewRows)> dot[kCount];
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    begin(dot[r], zero_factor(kType) != 0 ? set1_at(x.starts + kRow + r) : zero_ints());
  }
  add_words_from<kType, kRow, kCount, 0, kFrom, kTo>(dot, codes, x.codes);
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    const Ints all = total<kTo - kFrom>(dot[r]);
    acc[kRow + r] = fma(to_floats(all), mul(d, set1(x.scales[kRow + r])), acc[kRow + r]);
    if constexpr (has_min(panel_format(kType).scale)) {
      acc[kRow + r] = fma(m, set1(x.scaled_sums[kRow + r]), acc[kRow + r]);
    }
  }
}

// The rows from kRow on, kRowsTogether at a time.
template <DType kType, int kRows, int kRow, int kFrom, int kTo>
AERIE_INLINE void add_rows(Floats* acc, const uint8_t* codes, Floats d, Floats m,
                           const TilePart& x) {
  constexpr int kCount = kRows - kRow < kRowsTogether ? kRows - kRow : kRowsTogether;
  add_words<kType, kRow, kCount, kFrom, kTo>(acc, codes, d, m, x);
  if constexpr (kRow + kCount < kRows) {
    add_rows<kType, kRows, kRow + kCount, kFrom, kTo>(acc, codes, d, m, x);
  }
}

// How many groups are worked through at a time: no more than these.
template <DType kType>
constexpr int64_t kSpanGroups = has_heads(panel_format(kType).scale) ? kHeadGroups : 64;

// The sums of as many groups times zero_factor().
template <int kRows, DType kType>
struct Starts {
  alignas(64) int32_t of[kSpanGroups<kType> * kRows];

  void fill(const int32_t* __restrict sums, int64_t groups) {
    for (int64_t i = 0; i < groups * kRows; ++i) of[i] = sums[i] * zero_factor(kType);
  }
};

// What a tile does at a time.
struct Turn {
  int64_t row;               // the tile's first
  int64_t panel;             // the first
  int64_t apart;             // bytes from one panel to the next, of several
  int64_t begin, end;        // groups of it
  const std::byte* fetched;  // what to ask for meanwhile, so much for each group and panel
  int64_t step;
};

// acc += the products of groups [begin, end), within one span, of panels with a tile, a group of
// each in turn.
template <int kPanels, int kRows, DType kType>
AERIE_INLINE void add_groups(const MatmulShare& s, const Turn& turn, int64_t begin, int64_t end,
                             Floats (*acc)[kRows]) {
  constexpr PanelFormat kFormat = panel_format(kType);
  constexpr PanelScale kScale = kFormat.scale;
  constexpr int kCodes = static_cast<int>(kFormat.group_codes());
  constexpr int kScales = panel_group_scales(kScale);
  constexpr int kParts = has_halves(kScale) ? 2 : 1;
  constexpr int kFirstPart = has_halves(kScale) ? 0 : 2;
  const int64_t groups = s.k / kGroup;
  const auto* base = reinterpret_cast<const uint8_t*>(s.panels + turn.panel * s.panel_bytes);
  GroupScales heads[kPanels];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    heads[p] = load_head<kType>(s, base + p * turn.apart, begin);
  }
  Starts<kRows, kType> starts[kParts];
  TilePart x[kParts];
  for (int p = 0; p < kParts; ++p) {
    const int64_t sums =
        turn.row * kGroupSums * groups + ((kFirstPart + p) * groups + begin) * kRows;
    if (zero_factor(kType) != 0) starts[p].fill(s.sums + sums, end - begin);
    x[p] = {s.codes + turn.row * s.k + begin * kRows * kGroup,
            s.scales + turn.row * groups + begin * kRows, starts[p].of, s.scaled_sums + sums};
  }
  const uint8_t* codes = base + begin * kCodes;
  const uint8_t* scales = base + s.scales_offset + begin * kScales;
  const std::byte* fetched = turn.fetched + (begin - turn.begin) * turn.step;
  for (int64_t g = begin; g < end; ++g) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const GroupScales w = load_scales<kScale>(scales + p * turn.apart, heads[p]);
      const uint8_t* own = codes + p * turn.apart;
      if (kPanels > 1 || turn.step >= kCodes + kScales) {
        prefetch<kCodes + kScales>(fetched + p * turn.apart);
      } else {
        prefetch(fetched, turn.step);
      }
      if constexpr (has_halves(kScale)) {
        add_rows<kType, kRows, 0, 0, 4>(acc[p], own, w.d[0], w.m[0], x[0]);
        add_rows<kType, kRows, 0, 4, 8>(acc[p], own, w.d[1], w.m[1], x[1]);
      } else {
        add_rows<kType, kRows, 0, 0, 8>(acc[p], own, w.d[0], w.m[0], x[0]);
      }
    }
    codes += kCodes;
    scales += kScales;
    fetched += turn.step;
    for (TilePart& part : x) {
      part.codes += kRows * kGroup;
      part.scales += kRows;
      if (zero_factor(kType) != 0) part.starts += kRows;
      part.scaled_sums += kRows;
    }
  }
}

using Sums = Floats[kMaxTile];  // of a tile with a panel

template <int kPanels, int kRows, DType kType>
void add_turn(const MatmulShare& s, const Turn& turn, Sums* sums) {
  Floats acc[kPanels][kRows];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) acc[p][r] = sums[p][r];
  }
  for (int64_t begin = turn.begin; begin < turn.end;) {
    const int64_t span_end = (begin / kSpanGroups<kType> + 1) * kSpanGroups<kType>;
    const int64_t end = turn.end < span_end ? turn.end : span_end;
    add_groups<kPanels, kRows, kType>(s, turn, begin, end, acc);
    begin = end;
  }
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[p][r] = acc[p][r];
  }
}

using AddTurn = void (*)(const MatmulShare&, const Turn&, Sums* sums);

// Where memory answers several streams faster than one a tile works through panels side by side.
// Few rows take a group of each in turn, their sums all in registers; more a few groups of each:
// with fewer, sums go to memory and back more often; with more, memory answers more slowly.
constexpr int64_t kTurnGroups = 4;
// Beside panels of a page or two, what lies a page ahead is asked for in time; beside long ones
// that is too far (docs/decisions.md has figures).
constexpr int64_t bytes_ahead(int64_t panel_bytes) {
  return panel_bytes <= 8192 ? 4096 : 512;
}

// How tiles of so many rows go through panels: one at a time, and several.
struct Adds {
  AddTurn one, together;  // together: null where the sums would leave the registers
  int64_t panels;         // that are side by side
};

// Of one tile with add.panels panels that lie `apart`.
void add_side_by_side(const MatmulShare& s, const Adds& add, int64_t panel, int64_t apart) {
  Sums sums[kPanelsTogether];
  for (int64_t p = 0; p < add.panels; ++p) {
    for (Floats& sum : sums[p]) sum = zero();
  }
  const int64_t groups = s.k / kGroup, step = s.panel_bytes / groups;
  const int64_t ahead = bytes_ahead(s.panel_bytes);
  const auto turn_at = [&](int64_t at, int64_t begin, int64_t end) {
    const std::byte* here = s.panels + at * s.panel_bytes;
    return Turn{0, at, apart * s.panel_bytes, begin, end, here + begin * step + ahead, step};
  };
  if (add.together != nullptr) {
    add.together(s, turn_at(panel, 0, groups), sums);
  } else {
    for (int64_t g = 0; g < groups; g += kTurnGroups) {
      const int64_t end = groups < g + kTurnGroups ? groups : g + kTurnGroups;
      for (int64_t p = 0; p < add.panels; ++p) {
        add.one(s, turn_at(panel + p * apart, g, end), sums + p);
      }
    }
  }
  for (int64_t p = 0; p < add.panels; ++p) {
    store_tile(s, 0, s.rows, panel + p * apart, sums[p]);
  }
}

// Of one tile with one panel.
void add_alone(const MatmulShare& s, AddTurn add, int64_t panel) {
  Sums sums;
  for (Floats& sum : sums) sum = zero();
  const int64_t groups = s.k / kGroup;
  const std::byte* here = s.panels + panel * s.panel_bytes;
  add(s, {0, panel, 0, 0, groups, here + kBytesAhead, s.panel_bytes / groups}, &sums);
  store_tile(s, 0, s.rows, panel, sums);
}

// Of several tiles, which share in fetching the next panel.
void add_tiles(const MatmulShare& s, const Adds* add, int64_t panel) {
  const int64_t tiles = tile_count(s.rows, kMaxTile), part = s.panel_bytes / tiles;
  const int64_t groups = s.k / kGroup;
  const std::byte* next = s.panels + (panel + 1 < s.panel_end ? panel + 1 : panel) * s.panel_bytes;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t row = tile_begin(s.rows, kMaxTile, tile);
    const int64_t rows = tile_begin(s.rows, kMaxTile, tile + 1) - row;
    Sums sums;
    for (Floats& sum : sums) sum = zero();
    add[rows - 1].one(s, {row, panel, 0, 0, groups, next + tile * part, part / groups}, &sums);
    store_tile(s, row, rows, panel, sums);
  }
}

// Panels whose sums with so many rows stay in registers.
constexpr int panels_beside(int rows) {
  if (rows <= kRowsBeside) return kPanelsTogether;
  return rows <= kRowsBeside + (kRowsBeside + 1) / 2 ? kPanelsTogether / 2 : 1;
}

template <int kRows, DType kType>
constexpr Adds adds_of() {
  constexpr int kBeside = panels_beside(kRows);
  if constexpr (kBeside == 1) return {add_turn<1, kRows, kType>, nullptr, kPanelsTogether};
  return {add_turn<1, kRows, kType>, add_turn<kBeside, kRows, kType>, kBeside};
}

template <DType kType, int... kRows>
void quantized_matmul(const MatmulShare& s, Numbers<kRows...>) {
  constexpr Adds kAdd[] = {adds_of<kRows + 1, kType>()...};
  if (s.rows > kMaxTile) {
    for (int64_t panel = s.panel_begin; panel < s.panel_end; ++panel) add_tiles(s, kAdd, panel);
    return;
  }
  const Adds& add = kAdd[s.rows - 1];
  const bool turns = s.order == PanelOrder::kTurns;
  const int64_t apart = turns ? (s.panel_end - s.panel_begin) / add.panels : 0;
  for (int64_t i = 0; i < apart; ++i) add_side_by_side(s, add, s.panel_begin + i, apart);
  // What is left over has no panel beside.
  for (int64_t left = s.panel_begin + apart * add.panels; left < s.panel_end; ++left) {
    add_alone(s, add.one, left);
  }
}

template <DType kType>
void matmul_of(const MatmulShare& s) {
  if constexpr (panel_format(kType).scale == PanelScale::kFloat) {
    float_matmul<kType>(s, NumbersBelow<kMaxFloatTile>());
  } else {
    quantized_matmul<kType>(s, NumbersBelow<kMaxTile>());
  }
}

void matmul(const MatmulShare& s) {
  with_type(s.dtype, [&](auto type) { matmul_of<type.value>(s); });
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
