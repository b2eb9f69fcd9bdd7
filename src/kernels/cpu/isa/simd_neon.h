// Sixteen lanes as four NEON registers. The same names and the same arithmetic, lane for lane, as
// in simd_avx2.h: kernels are written once over them. Included by ops_neon.cc alone.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#define AERIE_CPU_NAMESPACE neon
#define AERIE_INLINE static inline __attribute__((always_inline))

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

struct Floats {
  float32x4_t a, b, c, d;
};
struct Ints {
  int32x4_t a, b, c, d;
};
struct Bytes {
  uint8x16_t a, b, c, d;
};

constexpr int kLanes = 16;
// Rows of activations whose sums a kernel keeps side by side. There are 32 registers, four to each
// sum.
constexpr int kRowsTogether = 2;
// So few rows leave a dot product waiting for the one before.
constexpr int kFewRows = 2;
// Rows whose sums with four panels stay in registers beside all else.
constexpr int kRowsBeside = 1;
constexpr int kFloatRowsTogether = 6;
// Sums that attention keeps in registers beside its operands.
constexpr int kSumsTogether = 6;

// All ones in the lanes below n.
AERIE_INLINE uint32x4_t lane_mask(int n, int from) {
  constexpr int32_t kNumbers[4] = {0, 1, 2, 3};
  return vcltq_s32(vld1q_s32(kNumbers), vdupq_n_s32(n - from));
}

AERIE_INLINE Floats set1(float x) {
  const float32x4_t all = vdupq_n_f32(x);
  return {all, all, all, all};
}
AERIE_INLINE Floats zero() {
  return set1(0.0f);
}
AERIE_INLINE Floats load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
AERIE_INLINE void store(float* p, Floats x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
// The first n of 16 lanes; the others are 0 when loading and untouched when storing.
AERIE_INLINE Floats load_first(const float* p, int n) {
  if (n == kLanes) return load(p);
  float lanes[kLanes] = {};
  __builtin_memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
  return load(lanes);
}
AERIE_INLINE void store_first(float* p, Floats x, int n) {
  if (n == kLanes) return store(p, x);
  float lanes[kLanes];
  store(lanes, x);
  __builtin_memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}
AERIE_INLINE Floats select_first(int n, Floats x, Floats y) {
  return {vbslq_f32(lane_mask(n, 0), x.a, y.a), vbslq_f32(lane_mask(n, 4), x.b, y.b),
          vbslq_f32(lane_mask(n, 8), x.c, y.c), vbslq_f32(lane_mask(n, 12), x.d, y.d)};
}
AERIE_INLINE Floats select_nonnegative(Floats x, Floats y, Floats z) {
  return {vbslq_f32(vcgezq_f32(x.a), y.a, z.a), vbslq_f32(vcgezq_f32(x.b), y.b, z.b),
          vbslq_f32(vcgezq_f32(x.c), y.c, z.c), vbslq_f32(vcgezq_f32(x.d), y.d, z.d)};
}

AERIE_INLINE Floats add(Floats x, Floats y) {
  return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)};
}
AERIE_INLINE Floats sub(Floats x, Floats y) {
  return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)};
}
AERIE_INLINE Floats mul(Floats x, Floats y) {
  return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
}
AERIE_INLINE Floats div(Floats x, Floats y) {
  return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c), vdivq_f32(x.d, y.d)};
}
// Of a NaN and a number the second, as on x86: NEON's own maximum would be NaN.
AERIE_INLINE float32x4_t max(float32x4_t x, float32x4_t y) {
  return vbslq_f32(vcgtq_f32(x, y), x, y);
}
AERIE_INLINE Floats max(Floats x, Floats y) {
  return {max(x.a, y.a), max(x.b, y.b), max(x.c, y.c), max(x.d, y.d)};
}
AERIE_INLINE Floats abs(Floats x) {
  return {vabsq_f32(x.a), vabsq_f32(x.b), vabsq_f32(x.c), vabsq_f32(x.d)};
}
// x y + z.
AERIE_INLINE Floats fma(Floats x, Floats y, Floats z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
          vfmaq_f32(z.d, x.d, y.d)};
}
AERIE_INLINE Floats round_even(Floats x) {
  return {vrndnq_f32(x.a), vrndnq_f32(x.b), vrndnq_f32(x.c), vrndnq_f32(x.d)};
}
// x * 2^n for whole n in [-126, 127].
AERIE_INLINE float32x4_t scale2(float32x4_t x, float32x4_t n) {
  const int32x4_t bits = vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23);
  return vmulq_f32(x, vreinterpretq_f32_s32(bits));
}
AERIE_INLINE Floats scale2(Floats x, Floats n) {
  return {scale2(x.a, n.a), scale2(x.b, n.b), scale2(x.c, n.c), scale2(x.d, n.d)};
}

