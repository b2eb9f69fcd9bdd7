// Sixteen lanes with AVX-512. The same names and the same arithmetic, lane for lane, as in
// simd_avx2.h: kernels are written once over them. Included by ops_amx.cc, ops_avx512.cc and
// ops_avx512bw.cc alone; the last is compiled without VNNI.
#pragma once

#include <immintrin.h>

#include <cstdint>

#ifdef __AMX_INT8__
#define AERIE_CPU_NAMESPACE amx
#elif defined(__AVX512VNNI__)
#define AERIE_CPU_NAMESPACE avx512
#else
#define AERIE_CPU_NAMESPACE avx512bw
#endif
#define AERIE_INLINE static inline __attribute__((always_inline))

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

struct Floats {
  __m512 v;
};
struct Ints {
  __m512i v;
};
struct Bytes {
  __m512i v;
};

constexpr int kLanes = 16;
// Rows of activations whose sums a kernel keeps side by side. There are 32 registers.
constexpr int kRowsTogether = 8;
// So few rows leave a dot product waiting for the one before.
constexpr int kFewRows = 4;
// Rows whose sums with four panels stay in registers beside all else.
constexpr int kRowsBeside = 4;
constexpr int kFloatRowsTogether = 16;
// Sums that attention keeps in registers beside its operands.
constexpr int kSumsTogether = 24;

AERIE_INLINE __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1u << n) - 1);
}

AERIE_INLINE Floats zero() {
  return {_mm512_setzero_ps()};
}
AERIE_INLINE Floats set1(float x) {
  return {_mm512_set1_ps(x)};
}
AERIE_INLINE Floats load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
AERIE_INLINE void store(float* p, Floats x) {
  _mm512_storeu_ps(p, x.v);
}
// The first n of 16 lanes; the others are 0 when loading and untouched when storing.
AERIE_INLINE Floats load_first(const float* p, int n) {
  if (n == kLanes) return load(p);
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
AERIE_INLINE void store_first(float* p, Floats x, int n) {
  if (n == kLanes) return store(p, x);
  _mm512_mask_storeu_ps(p, first_lanes(n), x.v);
}
AERIE_INLINE Floats select_first(int n, Floats a, Floats b) {
  return {_mm512_mask_blend_ps(first_lanes(n), b.v, a.v)};
}
AERIE_INLINE Floats select_nonnegative(Floats x, Floats a, Floats b) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, _mm512_setzero_ps(), _CMP_GE_OQ), b.v, a.v)};
}

