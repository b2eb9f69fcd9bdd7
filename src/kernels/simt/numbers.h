// Narrow floating-point numbers as CUDA converts them, in plain C++. NaNs become CUDA's own.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace simt {

inline uint32_t bits_of(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

// To the nearest, ties to even.
inline uint16_t to_bf16(float f) {
  const uint32_t u = bits_of(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

inline float from_bf16(uint16_t h) {
  return float_of(uint32_t{h} << 16);
}

inline uint16_t to_f16(float f) {
  const uint32_t u = bits_of(f);
  const uint32_t sign = u >> 16 & 0x8000;
  const uint32_t size = u & 0x7fffffff;
  if (size > 0x7f800000u) return 0x7fff;
  if (size >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and above
  if (size < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves multiples of 2^-24 in the last bits, rounded as asked.
    return static_cast<uint16_t>(sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((size - 0x38000000u + 0xfff + (size >> 13 & 1)) >> 13));
}

inline float from_f16(uint16_t h) {
  const uint32_t sign = uint32_t{h} >> 15 << 31;
  const uint32_t size = h & 0x7fffu;
  if (size > 0x7c00) return float_of(0x7fffffff);
  if (size == 0x7c00) return float_of(sign | 0x7f800000u);
  if (size < 0x400) {
    return float_of(sign | bits_of(static_cast<float>(size) * 0x1p-24f));
  }
  return float_of(sign | ((size << 13) + 0x38000000u));
}

inline uint32_t pack_f16(float low, float high) {
  return to_f16(low) | static_cast<uint32_t>(to_f16(high)) << 16;
}

inline uint32_t pack_bf16(float low, float high) {
  return to_bf16(low) | static_cast<uint32_t>(to_bf16(high)) << 16;
}

// A sum of two of eight bits each, rounded to 24 bits and then to eight, is as if rounded once.
inline uint32_t add_bf16x2(uint32_t a, uint32_t b) {
  return pack_bf16(float_of(a << 16) + float_of(b << 16),
                   float_of(a & 0xffff0000u) + float_of(b & 0xffff0000u));
}

inline uint32_t sub_bf16x2(uint32_t a, uint32_t b) {
  return pack_bf16(float_of(a << 16) - float_of(b << 16),
                   float_of(a & 0xffff0000u) - float_of(b & 0xffff0000u));
}

// A product of two of eight bits each has sixteen, which a float holds, unless it is subnormal and
// not exact.
inline uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  return pack_bf16(float_of(a << 16) * float_of(b << 16),
                   float_of(a & 0xffff0000u) * float_of(b & 0xffff0000u));
}

// Rounded twice, to 24 bits and to eight: as if once where the first is exact.
inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  return pack_bf16(
      std::fma(float_of(a << 16), float_of(b << 16), float_of(c << 16)),
      std::fma(float_of(a & 0xffff0000u), float_of(b & 0xffff0000u), float_of(c & 0xffff0000u)));
}

}  // namespace simt