// Folds 16 lanes to 8, 4, 2, 1.
AERIE_INLINE float reduce_add(Floats x) {
  const float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
AERIE_INLINE float reduce_max(Floats x) {
  const float32x4_t four = max(max(x.a, x.c), max(x.b, x.d));
  const float32x4_t two = max(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(max(two, vextq_f32(two, two, 1)), 0);
}

AERIE_INLINE float32x4_t load_half4(const uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
AERIE_INLINE Floats load_half(const uint16_t* p) {
  return {load_half4(p), load_half4(p + 4), load_half4(p + 8), load_half4(p + 12)};
}
// Sixteen bytes below 128 as binary16's top bits: four of the exponent, three of the mantissa.
AERIE_INLINE Floats load_small_halves(const uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t low = vshll_n_u8(vget_low_u8(bytes), 7), high = vshll_high_n_u8(bytes, 7);
  const float16x8_t a = vreinterpretq_f16_u16(low), b = vreinterpretq_f16_u16(high);
  return {vcvt_f32_f16(vget_low_f16(a)), vcvt_high_f32_f16(a), vcvt_f32_f16(vget_low_f16(b)),
          vcvt_high_f32_f16(b)};
}
AERIE_INLINE void store_half4(uint16_t* p, float32x4_t x) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}
AERIE_INLINE void store_half(uint16_t* p, Floats x) {
  store_half4(p, x.a);
  store_half4(p + 4, x.b);
  store_half4(p + 8, x.c);
  store_half4(p + 12, x.d);
}
AERIE_INLINE float32x4_t load_bfloat4(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
AERIE_INLINE Floats load_bfloat(const uint16_t* p) {
  return {load_bfloat4(p), load_bfloat4(p + 4), load_bfloat4(p + 8), load_bfloat4(p + 12)};
}

AERIE_INLINE Ints set1(int32_t x) {
  const int32x4_t all = vdupq_n_s32(x);
  return {all, all, all, all};
}
AERIE_INLINE Ints zero_ints() {
  return set1(0);
}
// The number at p in every lane.
AERIE_INLINE Ints set1_at(const int32_t* p) {
  const int32x4_t all = vld1q_dup_s32(p);
  return {all, all, all, all};
}
AERIE_INLINE Ints load(const int32_t* p) {
  return {vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)};
}
AERIE_INLINE void store(int32_t* p, Ints x) {
  vst1q_s32(p, x.a);
  vst1q_s32(p + 4, x.b);
  vst1q_s32(p + 8, x.c);
  vst1q_s32(p + 12, x.d);
}
AERIE_INLINE Ints load_u8(const void* p) {
  const uint8x16_t bytes = vld1q_u8(static_cast<const uint8_t*>(p));
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
  return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
          vreinterpretq_s32_u32(vmovl_high_u16(low)),
          vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
          vreinterpretq_s32_u32(vmovl_high_u16(high))};
}
AERIE_INLINE Ints load_i8(const void* p) {
  const int8x16_t bytes = vld1q_s8(static_cast<const int8_t*>(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)),
          vmovl_high_s16(high)};
}
// Each lane must be within int8.
AERIE_INLINE void store_i8(void* p, Ints x) {
  const int16x8_t low = vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b));
  const int16x8_t high = vcombine_s16(vmovn_s32(x.c), vmovn_s32(x.d));
  vst1q_s8(static_cast<int8_t*>(p), vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
// Each lane must be within int16.
AERIE_INLINE void store_i16(void* p, Ints x) {
  auto* at = static_cast<int16_t*>(p);
  vst1q_s16(at, vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b)));
  vst1q_s16(at + 8, vcombine_s16(vmovn_s32(x.c), vmovn_s32(x.d)));
}
// 32 bytes as a pair of 16-bit numbers in every lane.
AERIE_INLINE Ints load_i8_pairs(const void* p) {
  const auto* at = static_cast<const int8_t*>(p);
  const int8x16_t low = vld1q_s8(at), high = vld1q_s8(at + 16);
  return {vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(low))),
          vreinterpretq_s32_s16(vmovl_high_s8(low)),
          vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(high))),
          vreinterpretq_s32_s16(vmovl_high_s8(high))};
}
// acc + x0 y0 + x1 y1 of the pairs of 16-bit numbers.
AERIE_INLINE int32x4_t dot2(int32x4_t acc, int32x4_t x, int32x4_t y) {
  const int16x8_t p = vreinterpretq_s16_s32(x), q = vreinterpretq_s16_s32(y);
  const int32x4_t low = vmull_s16(vget_low_s16(p), vget_low_s16(q));
  return vaddq_s32(acc, vpaddq_s32(low, vmull_high_s16(p, q)));
}
AERIE_INLINE Ints dot2(Ints acc, Ints x, Ints y) {
  return {dot2(acc.a, x.a, y.a), dot2(acc.b, x.b, y.b), dot2(acc.c, x.c, y.c),
          dot2(acc.d, x.d, y.d)};
}
AERIE_INLINE Ints add(Ints x, Ints y) {
  return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b), vaddq_s32(x.c, y.c), vaddq_s32(x.d, y.d)};
}
// The kBits bits from kShift up of every lane.
template <int kBits, int kShift>
AERIE_INLINE int32x4_t bit_field(int32x4_t x) {
  uint32x4_t bits = vreinterpretq_u32_s32(x);
  if constexpr (kShift > 0) bits = vshrq_n_u32(bits, kShift);
  return vreinterpretq_s32_u32(vandq_u32(bits, vdupq_n_u32((1 << kBits) - 1)));
}
template <int kBits, int kShift>
AERIE_INLINE Ints bit_field(Ints x) {
  return {bit_field<kBits, kShift>(x.a), bit_field<kBits, kShift>(x.b),
          bit_field<kBits, kShift>(x.c), bit_field<kBits, kShift>(x.d)};
}
AERIE_INLINE Floats to_floats(Ints x) {
  return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b), vcvtq_f32_s32(x.c), vcvtq_f32_s32(x.d)};
}
AERIE_INLINE Ints to_ints(Floats x) {  // to nearest even
  return {vcvtnq_s32_f32(x.a), vcvtnq_s32_f32(x.b), vcvtnq_s32_f32(x.c), vcvtnq_s32_f32(x.d)};
}
AERIE_INLINE int32_t reduce_add(Ints x) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x.a, x.c), vaddq_s32(x.b, x.d)));
}

