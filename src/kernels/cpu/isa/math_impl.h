// Functions of the vector kernels, written over the sixteen lanes of simd_*.h. Polynomials without
// a source are minimax fits of relative error below 1e-8 (Remez's algorithm in 50 digits).
#pragma once

#include "kernels/op_kinds.h"

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

// e^x for x <= 0, relative error under 2e-7; 0 below -87. Reduced by multiples of ln 2 in two parts
// (Cody & Waite 1980), then the minimax polynomial of Moshier's Cephes library.
AERIE_INLINE Floats exp_nonpositive(Floats x) {
  const Floats clamped = max(x, set1(-87.0f));
  const Floats n = round_even(mul(clamped, set1(1.44269504088896341f)));
  Floats r = fma(n, set1(-0.693359375f), clamped);
  r = fma(n, set1(2.12194440e-4f), r);
  Floats p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = fma(p, mul(r, r), add(r, set1(1.0f)));
  return select_nonnegative(sub(x, set1(-87.0f)), scale2(p, n), zero());
}

struct Extent {
  float largest;      // magnitude; anything if not finite
  float zero_or_nan;  // NaN if there is an infinity or a NaN
};
// Of n floats, a multiple of 16.
AERIE_INLINE Extent extent_of(const float* x, int n) {
  Floats largest = zero(), odd = zero();
  for (int i = 0; i < n; i += kLanes) {
    const Floats v = load(x + i);
    largest = max(largest, abs(v));
    odd = fma(v, zero(), odd);
  }
  return {reduce_max(largest), reduce_add(odd)};
}

constexpr float kLog2E = 1.44269504088896341f;

// 2^x for x <= 0, relative error under 1.5e-7; exactly 1 at 0, 0 below -126 and for NaN.
AERIE_INLINE Floats exp2_nonpositive(Floats x) {
  const Floats lowest = set1(-126.0f);
  const Floats clamped = max(x, lowest);
  const Floats n = round_even(clamped);
  const Floats r = sub(clamped, n);
  Floats p = set1(1.55946778250e-4f);
  p = fma(p, r, set1(1.34066434111e-3f));
  p = fma(p, r, set1(9.61769279093e-3f));
  p = fma(p, r, set1(5.55031038821e-2f));
  p = fma(p, r, set1(2.40226522088e-1f));
  p = fma(p, r, set1(6.93147242069e-1f));
  p = fma(p, r, set1(1.0f));
  return select_nonnegative(sub(x, lowest), scale2(p, n), zero());
}

// 1 / (1 + e^-x) = 1 / (1 + e) or e / (1 + e) with e = e^-|x|, whichever keeps e from overflowing.
// 0 for NaN: its users multiply by what was NaN.
AERIE_INLINE Floats sigmoid(Floats x) {
  const Floats e = exp_nonpositive(sub(zero(), abs(x)));
  return div(select_nonnegative(x, set1(1.0f), e), add(set1(1.0f), e));
}

// Relative error under 4e-7: near 0 from a polynomial, since 1 - e^-2|x| would cancel.
AERIE_INLINE Floats tanh(Floats x) {
  constexpr float kSmall = 0.625f;
  const Floats z = mul(x, x);
  Floats p = set1(-5.70498737737e-3f);
  p = fma(p, z, set1(2.06390875936e-2f));
  p = fma(p, z, set1(-5.37397151924e-2f));
  p = fma(p, z, set1(1.33314421994e-1f));
  p = fma(p, z, set1(-3.33332819421e-1f));
  const Floats small = fma(mul(p, z), x, x);
  const Floats size = abs(x);
  const Floats e = exp_nonpositive(mul(size, set1(-2.0f)));
  const Floats large = div(sub(set1(1.0f), e), add(set1(1.0f), e));
  const Floats with_sign = select_nonnegative(x, large, sub(zero(), large));
  // NaN is not above kSmall, and the polynomial keeps it.
  return select_nonnegative(sub(size, set1(kSmall)), with_sign, small);
}

// The normal distribution's (1 + erf(x / sqrt 2)) / 2. Below 0 it is e^(-x^2 / 2) S(-x) without
// cancellation, and S(a) = w P(w) with w = 1 / (1 + a / 4).
AERIE_INLINE Floats normal_cdf(Floats x) {
  const Floats w = div(set1(1.0f), fma(abs(x), set1(0.25f), set1(1.0f)));
  Floats p = set1(1.60125135192e-2f);
  p = fma(p, w, set1(-5.96083278996e-2f));
  p = fma(p, w, set1(4.38862313604e-2f));
  p = fma(p, w, set1(3.92214436725e-2f));
  p = fma(p, w, set1(3.32875586234e-3f));
  p = fma(p, w, set1(9.19507889798e-2f));
  p = fma(p, w, set1(7.00655164962e-2f));
  p = fma(p, w, set1(9.59561611914e-2f));
  p = fma(p, w, set1(9.94358801644e-2f));
  p = fma(p, w, set1(9.97510403358e-2f));
  const Floats tail = mul(exp_nonpositive(mul(mul(x, x), set1(-0.5f))), mul(p, w));
  return select_nonnegative(x, sub(set1(1.0f), tail), tail);
}

// x, and `limit` where it is above that; NaN stays.
AERIE_INLINE Floats at_most(Floats x, Floats limit) {
  return select_nonnegative(sub(x, limit), limit, x);
}
AERIE_INLINE Floats at_least(Floats x, Floats limit) {
  return select_nonnegative(sub(limit, x), limit, x);
}

constexpr float kClampedSiluLimit = 7.0f;

template <Activation kActivation>
AERIE_INLINE Floats activation(Floats x) {
  if constexpr (kActivation == Activation::kSilu) return mul(x, sigmoid(x));
  if constexpr (kActivation == Activation::kClampedSilu) {
    const Floats y = at_most(x, set1(kClampedSiluLimit));
    return mul(y, sigmoid(mul(y, set1(1.702f))));
  }
  if constexpr (kActivation == Activation::kGelu) return mul(x, normal_cdf(x));
  // (1 + tanh u) / 2 = sigmoid(2u), which does not cancel below 0; 2 sqrt(2 / pi) = 1.5957...
  const Floats slope = fma(mul(x, x), set1(0.0713548162726f), set1(1.59576912161f));
  return mul(x, sigmoid(mul(x, slope)));
}

// What an activation is multiplied with.
template <Activation kActivation>
AERIE_INLINE Floats activated_factor(Floats x) {
  if constexpr (kActivation != Activation::kClampedSilu) return x;
  const Floats limit = set1(kClampedSiluLimit), lowest = set1(-kClampedSiluLimit);
  return add(at_least(at_most(x, limit), lowest), set1(1.0f));
}

// cap tanh(x / cap).
AERIE_INLINE Floats soft_capped(Floats x, float cap) {
  return mul(set1(cap), tanh(div(x, set1(cap))));
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
