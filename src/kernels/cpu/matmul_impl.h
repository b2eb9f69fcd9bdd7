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
  constexpr int kBits = panel_format(kType).bits;
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
  if constexpr (has_code_table(kType)) {
    for (Bytes& word : words.word) word = look_up(code_table(kType), word);
  }
  return words;
}

template <bool kWide>
AERIE_INLINE Ints dot_words(Ints acc, const Words& words, int from, int to, const int8_t* x) {
  for (int i = from; i < to; ++i) acc = dot4<kWide>(acc, words.word[i], x + 4 * i);
  return acc;
}

// The factors of a group, lane by lane, sign of the minimum included: w = d sub c + m min, where
// sub and min exist only with a scale for each half, and in pairs if kPairs.
struct GroupScales {
  Floats d, m;
  Ints sub[2], sub_pair, min_pair;
};

constexpr bool has_min(PanelScale scale) {
  return scale == PanelScale::kMin || scale == PanelScale::kSuper ||
         scale == PanelScale::kSuperHalfMin;
}
constexpr bool has_halves(PanelScale scale) {
  return scale == PanelScale::kSuperHalf || scale == PanelScale::kSuperHalfMin;
}

// Whether the sums over half a group fit 16 bits, so that one instruction applies both scales: 16
// products of numbers below 16 with codes below 128 do.
template <DType kType>
constexpr bool kPairs = has_halves(panel_format(kType).scale) && panel_format(kType).bits <= 4 &&
                        !panel_format(kType).high_bytes;

// The same two numbers of 16 bits in every lane.
AERIE_INLINE Ints pair(int32_t low, int32_t high) {
  const uint32_t both = (static_cast<uint32_t>(low) & 0xFFFF) | static_cast<uint32_t>(high) << 16;
  return set1(static_cast<int32_t>(both));
}

// `head` holds the super-block's d and m; unused where there is none.
template <DType kType>
AERIE_INLINE GroupScales load_scales(const uint8_t* scales, const GroupScales& head) {
  constexpr PanelScale kScale = panel_format(kType).scale;
  GroupScales g = head;
  const auto* halves = reinterpret_cast<const uint16_t*>(scales);
  if constexpr (kScale == PanelScale::kZero) {
    g.d = load_half(halves);
  } else if constexpr (kScale == PanelScale::kZeroBfloat) {
    g.d = load_bfloat(halves);
  } else if constexpr (kScale == PanelScale::kMin) {
    g.d = load_half(halves);
    g.m = load_half(halves + 16);
  } else if constexpr (kScale == PanelScale::kSuperZero) {
    g.d = mul(head.d, to_floats(load_i8(scales)));
  } else if constexpr (kScale == PanelScale::kSuper) {
    g.d = mul(head.d, to_floats(load_u8(scales)));
    g.m = mul(head.m, to_floats(load_u8(scales + 16)));
  } else if constexpr (kScale == PanelScale::kSuperHalf) {
    for (int h = 0; h < 2; ++h) g.sub[h] = load_i8(scales + 16 * h);
    if constexpr (kPairs<kType>) g.sub_pair = pair(g.sub[0], g.sub[1]);
  } else {
    const Ints first = load_u8(scales), second = load_u8(scales + 16);
    g.sub_pair = pair(bit_field<4, 0>(first), bit_field<4, 0>(second));
    g.min_pair = pair(bit_field<4, 4>(first), bit_field<4, 4>(second));
  }
  return g;
}

template <int kRows, DType kType>
void quantized_tile(const MatmulShare& s, int64_t row, int64_t panel) {
  constexpr PanelFormat kFormat = panel_format(kType);
  constexpr PanelScale kScale = kFormat.scale;
  constexpr bool kWide = kFormat.high_bytes;
  constexpr int kZero = code_zero(kType);
  constexpr int kCodes = kPanelRows * kGroup * kFormat.bits / 8;
  constexpr int kScales = panel_group_scales(kScale);
  constexpr bool kHeads =
      kScale == PanelScale::kSuper || kScale == PanelScale::kSuperZero || has_halves(kScale);
  const auto* base = reinterpret_cast<const uint8_t*>(s.panels + panel * s.panel_bytes);
  const int64_t groups = s.k / kGroup;
  const uint8_t* group_scales = base + s.scales_offset;
  const uint8_t* heads = base + s.heads_offset;
  const int8_t* x = s.codes + row * s.k;
  const float* x_scale = s.scales + row * groups;
  const int32_t* x_sum = s.sums + row * groups * 2;

  Floats acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = zero();
  GroupScales head = {zero(), zero(), {set1(0), set1(0)}, set1(0), set1(0)};
  for (int64_t g = 0; g < groups; ++g) {
    if (kHeads && g % 8 == 0) {
      const auto* halves = reinterpret_cast<const uint16_t*>(heads + g / 8 * 64);
      head.d = load_half(halves);
      if constexpr (has_min(kScale)) head.m = sub(zero(), load_half(halves + 16));
    }
    const GroupScales w = load_scales<kType>(group_scales + g * kScales, head);
    const uint8_t* codes = base + g * kCodes;
    for (int line = 0; line < kCodes + kScales; line += 64) {
      __builtin_prefetch(codes + kPrefetchBytes + line);
    }
    const Words words = load_words<kType>(codes);
    for (int r = 0; r < kRows; ++r) {
      const int8_t* inputs = x + r * s.k + g * kGroup;
      const float scale = x_scale[r * groups + g];
      const int32_t* sum = x_sum + (r * groups + g) * 2;
      const int32_t sums[2] = {sum[0], sum[1] - sum[0]};
      Ints dot;
      if constexpr (has_halves(kScale)) {
        const Ints first = dot_words<kWide>(set1(-kZero * sums[0]), words, 0, 4, inputs);
        const Ints second = dot_words<kWide>(set1(-kZero * sums[1]), words, 4, 8, inputs);
        if constexpr (kPairs<kType>) {
          dot = dot2(pair(first, second), w.sub_pair);
        } else {
          dot = add(mul(first, w.sub[0]), mul(second, w.sub[1]));
        }
      } else {
        dot = dot_words<kWide>(set1(-kZero * sum[1]), words, 0, 8, inputs);
      }
      acc[r] = fma(to_floats(dot), mul(w.d, set1(scale)), acc[r]);
      if constexpr (kScale == PanelScale::kSuperHalfMin) {
        const Ints mins = dot2(w.min_pair, pair(sums[0], sums[1]));
        acc[r] = fma(w.m, mul(set1(scale), to_floats(mins)), acc[r]);
      } else if constexpr (has_min(kScale)) {
        acc[r] = fma(w.m, set1(scale * static_cast<float>(sum[1])), acc[r]);
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
