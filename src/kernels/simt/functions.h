// Functions of kernels, made of what rounds once, so that every compiler gives the same bits (but
// for which NaN a NaN becomes). Included by simt.h alone. The polynomials are minimax fits of this
// project's own; the bounds in their last places are those that the tests hold them to.
#pragma once

namespace simt {

// The second of two of which one is no number, or that are equal.
SIMT_DEV float min(float a, float b) {
  return a < b ? a : b;
}
SIMT_DEV float max(float a, float b) {
  return a > b ? a : b;
}

// 2^n of a whole number -126 ... 127.
SIMT_DEV float power_of_two(int n) {
  return float_of(static_cast<uint32_t>(n + 127) << 23);
}

SIMT_DEV float absolute(float x) {
  return float_of(bits_of(x) & 0x7fffffffu);
}

// `size` with the sign of `x`.
SIMT_DEV float signed_like(float size, float x) {
  return float_of((bits_of(size) & 0x7fffffffu) | (bits_of(x) & 0x80000000u));
}

// e^x, within a unit in the last place; subnormal results are kept.
SIMT_DEV float exp(float x) {
  // Beyond these the result is 0 or infinite; NaN passes.
  x = x < -105.0f ? -105.0f : x;
  x = x > 90.0f ? 90.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: its last bit is worth 1
  const float turned = fma(x, 0x1.715476p+0f, kRound);
  const float n = turned - kRound;
  // ln 2 in two parts, the first with zeros at its end.
  float r = fma(n, -0x1.62e4p-1f, x);
  r = fma(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6a1a9cp-10f;
  p = fma(p, r, 0x1.123fc6p-7f);
  p = fma(p, r, 0x1.555916p-5f);
  p = fma(p, r, 0x1.55548ap-3f);
  p = fma(p, r, 0x1.fffffcp-2f);
  p = fma(p, r * r, r) + 1.0f;
  // In two steps, as 2^n itself may be no number or subnormal. Unsigned, as a NaN may be anything.
  const uint32_t whole = bits_of(turned) - bits_of(kRound);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(whole) >> 1);
  return p * float_of((half + 127u) << 23) * float_of((whole - half + 127u) << 23);
}

// The logarithm of 1 + x, of 0 to 1, within 2 units in the last place.
SIMT_DEV float log_1p(float x) {
  // Of s = x / (2 + x) it is 2 (s + s^3 / 3 + s^5 / 5 ...).
  const float s = divide(x, 2.0f + x);
  const float square = s * s;
  float p = 0x1.1e97b8p-3f;
  p = fma(p, square, 0x1.1ecc32p-3f);
  p = fma(p, square, 0x1.99d0e8p-3f);
  p = fma(p, square, 0x1.555504p-2f);
  return 2.0f * fma(p * square, s, s);
}

// Within 2 units in the last place.
SIMT_DEV float tanh(float x) {
  const float size = absolute(x);
  if (size < 0.625f) {
    const float s = x * x;
    float p = -0x1.780a3ep-8f;
    p = fma(p, s, 0x1.52b064p-6f);
    p = fma(p, s, -0x1.b8547cp-5f);
    p = fma(p, s, 0x1.110802p-3f);
    p = fma(p, s, -0x1.555538p-2f);
    return signed_like(fma(p * s, size, size), x);
  }
  return signed_like(1.0f - divide(2.0f, exp(2.0f * size) + 1.0f), x);
}

// Within 2 units in the last place.
SIMT_DEV float erf(float x) {
  const float size = absolute(x);
  if (size < 0.9375f) {
    const float s = x * x;
    float p = 0x1.5ac35cp-14f;
    p = fma(p, s, -0x1.a99f02p-11f);
    p = fma(p, s, 0x1.54b5e6p-8f);
    p = fma(p, s, -0x1.b80cb4p-6f);
    p = fma(p, s, 0x1.ce2df4p-4f);
    p = fma(p, s, -0x1.812742p-2f);
    p = fma(p, s, 0x1.06eba8p-3f);
    return fma(p, x, x);
  }
  if (size > 3.95f) return signed_like(1.0f, x);
  // The logarithm of 1 - erf.
  float p = -0x1.63fac4p-16f;
  p = fma(p, size, 0x1.c90f3ep-12f);
  p = fma(p, size, -0x1.11ceaap-8f);
  p = fma(p, size, 0x1.9bdae2p-6f);
  p = fma(p, size, -0x1.bba17ap-4f);
  p = fma(p, size, -0x1.4442aep-1f);
  p = fma(p, size, -0x1.2128bap+0f);
  p = fma(p, size, 0x1.73e684p-13f);
  return signed_like(1.0f - exp(p), x);
}

}  // namespace simt
