// Sixteen lanes as two AVX2 registers. The same names and the same arithmetic, lane for lane, as in
// simd_avx512.h: kernels are written once over them. Included by ops_avx2.cc and ops_avxvnni.cc
// alone; the latter is compiled with AVX-VNNI.
#pragma once

#include <immintrin.h>

#include <cstdint>

#ifdef __AVXVNNI__
#define AERIE_CPU_NAMESPACE avxvnni
#else
#define AERIE_CPU_NAMESPACE avx2
#endif
#define AERIE_INLINE static inline __attribute__((always_inline))

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

struct Floats {
  __m256 a, b;
};
struct Ints {
  __m256i a, b;
};
struct Bytes {
  __m256i a, b;
};

constexpr int kLanes = 16;
// Rows of activations whose sums a kernel keeps side by side. There are 16 registers.
constexpr int kRowsTogether = 4;
// So few rows leave a dot product waiting for the one before.
constexpr int kFewRows = 2;
// Rows whose sums with four panels stay in registers beside all else.
constexpr int kRowsBeside = 1;
constexpr int kFloatRowsTogether = 6;
// Sums that attention keeps in registers beside its operands.
constexpr int kSumsTogether = 6;

AERIE_INLINE __m256i lane_mask(int n, int from) {
  const __m256i lanes =
      _mm256_add_epi32(_mm256_set1_epi32(from), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lanes);
}

AERIE_INLINE Floats zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
AERIE_INLINE Floats set1(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
AERIE_INLINE Floats load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
AERIE_INLINE void store(float* p, Floats x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
// The first n of 16 lanes; the others are 0 when loading and untouched when storing.
AERIE_INLINE Floats load_first(const float* p, int n) {
  if (n == kLanes) return load(p);
  return {_mm256_maskload_ps(p, lane_mask(n, 0)), _mm256_maskload_ps(p + 8, lane_mask(n, 8))};
}
AERIE_INLINE void store_first(float* p, Floats x, int n) {
  if (n == kLanes) return store(p, x);
  _mm256_maskstore_ps(p, lane_mask(n, 0), x.a);
  _mm256_maskstore_ps(p + 8, lane_mask(n, 8), x.b);
}
AERIE_INLINE Floats select_first(int n, Floats x, Floats y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(lane_mask(n, 0))),
          _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(lane_mask(n, 8)))};
}
AERIE_INLINE Floats select_nonnegative(Floats x, Floats y, Floats z) {
  const __m256 o = _mm256_setzero_ps();
  return {_mm256_blendv_ps(z.a, y.a, _mm256_cmp_ps(x.a, o, _CMP_GE_OQ)),
          _mm256_blendv_ps(z.b, y.b, _mm256_cmp_ps(x.b, o, _CMP_GE_OQ))};
}

