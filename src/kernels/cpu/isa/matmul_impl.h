// Matrix products over panels, written over the sixteen lanes of simd_*.h. A lane is an output row;
// each group of weights is unpacked once and used for all rows of a tile while it sits in
// registers.
#pragma once

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

// Panels lie one after the other, so what is needed later is known. Without prefetching it the
// arithmetic of several rows and the wait for memory add up instead of running side by side. One
// tile fetches what it needs itself so much later; several share in fetching the next panel.
constexpr int kPrefetchBytes = 8192;

// A tile's share of the prefetching.
struct Prefetch {
  const std::byte* at;
  int64_t bytes;  // to be spread over the tile's k
};

AERIE_INLINE void advance(Prefetch& prefetch, int64_t step) {
  for (int64_t line = 0; line < step; line += 64) __builtin_prefetch(prefetch.at + line);
  prefetch.at += step;
}

template <int kRows>
AERIE_INLINE void store_tile(const MatmulShare& s, int64_t row, int64_t panel,
                             const Floats (&acc)[kRows]) {
  const int64_t column = panel * kPanelRows;
  const int64_t left = s.n - column;
  const int lanes = left < kPanelRows ? static_cast<int>(left) : kPanelRows;
  const bool has_bias = s.bias != nullptr;
  const Floats bias = has_bias ? load_first(s.bias + column, lanes) : zero();
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* y = s.y + (row + r) * s.stride + column;
    const Floats product = has_bias ? add(acc[r], bias) : acc[r];
    store_first(y, s.accumulate ? add(load_first(y, lanes), product) : product, lanes);
  }
}

AERIE_INLINE Floats load_weights(const uint8_t* p, DType dtype) {
  if (dtype == DType::kF32) return load(reinterpret_cast<const float*>(p));
  if (dtype == DType::kF16) return load_half(reinterpret_cast<const uint16_t*>(p));
  return load_bfloat(reinterpret_cast<const uint16_t*>(p));
}

// Products of rows [kRow, kRow + kCount) of a tile of kRows.
template <DType kType, int kRows, int kRow, int kCount>
AERIE_INLINE void add_float_rows(const MatmulShare& s, const uint8_t* w, const float* x,
                                 Prefetch prefetch, Floats* out) {
  constexpr int kStep = kType == DType::kF32 ? 64 : 32;
  Floats acc[kCount];
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) acc[r] = zero();
  const int64_t step = 2 * prefetch.bytes / s.k;
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
    for (int ahead = 0; ahead < 2 * kRows; ahead += 16) {
      __builtin_prefetch(x + (k + 64) * kRows + ahead);
    }
    if (kRow == 0) advance(prefetch, step);
    add_one(k);
    add_one(k + 1);
  }
  if (k < s.k) add_one(k);
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) out[kRow + r] = acc[r];
  if constexpr (kRow + kCount < kRows) {
    constexpr int kLeft = kRows - kRow - kCount;
    add_float_rows < kType, kRows, kRow + kCount,
        kLeft<kCount ? kLeft : kCount>(s, w, x, prefetch, out);
  }
}

template <int kRows, DType kType>
void float_tile(const MatmulShare& s, int64_t row, int64_t panel, Prefetch prefetch) {
  const auto* w = reinterpret_cast<const uint8_t*>(s.panels + panel * s.panel_bytes);
  Floats sums[kRows];
  constexpr int kCount = kRows < kFloatRowsTogether ? kRows : kFloatRowsTogether;
  add_float_rows<kType, kRows, 0, kCount>(s, w, s.ordered + row * s.k, prefetch, sums);
  store_tile<kRows>(s, row, panel, sums);
}

// The unpacked weights of a group: words of four k for each of 16 rows, in order of k.
struct Words {
  Bytes word[kGroup / 4];
};

