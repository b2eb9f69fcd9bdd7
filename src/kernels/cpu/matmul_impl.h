// Matrix products over panels, written over the sixteen lanes of simd_*.h. A lane is an output row;
// each group of weights is unpacked once and used for all rows of a tile while it sits in
// registers.
#pragma once

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

constexpr int kMaxTile = 8;
// Panels lie one after the other, so what is needed this much later is known. Without it the
// arithmetic of several rows and the wait for memory add up instead of running side by side.
constexpr int kPrefetchBytes = 8192;

template <int kRows>
AERIE_INLINE void store_tile(const MatmulShare& s, int64_t row, int64_t panel,
                             const Floats (&acc)[kRows]) {
  const int64_t column = panel * kPanelRows;
  const int64_t left = s.n - column;
  const int lanes = left < kPanelRows ? static_cast<int>(left) : kPanelRows;
  const bool has_bias = s.bias != nullptr;
  const Floats bias = has_bias ? load_first(s.bias + column, lanes) : zero();
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

template <int kRows, DType kType>
void float_tile(const MatmulShare& s, int64_t row, int64_t panel) {
  constexpr int kStep = kType == DType::kF32 ? 64 : 32;
  const auto* w = reinterpret_cast<const uint8_t*>(s.panels + panel * s.panel_bytes);
  const float* x = s.floats + row * s.k;
  Floats acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = zero();
  for (int64_t k = 0; k < s.k; ++k) {
    __builtin_prefetch(w + k * kStep + kPrefetchBytes);
    const Floats weights = load_weights(w + k * kStep, kType);
    for (int r = 0; r < kRows; ++r) acc[r] = fma(set1(x[r * s.k + k]), weights, acc[r]);
  }
  store_tile<kRows>(s, row, panel, acc);
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

// What a row of activations brings to a group.
struct RowGroup {
  const int8_t* codes;
  const float* scale;
  const int32_t* sums;
  const float* scaled_sums;
};

// acc + the product of words [from, to), scaled; `part` is the index of their sums.
template <DType kType, int kFrom, int kTo>
AERIE_INLINE Floats add_words(Floats acc, const Words& words, Floats d, Floats m,
                              const RowGroup& row, int part) {
  constexpr PanelFormat kFormat = panel_format(kType);
  // The sums are negative: the dot product starts at what the zero point adds to it.
  constexpr int kZero = code_zero(kType) - (kFormat.high_bytes ? kWideOffset : 0);
  Ints dot = zero_ints();
  if constexpr (kZero != 0) dot = times_power<kZero>(set1_at(row.sums + part));
#pragma GCC unroll 8
  for (int i = kFrom; i < kTo; ++i) {
    dot = dot4<kFormat.high_bytes>(dot, words.word[i], row.codes + 4 * i);
  }
  acc = fma(to_floats(dot), mul(d, set1(*row.scale)), acc);
  if constexpr (has_min(kFormat.scale)) acc = fma(m, set1(row.scaled_sums[part]), acc);
  return acc;
}

template <int kRows, DType kType>
void quantized_tile(const MatmulShare& s, int64_t row, int64_t panel) {
  constexpr PanelFormat kFormat = panel_format(kType);
  constexpr PanelScale kScale = kFormat.scale;
  constexpr int kCodes = static_cast<int>(kFormat.group_codes());
  constexpr int kScales = panel_group_scales(kScale);
  const auto* base = reinterpret_cast<const uint8_t*>(s.panels + panel * s.panel_bytes);
  const int64_t groups = s.k / kGroup;
  const uint8_t* group_scales = base + s.scales_offset;
  const uint8_t* heads = base + s.heads_offset;
  const int64_t group_bytes = s.panel_bytes / groups;
  const uint8_t* ahead = base + kPrefetchBytes;
  const int8_t* x = s.codes + row * s.k;
  const float* x_scale = s.scales + row * groups;
  const int32_t* x_sums = s.sums + row * groups * kGroupSums;
  const float* x_scaled = s.scaled_sums + row * groups * kGroupSums;

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
    const GroupScales w = load_scales<kScale>(group_scales + g * kScales, head);
    for (int line = 0; line < kCodes + kScales; line += 64) __builtin_prefetch(ahead + line);
    ahead += group_bytes;
    const Words words = load_words<kType>(base + g * kCodes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = r * groups + g;
      const RowGroup in = {x + at * kGroup, x_scale + at, x_sums + at * kGroupSums,
                           x_scaled + at * kGroupSums};
      if constexpr (has_halves(kScale)) {
        acc[r] = add_words<kType, 0, 4>(acc[r], words, w.d[0], w.m[0], in, 0);
        acc[r] = add_words<kType, 4, 8>(acc[r], words, w.d[1], w.m[1], in, 1);
      } else {
        acc[r] = add_words<kType, 0, 8>(acc[r], words, w.d[0], w.m[0], in, 2);
      }
    }
  }
  store_tile<kRows>(s, row, panel, acc);
}

using Tile = void (*)(const MatmulShare&, int64_t row, int64_t panel);

struct Tiles {
  Tile of[kMaxTile];  // for 1 .. kMaxTile rows
};

template <int kRows, DType kType>
constexpr Tile tile() {
  if constexpr (panel_format(kType).scale == PanelScale::kFloat) {
    return float_tile<kRows, kType>;
  } else {
    return quantized_tile<kRows, kType>;
  }
}

template <DType kType>
constexpr Tiles tiles() {
  return {{tile<1, kType>(), tile<2, kType>(), tile<3, kType>(), tile<4, kType>(), tile<5, kType>(),
           tile<6, kType>(), tile<7, kType>(), tile<8, kType>()}};
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
  // An even split: nine rows as 5 + 4, since a tile of one row costs as much to unpack as one of
  // eight.
  const int64_t count = (s.rows + kMaxTile - 1) / kMaxTile;
  for (int64_t panel = s.panel_begin; panel < s.panel_end; ++panel) {
    for (int64_t t = 0; t < count; ++t) {
      const int64_t begin = s.rows * t / count;
      const int64_t end = s.rows * (t + 1) / count;
      by_rows.of[end - begin - 1](s, begin, panel);
    }
  }
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