AERIE_INLINE Floats add(Floats x, Floats y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
AERIE_INLINE Floats sub(Floats x, Floats y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
AERIE_INLINE Floats mul(Floats x, Floats y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
AERIE_INLINE Floats div(Floats x, Floats y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
AERIE_INLINE Floats max(Floats x, Floats y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
AERIE_INLINE Floats abs(Floats x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
AERIE_INLINE Floats fma(Floats x, Floats y, Floats z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
AERIE_INLINE Floats round_even(Floats x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kMode), _mm256_round_ps(x.b, kMode)};
}
// x * 2^n for whole n in [-126, 127].
AERIE_INLINE __m256 scale2_half(__m256 x, __m256 n) {
  const __m256i bits =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(x, _mm256_castsi256_ps(bits));
}
AERIE_INLINE Floats scale2(Floats x, Floats n) {
  return {scale2_half(x.a, n.a), scale2_half(x.b, n.b)};
}

// Folds 16 lanes to 8, 4, 2, 1.
AERIE_INLINE float reduce_add(Floats x) {
  const __m256 a = _mm256_add_ps(x.a, x.b);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
AERIE_INLINE float reduce_max(Floats x) {
  const __m256 a = _mm256_max_ps(x.a, x.b);
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}

AERIE_INLINE Floats load_half(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
// Sixteen bytes below 128 as binary16's top bits: four of the exponent, three of the mantissa.
AERIE_INLINE Floats load_small_halves(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 7);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
AERIE_INLINE void store_half(uint16_t* p, Floats x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, kMode));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, kMode));
}
AERIE_INLINE __m256 bfloat_half(const uint16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
AERIE_INLINE Floats load_bfloat(const uint16_t* p) {
  return {bfloat_half(p), bfloat_half(p + 8)};
}

AERIE_INLINE Ints set1(int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
AERIE_INLINE Ints zero_ints() {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
// The number at p in every lane.
AERIE_INLINE Ints set1_at(const int32_t* p) {
  return set1(*p);
}
AERIE_INLINE Ints load(const int32_t* p) {
  const auto* at = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
AERIE_INLINE void store(int32_t* p, Ints x) {
  auto* at = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(at, x.a);
  _mm256_storeu_si256(at + 1, x.b);
}
AERIE_INLINE Ints load_u8(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
AERIE_INLINE Ints load_i8(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
// Each lane must be within int8.
AERIE_INLINE void store_i8(void* p, Ints x) {
  const __m128i low =
      _mm_packs_epi32(_mm256_castsi256_si128(x.a), _mm256_extracti128_si256(x.a, 1));
  const __m128i high =
      _mm_packs_epi32(_mm256_castsi256_si128(x.b), _mm256_extracti128_si256(x.b, 1));
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm_packs_epi16(low, high));
}
// Each lane must be within int16.
AERIE_INLINE void store_i16(void* p, Ints x) {
  // Packing works within halves of 128 bits: their order is 0, 2, 1, 3 then.
  const __m256i packed = _mm256_packs_epi32(x.a, x.b);
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
}
// 32 bytes as a pair of 16-bit numbers in every lane.
AERIE_INLINE Ints load_i8_pairs(const void* p) {
  const auto* at = static_cast<const __m128i*>(p);
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(at)), _mm256_cvtepi8_epi16(_mm_loadu_si128(at + 1))};
}
// acc + x0 y0 + x1 y1 of the pairs of 16-bit numbers.
AERIE_INLINE Ints dot2(Ints acc, Ints x, Ints y) {
#ifdef __AVXVNNI__
  return {_mm256_dpwssd_avx_epi32(acc.a, x.a, y.a), _mm256_dpwssd_avx_epi32(acc.b, x.b, y.b)};
#else
  return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(x.a, y.a)),
          _mm256_add_epi32(acc.b, _mm256_madd_epi16(x.b, y.b))};
#endif
}
AERIE_INLINE Ints add(Ints x, Ints y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
// The kBits bits from kShift up of every lane.
template <int kBits, int kShift>
AERIE_INLINE Ints bit_field(Ints x) {
  const __m256i mask = _mm256_set1_epi32((1 << kBits) - 1);
  return {_mm256_and_si256(_mm256_srli_epi32(x.a, kShift), mask),
          _mm256_and_si256(_mm256_srli_epi32(x.b, kShift), mask)};
}
AERIE_INLINE Floats to_floats(Ints x) {
  return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
AERIE_INLINE Ints to_ints(Floats x) {  // to nearest even
  return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}
AERIE_INLINE int32_t reduce_add(Ints x) {
  const __m256i a = _mm256_add_epi32(x.a, x.b);
  const __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i c = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xB1)));
}

AERIE_INLINE Bytes load_bytes(const void* p) {
  const auto* at = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
// The kBits bits from kShift up of every byte.
template <int kBits, int kShift>
AERIE_INLINE Bytes bit_field(Bytes x) {
  const __m256i mask = _mm256_set1_epi8((1 << kBits) - 1);
  return {_mm256_and_si256(_mm256_srli_epi16(x.a, kShift), mask),
          _mm256_and_si256(_mm256_srli_epi16(x.b, kShift), mask)};
}
template <int kBits, int kFrom, int kTo>
AERIE_INLINE __m256i add_high_half(__m256i low, __m256i high) {
  constexpr int kLeft = kTo - kFrom;
  const __m256i shifted = kLeft >= 0 ? _mm256_slli_epi16(high, kLeft >= 0 ? kLeft : 0)
                                     : _mm256_srli_epi16(high, kLeft >= 0 ? 0 : -kLeft);
  const __m256i mask = _mm256_set1_epi8(((1 << kBits) - 1) << kTo);
  return _mm256_or_si256(low, _mm256_and_si256(shifted, mask));
}
// Bits kTo and up of every byte of `low`, which must be 0 before: the kBits bits from kFrom up of
// those of `high`.
template <int kBits, int kFrom, int kTo>
AERIE_INLINE Bytes add_high_bits(Bytes low, Bytes high) {
  return {add_high_half<kBits, kFrom, kTo>(low.a, high.a),
          add_high_half<kBits, kFrom, kTo>(low.b, high.b)};
}
// For every byte, which must be below 16, an entry of the table.
AERIE_INLINE Bytes look_up(const uint8_t* table, Bytes x) {
  const __m256i entries =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(entries, x.a), _mm256_shuffle_epi8(entries, x.b)};
}
AERIE_INLINE __m256i broadcast_four(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}
#ifdef __AVXVNNI__
// What dot4<true> takes off every byte of `w`.
constexpr int kWideOffset = 0;
// acc + the dot product, lane by lane, of four unsigned bytes of `w` with the four signed ones at
// `x`.
template <bool kWide>
AERIE_INLINE Ints dot4(Ints acc, Bytes w, const int8_t* x) {
  const __m256i four = broadcast_four(x);
  return {_mm256_dpbusd_avx_epi32(acc.a, w.a, four), _mm256_dpbusd_avx_epi32(acc.b, w.b, four)};
}
#else
// Sums of two products, two in every lane.
struct Pairs {
  __m256i a, b;
};
// Of unsigned bytes of `w` below 128 with signed ones at `x`, the same four for all lanes.
AERIE_INLINE Pairs multiply_pairs(Bytes w, const int8_t* x) {
  const __m256i four = broadcast_four(x);
  return {_mm256_maddubs_epi16(w.a, four), _mm256_maddubs_epi16(w.b, four)};
}
AERIE_INLINE Pairs add(Pairs x, Pairs y) {
  return {_mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b)};
}
AERIE_INLINE Ints add_pairs(Ints acc, Pairs x) {
  const __m256i one = _mm256_set1_epi16(1);
  return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(x.a, one)),
          _mm256_add_epi32(acc.b, _mm256_madd_epi16(x.b, one))};
}
AERIE_INLINE void keep_here(Pairs& x) {
  asm("" : "+x"(x.a), "+x"(x.b));
}
// What dot4<true> takes off every byte of `w`: two products of an unsigned byte would not fit 16
// bits.
constexpr int kWideOffset = 128;
// With a magnitude and a sign they do.
AERIE_INLINE __m256i signed_pairs(__m256i w, __m256i x) {
  const __m256i number = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(kWideOffset)));
  return _mm256_maddubs_epi16(_mm256_abs_epi8(number), _mm256_sign_epi8(x, number));
}
// acc + the dot product, lane by lane, of four unsigned bytes of `w` with the four signed ones at
// `x`, none of them -128. With kWide false the bytes of w are below 128.
template <bool kWide>
AERIE_INLINE Ints dot4(Ints acc, Bytes w, const int8_t* x) {
  if constexpr (!kWide) return add_pairs(acc, multiply_pairs(w, x));
  const __m256i four = broadcast_four(x);
  return add_pairs(acc, {signed_pairs(w.a, four), signed_pairs(w.b, four)});
}
#endif

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE

// Written over what stands above.
#ifdef __AVXVNNI__
#include "kernels/cpu/isa/dots_of_four_impl.h"
#else
#include "kernels/cpu/isa/dots_of_pairs_impl.h"
#endif