template <DType kType>
AERIE_INLINE Words load_words(const uint8_t* codes) {
  constexpr PanelFormat kFormat = panel_format(kType);
  constexpr int kBits = kFormat.bits;
  Words words;
  for (int i = 0; i < kBits; ++i) {
    const Bytes packed = load_bytes(codes + 64 * i);
    if constexpr (kBits == 2) {
      words.word[4 * i] = bit_field<2, 0>(packed);
      words.word[4 * i + 1] = bit_field<2, 2>(packed);
      words.word[4 * i + 2] = bit_field<2, 4>(packed);
      words.word[4 * i + 3] = bit_field<2, 6>(packed);
    } else if constexpr (kBits == 4) {
      words.word[2 * i] = bit_field<4, 0>(packed);
      words.word[2 * i + 1] = bit_field<4, 4>(packed);
    } else {
      words.word[i] = packed;
    }
  }
  if constexpr (kFormat.high_bits == 1) {
    add_high_bits<1>(words.word, load_bytes(codes + 64 * kBits));
  } else if constexpr (kFormat.high_bits == 2) {
    add_high_bits<2>(words.word, load_bytes(codes + 64 * kBits));
    add_high_bits<2>(words.word + 4, load_bytes(codes + 64 * kBits + 64));
  }
  if constexpr (has_code_table(kType)) {
    for (Bytes& word : words.word) word = look_up(code_table(kType), word);
  }
  return words;
}

constexpr bool has_min(PanelScale scale) {
  return scale == PanelScale::kMin || scale == PanelScale::kSuper ||
         scale == PanelScale::kSuperHalfMin;
}
constexpr bool has_halves(PanelScale scale) {
  return scale == PanelScale::kSuperHalf || scale == PanelScale::kSuperHalfMin;
}
constexpr bool has_heads(PanelScale scale) {
  return scale == PanelScale::kSuper || scale == PanelScale::kSuperZero || has_halves(scale);
}

// The factors of a group, or of its halves, lane by lane: w = d c + m.
struct GroupScales {
  Floats d[2], m[2];
};

// `head` holds the super-block's d and -dmin; unused where there is none.
template <PanelScale kScale>
AERIE_INLINE GroupScales load_scales(const uint8_t* scales, const GroupScales& head) {
  GroupScales g = head;
  const auto* halves = reinterpret_cast<const uint16_t*>(scales);
  if constexpr (kScale == PanelScale::kZero) {
    g.d[0] = load_half(halves);
  } else if constexpr (kScale == PanelScale::kZeroBfloat) {
    g.d[0] = load_bfloat(halves);
  } else if constexpr (kScale == PanelScale::kMin) {
    g.d[0] = load_half(halves);
    g.m[0] = load_half(halves + 16);
  } else if constexpr (kScale == PanelScale::kSuperZero) {
    g.d[0] = mul(head.d[0], to_floats(load_i8(scales)));
  } else if constexpr (kScale == PanelScale::kSuper) {
    g.d[0] = mul(head.d[0], to_floats(load_u8(scales)));
    g.m[0] = mul(head.m[0], to_floats(load_u8(scales + 16)));
  } else if constexpr (kScale == PanelScale::kSuperHalf) {
    for (int h = 0; h < 2; ++h) g.d[h] = mul(head.d[0], to_floats(load_i8(scales + 16 * h)));
  } else {
    for (int h = 0; h < 2; ++h) {
      const Ints both = load_u8(scales + 16 * h);
      g.d[h] = mul(head.d[0], to_floats(bit_field<4, 0>(both)));
      g.m[h] = mul(head.m[0], to_floats(bit_field<4, 4>(both)));
    }
  }
  return g;
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

// acc += the products of words [kFrom, kTo) with rows [kRow, kRow + kCount) of a tile. The rows
// take turns, so that no instruction waits for the one before it; few rows have two sums each for
// the same reason.
template <DType kType, int kRow, int kCount, int kFrom, int kTo>
AERIE_INLINE void add_words(Floats* acc, const Words& words, Floats d, Floats m,
                            const TilePart& x) {
  constexpr PanelFormat kFormat = panel_format(kType);
  constexpr int kSums = kCount <= 4 ? 2 : 1;
  Ints dot[kSums][kCount];
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    dot[0][r] = zero_factor(kType) != 0 ? set1_at(x.starts + kRow + r) : zero_ints();
    if constexpr (kSums == 2) dot[1][r] = zero_ints();
  }
#pragma GCC unroll 8
  for (int i = kFrom; i < kTo; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) {
      Ints& sum = dot[i % kSums][r];
      sum = dot4<kFormat.high_bytes>(sum, words.word[i], x.codes + (kRow + r) * kGroup + 4 * i);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    const Ints all = kSums == 2 ? add(dot[0][r], dot[kSums - 1][r]) : dot[0][r];
    acc[kRow + r] = fma(to_floats(all), mul(d, set1(x.scales[kRow + r])), acc[kRow + r]);
    if constexpr (has_min(kFormat.scale)) {
      acc[kRow + r] = fma(m, set1(x.scaled_sums[kRow + r]), acc[kRow + r]);
    }
  }
}