AERIE_INLINE Bytes load_bytes(const void* p) {
  const auto* at = static_cast<const uint8_t*>(p);
  return {vld1q_u8(at), vld1q_u8(at + 16), vld1q_u8(at + 32), vld1q_u8(at + 48)};
}
// The kBits bits from kShift up of every byte.
template <int kBits, int kShift>
AERIE_INLINE uint8x16_t bit_field(uint8x16_t x) {
  if constexpr (kShift > 0) x = vshrq_n_u8(x, kShift);
  return vandq_u8(x, vdupq_n_u8((1 << kBits) - 1));
}
template <int kBits, int kShift>
AERIE_INLINE Bytes bit_field(Bytes x) {
  return {bit_field<kBits, kShift>(x.a), bit_field<kBits, kShift>(x.b),
          bit_field<kBits, kShift>(x.c), bit_field<kBits, kShift>(x.d)};
}
template <int kBits, int kFrom, int kTo>
AERIE_INLINE uint8x16_t add_high_bits(uint8x16_t low, uint8x16_t high) {
  constexpr int kLeft = kTo - kFrom;
  if constexpr (kLeft >= 0) {
    high = vshlq_n_u8(high, kLeft);
  } else {
    high = vshrq_n_u8(high, -kLeft);
  }
  return vorrq_u8(low, vandq_u8(high, vdupq_n_u8(((1 << kBits) - 1) << kTo)));
}
// Bits kTo and up of every byte of `low`, which must be 0 before: the kBits bits from kFrom up of
// those of `high`.
template <int kBits, int kFrom, int kTo>
AERIE_INLINE Bytes add_high_bits(Bytes low, Bytes high) {
  return {add_high_bits<kBits, kFrom, kTo>(low.a, high.a),
          add_high_bits<kBits, kFrom, kTo>(low.b, high.b),
          add_high_bits<kBits, kFrom, kTo>(low.c, high.c),
          add_high_bits<kBits, kFrom, kTo>(low.d, high.d)};
}
// For every byte, which must be below 16, an entry of the table.
AERIE_INLINE Bytes look_up(const uint8_t* table, Bytes x) {
  const uint8x16_t entries = vld1q_u8(table);
  return {vqtbl1q_u8(entries, x.a), vqtbl1q_u8(entries, x.b), vqtbl1q_u8(entries, x.c),
          vqtbl1q_u8(entries, x.d)};
}
// What dot4<true> takes off every byte of `w`: the instruction takes signed bytes alone.
constexpr int kWideOffset = 128;
template <bool kWide>
AERIE_INLINE int32x4_t dot4(int32x4_t acc, uint8x16_t w, int8x16_t x) {
  if constexpr (kWide) w = veorq_u8(w, vdupq_n_u8(kWideOffset));
  return vdotq_s32(acc, vreinterpretq_s8_u8(w), x);
}
// acc + the dot product, lane by lane, of four unsigned bytes of `w` with the four signed ones at
// `x`. With kWide false the bytes of w are below 128.
template <bool kWide>
AERIE_INLINE Ints dot4(Ints acc, Bytes w, const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  const int8x16_t repeated = vreinterpretq_s8_s32(vdupq_n_s32(four));
  return {dot4<kWide>(acc.a, w.a, repeated), dot4<kWide>(acc.b, w.b, repeated),
          dot4<kWide>(acc.c, w.c, repeated), dot4<kWide>(acc.d, w.d, repeated)};
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE

// Written over what stands above.
#include "kernels/cpu/isa/dots_of_four_impl.h"