AERIE_INLINE Floats add(Floats a, Floats b) {
  return {_mm512_add_ps(a.v, b.v)};
}
AERIE_INLINE Floats sub(Floats a, Floats b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
AERIE_INLINE Floats mul(Floats a, Floats b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
AERIE_INLINE Floats div(Floats a, Floats b) {
  return {_mm512_div_ps(a.v, b.v)};
}
AERIE_INLINE Floats max(Floats a, Floats b) {
  return {_mm512_max_ps(a.v, b.v)};
}
AERIE_INLINE Floats abs(Floats a) {
  return {_mm512_abs_ps(a.v)};
}
AERIE_INLINE Floats fma(Floats a, Floats b, Floats c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
AERIE_INLINE Floats round_even(Floats a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// x * 2^n for whole n in [-126, 127].
AERIE_INLINE Floats scale2(Floats x, Floats n) {
  return {_mm512_scalef_ps(x.v, n.v)};
}

// Folds 16 lanes to 8, 4, 2, 1.
AERIE_INLINE float reduce_add(Floats x) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
AERIE_INLINE float reduce_max(Floats x) {
  return _mm512_reduce_max_ps(x.v);
}

AERIE_INLINE Floats load_half(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// Sixteen bytes below 128 as binary16's top bits: four of the exponent, three of the mantissa.
AERIE_INLINE Floats load_small_halves(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 7))};
}
AERIE_INLINE void store_half(uint16_t* p, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
AERIE_INLINE Floats load_bfloat(const uint16_t* p) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}

AERIE_INLINE Ints set1(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
AERIE_INLINE Ints zero_ints() {
  return {_mm512_setzero_si512()};
}
// The number at p in every lane.
AERIE_INLINE Ints set1_at(const int32_t* p) {
  return {_mm512_set1_epi32(*p)};
}
AERIE_INLINE Ints load(const int32_t* p) {
  return {_mm512_loadu_si512(p)};
}
AERIE_INLINE void store(int32_t* p, Ints a) {
  _mm512_storeu_si512(p, a.v);
}
AERIE_INLINE Ints load_u8(const void* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
AERIE_INLINE Ints load_i8(const void* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
// Each lane must be within int8.
AERIE_INLINE void store_i8(void* p, Ints x) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}
// Each lane must be within int16.
AERIE_INLINE void store_i16(void* p, Ints a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a.v));
}
// 32 bytes as a pair of 16-bit numbers in every lane.
AERIE_INLINE Ints load_i8_pairs(const void* p) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
// acc + a0 b0 + a1 b1 of the pairs of 16-bit numbers.
AERIE_INLINE Ints dot2(Ints acc, Ints a, Ints b) {
#ifdef __AVX512VNNI__
  // As an intrinsic, g++ 12 copies sums from register to register until there are none left.
  asm("vpdpwssd %2, %1, %0" : "+v"(acc.v) : "v"(a.v), "v"(b.v));
  return acc;
#else
  return {_mm512_add_epi32(acc.v, _mm512_madd_epi16(a.v, b.v))};
#endif
}
AERIE_INLINE Ints add(Ints a, Ints b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
// The kBits bits from kShift up of every lane.
template <int kBits, int kShift>
AERIE_INLINE Ints bit_field(Ints a) {
  return {_mm512_and_si512(_mm512_srli_epi32(a.v, kShift), _mm512_set1_epi32((1 << kBits) - 1))};
}
AERIE_INLINE Floats to_floats(Ints a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
AERIE_INLINE Ints to_ints(Floats a) {
  return {_mm512_cvtps_epi32(a.v)};
}  // to nearest even
AERIE_INLINE int32_t reduce_add(Ints a) {
  return _mm512_reduce_add_epi32(a.v);
}

AERIE_INLINE Bytes load_bytes(const void* p) {
  return {_mm512_loadu_si512(p)};
}
// The kBits bits from kShift up of every byte.
template <int kBits, int kShift>
AERIE_INLINE Bytes bit_field(Bytes b) {
  return {_mm512_and_si512(_mm512_srli_epi16(b.v, kShift), _mm512_set1_epi8((1 << kBits) - 1))};
}
// Bits kTo and up of every byte of `low`, which must be 0 before: the kBits bits from kFrom up of
// those of `high`.
template <int kBits, int kFrom, int kTo>
AERIE_INLINE Bytes add_high_bits(Bytes low, Bytes high) {
  constexpr int kLeft = kTo - kFrom;
  const __m512i shifted = kLeft >= 0 ? _mm512_slli_epi16(high.v, kLeft >= 0 ? kLeft : 0)
                                     : _mm512_srli_epi16(high.v, kLeft >= 0 ? 0 : -kLeft);
  const __m512i mask = _mm512_set1_epi8(((1 << kBits) - 1) << kTo);
  // low | (shifted & mask)
  return {_mm512_ternarylogic_epi64(low.v, shifted, mask, 0xF8)};
}
// For every byte, which must be below 16, an entry of the table.
AERIE_INLINE Bytes look_up(const uint8_t* table, Bytes b) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), b.v)};
}
// What dot4<true> takes off every byte of `w`.
constexpr int kWideOffset = 0;
#ifdef __AVX512VNNI__
// acc + the dot product, lane by lane, of four unsigned bytes of `w` with the four signed ones at
// `x`. With kWide false the bytes of w are below 128.
template <bool kWide>
AERIE_INLINE Ints dot4(Ints acc, Bytes w, const int8_t* x) {
  struct Four {
    int8_t bytes[4];
  };
  // As intrinsics, g++ 12 broadcasts to a register first, and the front end becomes the bottleneck.
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(acc.v)
      : "v"(w.v), "m"(*reinterpret_cast<const Four*>(x)));
  return acc;
}
#else
// Sums of two products, two in every lane.
struct Pairs {
  __m512i v;
};
AERIE_INLINE __m512i broadcast_four(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return _mm512_set1_epi32(four);
}
// Of unsigned bytes of `w` below 128 with signed ones at `x`, the same four for all lanes.
AERIE_INLINE Pairs multiply_pairs(Bytes w, const int8_t* x) {
  return {_mm512_maddubs_epi16(w.v, broadcast_four(x))};
}
AERIE_INLINE Pairs add(Pairs a, Pairs b) {
  return {_mm512_add_epi16(a.v, b.v)};
}
AERIE_INLINE Ints add_pairs(Ints acc, Pairs a) {
  return {_mm512_add_epi32(acc.v, _mm512_madd_epi16(a.v, _mm512_set1_epi16(1)))};
}
AERIE_INLINE void keep_here(Pairs& a) {
  asm("" : "+v"(a.v));
}
// As with VNNI.
template <bool kWide>
AERIE_INLINE Ints dot4(Ints acc, Bytes w, const int8_t* x) {
  if constexpr (!kWide) return add_pairs(acc, multiply_pairs(w, x));
  // Byte pairs would overflow 16 bits: multiply even and odd bytes apart.
  const __m512i four = broadcast_four(x);
  const __m512i even = _mm512_madd_epi16(_mm512_and_si512(w.v, _mm512_set1_epi16(0xFF)),
                                         _mm512_srai_epi16(_mm512_slli_epi16(four, 8), 8));
  const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(w.v, 8), _mm512_srai_epi16(four, 8));
  return {_mm512_add_epi32(acc.v, _mm512_add_epi32(even, odd))};
}
#endif

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE

// Written over what stands above.
#ifdef __AVX512VNNI__
#include "kernels/cpu/isa/dots_of_four_impl.h"
#else
#include "kernels/cpu/isa/dots_of_pairs_impl.h"
#endif
