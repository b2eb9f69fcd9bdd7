// The exponential of the vector kernels, written over the sixteen lanes of simd_*.h.
#pragma once

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

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