// The rows from kRow on, kRowsTogether at a time.
template <DType kType, int kRows, int kRow, int kFrom, int kTo>
AERIE_INLINE void add_rows(Floats* acc, const Words& words, Floats d, Floats m, const TilePart& x) {
  constexpr int kCount = kRows - kRow < kRowsTogether ? kRows - kRow : kRowsTogether;
  add_words<kType, kRow, kCount, kFrom, kTo>(acc, words, d, m, x);
  if constexpr (kRow + kCount < kRows) {
    add_rows<kType, kRows, kRow + kCount, kFrom, kTo>(acc, words, d, m, x);
  }
}

// The sums of some groups times zero_factor(), made for several groups at a time.
template <int kRows, int kZero>
struct Starts {
  static constexpr int kGroups = 64;
  alignas(64) int32_t of[kGroups * kRows];

  void fill(const int32_t* __restrict sums, int64_t groups) {
    const int count = static_cast<int>(groups < kGroups ? groups : kGroups) * kRows;
    for (int i = 0; i < count; ++i) of[i] = sums[i] * kZero;
  }
};

template <int kRows, DType kType>
void quantized_tile(const MatmulShare& s, int64_t row, int64_t panel, Prefetch prefetch) {
  constexpr PanelFormat kFormat = panel_format(kType);
  constexpr PanelScale kScale = kFormat.scale;
  constexpr int kCodes = static_cast<int>(kFormat.group_codes());
  constexpr int kScales = panel_group_scales(kScale);
  constexpr int kParts = has_halves(kScale) ? 2 : 1;
  constexpr int kFirstPart = has_halves(kScale) ? 0 : 2;
  using TileStarts = Starts<kRows, zero_factor(kType)>;
  const auto* base = reinterpret_cast<const uint8_t*>(s.panels + panel * s.panel_bytes);
  const int64_t groups = s.k / kGroup;
  const uint8_t* group_scales = base + s.scales_offset;
  const uint8_t* heads = base + s.heads_offset;
  const int64_t step = prefetch.bytes / groups;
  const int32_t* sums = s.sums + row * groups * kGroupSums;
  TileStarts starts[kParts];
  TilePart x[kParts];
  for (int p = 0; p < kParts; ++p) {
    x[p] = {s.codes + row * s.k, s.scales + row * groups, nullptr,
            s.scaled_sums + (row * kGroupSums + (kFirstPart + p) * kRows) * groups};
  }

  Floats acc[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) acc[r] = zero();
  GroupScales head = {{zero(), zero()}, {zero(), zero()}};
  for (int64_t g = 0; g < groups; ++g) {
    if (has_heads(kScale) && g % 8 == 0) {
      const auto* halves = reinterpret_cast<const uint16_t*>(heads + g / 8 * 64);
      head.d[0] = load_half(halves);
      if constexpr (has_min(kScale)) head.m[0] = sub(zero(), load_half(halves + 16));
    }
    if (zero_factor(kType) != 0 && g % TileStarts::kGroups == 0) {
      for (int p = 0; p < kParts; ++p) {
        starts[p].fill(sums + ((kFirstPart + p) * groups + g) * kRows, groups - g);
        x[p].starts = starts[p].of;
      }
    }
    const GroupScales w = load_scales<kScale>(group_scales + g * kScales, head);
    advance(prefetch, step);
    const Words words = load_words<kType>(base + g * kCodes);
    if constexpr (has_halves(kScale)) {
      add_rows<kType, kRows, 0, 0, 4>(acc, words, w.d[0], w.m[0], x[0]);
      add_rows<kType, kRows, 0, 4, 8>(acc, words, w.d[1], w.m[1], x[1]);
    } else {
      add_rows<kType, kRows, 0, 0, 8>(acc, words, w.d[0], w.m[0], x[0]);
    }
    for (TilePart& part : x) {
      part.codes += kRows * kGroup;
      part.scales += kRows;
      if (zero_factor(kType) != 0) part.starts += kRows;
      part.scaled_sums += kRows;
    }
  }
  store_tile<kRows>(s, row, panel, acc);
}

