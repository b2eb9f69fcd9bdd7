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
    if (lanes == kPanelRows) {
      store(y, s.accumulate ? add(load(y), product) : product);
    } else {
      store_first(y, s.accumulate ? add(load_first(y, lanes), product) : product, lanes);
    }
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

template <int kBits>
AERIE_INLINE Words load_words(const uint8_t* codes) {
  Words words;
  if constexpr (kBits == 4) {
    for (int i = 0; i < 4; ++i) {
      const Bytes packed = load_bytes(codes + 64 * i);
      words.word[2 * i] = low_nibbles(packed);
      words.word[2 * i + 1] = high_nibbles(packed);
    }
  } else {
    for (int i = 0; i < 8; ++i) words.word[i] = load_bytes(codes + 64 * i);
  }
  return words;
}

template <bool kWide>
AERIE_INLINE Ints dot_words(Ints acc, const Words& words, int from, int to, const int8_t* x) {
  for (int i = from; i < to; ++i) acc = dot4<kWide>(acc, words.word[i], x + 4 * i);
  return acc;
}

template <int kRows, PanelScale kScale, int kBits, bool kWide>
void quantized_tile(const MatmulShare& s, int64_t row, int64_t panel) {
  const auto* base = reinterpret_cast<const uint8_t*>(s.panels + panel * s.panel_bytes);
  const int64_t groups = s.k / kGroup;
  const uint8_t* group_scales = base + s.scales_offset;
  const uint8_t* heads = base + s.heads_offset;
  constexpr int kCodes = kPanelRows * kGroup * kBits / 8;
  constexpr int kScales = kScale == PanelScale::kMin ? 64 : 32;
  constexpr bool kHasMin = kScale == PanelScale::kMin || kScale == PanelScale::kSuper;
  const int8_t* x = s.codes + row * s.k;
  const float* x_scale = s.scales + row * groups;
  const int32_t* x_sum = s.sums + row * groups * 2;

  Floats acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = zero();
  Floats head_d = zero(), head_m = zero();
  for (int64_t g = 0; g < groups; ++g) {
    const uint8_t* scales = group_scales + g * kScales;
    Floats d = zero(), m = zero();
    if constexpr (kScale == PanelScale::kZero || kScale == PanelScale::kMin) {
      d = load_half(reinterpret_cast<const uint16_t*>(scales));
      if constexpr (kHasMin) m = load_half(reinterpret_cast<const uint16_t*>(scales + 32));
    } else {
      if (g % 8 == 0) {
        const auto* head = reinterpret_cast<const uint16_t*>(heads + g / 8 * 64);
        head_d = load_half(head);
        if constexpr (kHasMin) head_m = sub(zero(), load_half(head + 16));
      }
      d = head_d;
      if constexpr (kHasMin) {
        d = mul(head_d, to_floats(load_u8(scales)));
        m = mul(head_m, to_floats(load_u8(scales + 16)));
      }
    }
    const uint8_t* codes = base + g * kCodes;
    for (int line = 0; line < kCodes + kScales; line += 64) {
      __builtin_prefetch(codes + kPrefetchBytes + line);
    }
    const Words words = load_words<kBits>(codes);
    for (int r = 0; r < kRows; ++r) {
      const int8_t* inputs = x + r * s.k + g * kGroup;
      const float scale = x_scale[r * groups + g];
      const int32_t* sum = x_sum + (r * groups + g) * 2;
      Ints dot;
      if constexpr (kScale == PanelScale::kSuperHalf) {
        const Ints first = dot_words<kWide>(set1(-s.zero_point * sum[0]), words, 0, 4, inputs);
        const Ints second =
            dot_words<kWide>(set1(-s.zero_point * (sum[1] - sum[0])), words, 4, 8, inputs);
        dot = add(mul(first, load_i8(scales)), mul(second, load_i8(scales + 16)));
      } else {
        const Ints start = kHasMin ? set1(0) : set1(-s.zero_point * sum[1]);
        dot = dot_words<kWide>(start, words, 0, 8, inputs);
      }
      acc[r] = fma(to_floats(dot), mul(d, set1(scale)), acc[r]);
      if constexpr (kHasMin) {
        acc[r] = fma(m, set1(scale * static_cast<float>(sum[1])), acc[r]);
      }
    }
  }
  store_tile<kRows>(s, row, panel, acc);
}

using Tile = void (*)(const MatmulShare&, int64_t row, int64_t panel);

struct Tiles {
  Tile of[kMaxTile];  // for 1 .. kMaxTile rows
};

template <DType kType>
constexpr Tiles float_tiles() {
  return {{float_tile<1, kType>, float_tile<2, kType>, float_tile<3, kType>, float_tile<4, kType>,
           float_tile<5, kType>, float_tile<6, kType>, float_tile<7, kType>, float_tile<8, kType>}};
}

template <PanelScale kScale, int kBits, bool kWide = false>
constexpr Tiles quantized_tiles() {
  return {{quantized_tile<1, kScale, kBits, kWide>, quantized_tile<2, kScale, kBits, kWide>,
           quantized_tile<3, kScale, kBits, kWide>, quantized_tile<4, kScale, kBits, kWide>,
           quantized_tile<5, kScale, kBits, kWide>, quantized_tile<6, kScale, kBits, kWide>,
           quantized_tile<7, kScale, kBits, kWide>, quantized_tile<8, kScale, kBits, kWide>}};
}

inline Tiles tiles_for(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return float_tiles<DType::kF32>();
    case DType::kF16:
      return float_tiles<DType::kF16>();
    case DType::kBF16:
      return float_tiles<DType::kBF16>();
    case DType::kQ4_0:
      return quantized_tiles<PanelScale::kZero, 4>();
    case DType::kQ4_1:
      return quantized_tiles<PanelScale::kMin, 4>();
    case DType::kQ5_0:
      return quantized_tiles<PanelScale::kZero, 8>();
    case DType::kQ5_1:
      return quantized_tiles<PanelScale::kMin, 8>();
    case DType::kQ8_0:
      return quantized_tiles<PanelScale::kZero, 8, true>();
    case DType::kQ4_K:
      return quantized_tiles<PanelScale::kSuper, 4>();
    case DType::kQ5_K:
      return quantized_tiles<PanelScale::kSuper, 8>();
    case DType::kQ6_K:
      return quantized_tiles<PanelScale::kSuperHalf, 8>();
  }
  return float_tiles<DType::kF32>();
}

void matmul(const MatmulShare& s) {
  const Tiles tiles = tiles_for(s.dtype);
  // An even split: nine rows as 5 + 4, since a tile of one row costs as much to unpack as one of
  // eight.
  const int64_t count = (s.rows + kMaxTile - 1) / kMaxTile;
  for (int64_t panel = s.panel_begin; panel < s.panel_end; ++panel) {
    for (int64_t t = 0; t < count; ++t) {
      const int64_t begin = s.rows * t / count;
      const int64_t end = s.rows * (t + 1) / count;
      tiles.of[end - begin - 1](s, begin, panel);
    }
  }
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
