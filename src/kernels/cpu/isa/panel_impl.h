// What kernels read of panels and write of products, written over the sixteen lanes of simd_*.h.
#pragma once

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

// A type as a type.
template <DType kType>
struct TypeOf {
  static constexpr DType value = kType;
};

// body(TypeOf<dtype>()).
template <typename Body>
AERIE_INLINE void with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(TypeOf<DType::kF32>());
    case DType::kF16:
      return body(TypeOf<DType::kF16>());
    case DType::kBF16:
      return body(TypeOf<DType::kBF16>());
    case DType::kQ4_0:
      return body(TypeOf<DType::kQ4_0>());
    case DType::kQ4_1:
      return body(TypeOf<DType::kQ4_1>());
    case DType::kQ5_0:
      return body(TypeOf<DType::kQ5_0>());
    case DType::kQ5_1:
      return body(TypeOf<DType::kQ5_1>());
    case DType::kQ8_0:
      return body(TypeOf<DType::kQ8_0>());
    case DType::kQ2_K:
      return body(TypeOf<DType::kQ2_K>());
    case DType::kQ3_K:
      return body(TypeOf<DType::kQ3_K>());
    case DType::kQ4_K:
      return body(TypeOf<DType::kQ4_K>());
    case DType::kQ5_K:
      return body(TypeOf<DType::kQ5_K>());
    case DType::kQ6_K:
      return body(TypeOf<DType::kQ6_K>());
    case DType::kIQ4_NL:
      return body(TypeOf<DType::kIQ4_NL>());
    case DType::kIQ4_XS:
      return body(TypeOf<DType::kIQ4_XS>());
    case DType::kMXFP4:
      return body(TypeOf<DType::kMXFP4>());
    case DType::kIQ2_XXS:
      return body(TypeOf<DType::kIQ2_XXS>());
    case DType::kIQ2_XS:
      return body(TypeOf<DType::kIQ2_XS>());
    case DType::kIQ2_S:
      return body(TypeOf<DType::kIQ2_S>());
    case DType::kIQ3_XXS:
      return body(TypeOf<DType::kIQ3_XXS>());
    case DType::kIQ3_S:
      return body(TypeOf<DType::kIQ3_S>());
    case DType::kNVFP4:
      return body(TypeOf<DType::kNVFP4>());
  }
}

// Into the second cache: the first has too few places for what is on its way (docs/decisions.md).
AERIE_INLINE void prefetch(const std::byte* at, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line, 0, 2);
}

// The same of so many bytes.
template <int kBytes>
AERIE_INLINE void prefetch(const std::byte* at) {
#pragma GCC unroll 16
  for (int line = 0; line < kBytes; line += 64) __builtin_prefetch(at + line, 0, 2);
}

void store_tile(const MatmulShare& s, int64_t row, int64_t rows, int64_t panel, const Floats* acc) {
  const int64_t column = panel * kPanelRows;
  const int64_t left = s.n - column;
  const int lanes = left < kPanelRows ? static_cast<int>(left) : kPanelRows;
  const bool has_bias = s.bias != nullptr;
  const bool has_factor = s.factor != 1.0f;
  const Floats factor = set1(s.factor);
  const Floats bias = has_bias ? load_first(s.bias + column, lanes) : zero();
  for (int64_t r = 0; r < rows; ++r) {
    float* y = s.y + (row + r) * s.stride + column;
    const Floats scaled = has_factor ? mul(acc[r], factor) : acc[r];
    const Floats product = has_bias ? add(scaled, bias) : scaled;
    store_first(y, s.accumulate ? add(load_first(y, lanes), product) : product, lanes);
  }
}

// Word kIndex of a group: four k of each of 16 rows.
template <DType kType, int kIndex>
AERIE_INLINE Bytes load_word(const uint8_t* codes) {
  constexpr PanelFormat kFormat = panel_format(kType);
  constexpr int kBits = kFormat.bits, kHigh = kFormat.high_bits;
  constexpr int kSharing = 8 / kBits;  // words that lie in the same bytes
  Bytes word = load_bytes(codes + 64 * (kIndex / kSharing));
  if constexpr (kBits < 8) word = bit_field<kBits, kBits*(kIndex % kSharing)>(word);
  if constexpr (kHigh > 0) {
    constexpr int kHighSharing = 8 / kHigh;
    word = add_high_bits<kHigh, kHigh*(kIndex % kHighSharing), kBits>(
        word, load_bytes(codes + 64 * (kBits + kIndex / kHighSharing)));
  }
  if constexpr (has_code_table(kType)) word = look_up(code_table(kType), word);
  return word;
}

// The largest byte of a word.
constexpr int largest_byte(DType type) {
  const PanelFormat format = panel_format(type);
  if (format.high_bytes) return 255;
  if (!has_code_table(type)) return (1 << (format.bits + format.high_bits)) - 1;
  int largest = 0;
  for (int i = 0; i < 16; ++i) {
    if (code_table(type)[i] > largest) largest = code_table(type)[i];
  }
  return largest;
}

constexpr bool has_min(PanelScale scale) {
  return scale == PanelScale::kMin || scale == PanelScale::kSuper ||
         scale == PanelScale::kSuperHalfMin;
}
constexpr bool has_halves(PanelScale scale) {
  return scale == PanelScale::kSuperHalf || scale == PanelScale::kSuperHalfMin ||
         scale == PanelScale::kSuperHalfOdd || scale == PanelScale::kHalfE4M3;
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
  } else if constexpr (kScale == PanelScale::kHalfE4M3) {
    for (int h = 0; h < 2; ++h) g.d[h] = mul(head.d[0], load_small_halves(scales + 16 * h));
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
  } else if constexpr (kScale == PanelScale::kSuperHalfOdd) {
    const Ints both = load_u8(scales);
    const auto odd = [](Ints x) { return to_floats(add(add(x, x), set1(1))); };
    g.d[0] = mul(head.d[0], odd(bit_field<4, 0>(both)));
    g.d[1] = mul(head.d[0], odd(bit_field<4, 4>(both)));
  } else {
    for (int h = 0; h < 2; ++h) {
      const Ints both = load_u8(scales + 16 * h);
      g.d[h] = mul(head.d[0], to_floats(bit_field<4, 0>(both)));
      g.m[h] = mul(head.m[0], to_floats(bit_field<4, 4>(both)));
    }
  }
  return g;
}

// Groups that share a head.
constexpr int64_t kHeadGroups = 8;

// That of the groups from `group` on, of the panel at `base`.
template <DType kType>
AERIE_INLINE GroupScales load_head(const MatmulShare& s, const uint8_t* base, int64_t group) {
  constexpr PanelScale kScale = panel_format(kType).scale;
  GroupScales head = {{zero(), zero()}, {zero(), zero()}};
  if constexpr (kScale == PanelScale::kHalfE4M3) {
    head.d[0] = set1(256.0f * scale_unit(kType));  // E4M3's exponents begin so much higher
  } else if constexpr (has_heads(kScale)) {
    const uint8_t* at = base + s.heads_offset + group / kHeadGroups * 64;
    const auto* halves = reinterpret_cast<const uint16_t*>(at);
    head.d[0] = load_half(halves);
    if constexpr (scale_unit(kType) != 1.0f) head.d[0] = mul(head.d[0], set1(scale_unit(kType)));
    if constexpr (has_min(kScale)) head.m[0] = sub(zero(), load_half(halves + 16));
  }
  return head;
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