using Tile = void (*)(const MatmulShare&, int64_t row, int64_t panel, Prefetch prefetch);

struct Tiles {
  int most;                // rows of a tile
  Tile of[kMaxFloatTile];  // for 1 .. `most` rows
};

template <int kRows, DType kType>
constexpr Tile tile() {
  if constexpr (panel_format(kType).scale == PanelScale::kFloat) {
    return float_tile<kRows, kType>;
  } else {
    return quantized_tile<kRows, kType>;
  }
}

template <DType kType, int kRows = 1>
constexpr void fill(Tiles& tiles) {
  tiles.of[kRows - 1] = tile<kRows, kType>();
  if constexpr (kRows <
                (panel_format(kType).scale == PanelScale::kFloat ? kMaxFloatTile : kMaxTile)) {
    fill<kType, kRows + 1>(tiles);
  } else {
    tiles.most = kRows;
  }
}

template <DType kType>
constexpr Tiles tiles() {
  Tiles all = {};
  fill<kType>(all);
  return all;
}

inline Tiles tiles_for(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return tiles<DType::kF32>();
    case DType::kF16:
      return tiles<DType::kF16>();
    case DType::kBF16:
      return tiles<DType::kBF16>();
    case DType::kQ4_0:
      return tiles<DType::kQ4_0>();
    case DType::kQ4_1:
      return tiles<DType::kQ4_1>();
    case DType::kQ5_0:
      return tiles<DType::kQ5_0>();
    case DType::kQ5_1:
      return tiles<DType::kQ5_1>();
    case DType::kQ8_0:
      return tiles<DType::kQ8_0>();
    case DType::kQ2_K:
      return tiles<DType::kQ2_K>();
    case DType::kQ3_K:
      return tiles<DType::kQ3_K>();
    case DType::kQ4_K:
      return tiles<DType::kQ4_K>();
    case DType::kQ5_K:
      return tiles<DType::kQ5_K>();
    case DType::kQ6_K:
      return tiles<DType::kQ6_K>();
    case DType::kIQ4_NL:
      return tiles<DType::kIQ4_NL>();
    case DType::kIQ4_XS:
      return tiles<DType::kIQ4_XS>();
    case DType::kMXFP4:
      return tiles<DType::kMXFP4>();
  }
  return tiles<DType::kF32>();
}

void matmul(const MatmulShare& s) {
  const Tiles by_rows = tiles_for(s.dtype);
  const int64_t tiles = tile_count(s.rows, by_rows.most), part = s.panel_bytes / tiles;
  for (int64_t panel = s.panel_begin; panel < s.panel_end; ++panel) {
    const std::byte* here = s.panels + panel * s.panel_bytes;
    const std::byte* next = panel + 1 < s.panel_end ? here + s.panel_bytes : here;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t begin = tile_begin(s.rows, by_rows.most, tile);
      const int64_t rows = tile_begin(s.rows, by_rows.most, tile + 1) - begin;
      const Prefetch prefetch = tiles == 1 ? Prefetch{here + kPrefetchBytes, s.panel_bytes}
                                           : Prefetch{next + tile * part, part};
      by_rows.of[rows - 1](s, begin, panel, prefetch);
    }
  }
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
