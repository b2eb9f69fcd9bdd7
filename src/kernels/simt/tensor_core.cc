#include "kernels/simt/tensor_core.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/simt/numbers.h"

namespace simt {
namespace {

constexpr int kRows = 16, kColumns = 8, kInner = 16;
constexpr int kZero = -4000;  // the exponent of 0: below all others, also in a sum of two

// Numbers as the products see them: value, exponent (of a subnormal: that of the smallest normal).
struct Operands {
  float a[kRows][kInner], b[kInner][kColumns];
  int16_t a_exponent[kRows][kInner], b_exponent[kInner][kColumns];
  bool finite = true;
};

template <bool kBinary16>
struct Format {
  static constexpr int kBits = kBinary16 ? 10 : 7;  // of the fraction
  static constexpr int kTop = kBinary16 ? 31 : 255;
  static constexpr int kBias = kBinary16 ? 15 : 127;
};

template <bool kBinary16>
inline __attribute__((always_inline)) bool read_number(uint32_t h, float& value,
                                                       int16_t& exponent) {
  using F = Format<kBinary16>;
  const int field = static_cast<int>(h >> F::kBits & F::kTop);
  value = kBinary16 ? from_f16(static_cast<uint16_t>(h)) : float_of(h << 16);
  exponent = static_cast<int16_t>((h & 0x7fff) == 0 ? kZero : (field == 0 ? 1 : field) - F::kBias);
  return field != F::kTop;
}

template <bool kBinary16>
inline __attribute__((always_inline)) void read(const MmaLane* const (&lanes)[32], Operands& o) {
  bool finite = true;
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = 2 * (lane % 4);
    for (int i = 0; i < 8; ++i) {
      const int row = g + i / 2 % 2 * 8, k = t + i / 4 * 8 + i % 2;
      finite &= read_number<kBinary16>(lanes[lane]->a[i / 2] >> (16 * (i % 2)) & 0xffff,
                                       o.a[row][k], o.a_exponent[row][k]);
    }
    for (int i = 0; i < 4; ++i) {
      const int k = t + i / 2 * 8 + i % 2;
      finite &= read_number<kBinary16>(lanes[lane]->b[i / 2] >> (16 * (i % 2)) & 0xffff, o.b[k][g],
                                       o.b_exponent[k][g]);
    }
  }
  o.finite = finite;
}

int exponent_of(float f) {
  const int field = static_cast<int>(bits_of(f) >> 23 & 255);
  return (bits_of(f) & 0x7fffffff) == 0 ? kZero : (field == 0 ? 1 : field) - 127;
}

// One step for one element, whatever the numbers are.
float any_step(const Operands& o, int row, int column, int first, int terms, int fraction,
               float c) {
  int largest = exponent_of(c);
  double plain = c;
  for (int k = first; k < first + terms; ++k) {
    const int e = o.a_exponent[row][k] + o.b_exponent[k][column];
    largest = e > largest ? e : largest;
    plain += double{o.a[row][k]} * double{o.b[k][column]};
  }
  if (!o.finite || !std::isfinite(c)) {
    return std::isnan(plain) ? float_of(0x7fffffff) : static_cast<float>(plain);
  }
  if (largest < -1000) return 0.0f;
  // Multiples of 2^(largest - fraction), cut towards 0.
  int64_t sum = static_cast<int64_t>(std::ldexp(double{c}, fraction - largest));
  for (int k = first; k < first + terms; ++k) {
    const double product = double{o.a[row][k]} * double{o.b[k][column]};
    sum += static_cast<int64_t>(std::ldexp(product, fraction - largest));
  }
  if (sum == 0) return 0.0f;
  int exponent;
  const double significand = std::frexp(static_cast<double>(sum), &exponent);  // [0.5, 1)
  exponent += largest - fraction;
  if (exponent > 128) return sum < 0 ? -INFINITY : INFINITY;
  const int bits = exponent < -125 ? 24 + exponent + 125 : 24;  // fewer if subnormal
  if (bits <= 0) return sum < 0 ? -0.0f : 0.0f;
  return static_cast<float>(std::ldexp(std::trunc(std::ldexp(significand, bits)), exponent - bits));
}

// 2^e as a double.
inline __attribute__((always_inline)) double power(int e) {
  const uint64_t bits = static_cast<uint64_t>(e + 1023) << 52;
  double d;
  std::memcpy(&d, &bits, sizeof d);
  return d;
}

// One step for the eight elements of a row. Every product is exact in binary32, or too small to
// count, while the largest exponents are in the range that is checked here. The loops over columns
// become vectors.
template <int kTerms>
inline __attribute__((always_inline)) bool fast_step(const Operands& o, int row, int first,
                                                     int fraction, float (&c)[kColumns]) {
  int16_t largest[kColumns];
  for (int n = 0; n < kColumns; ++n) largest[n] = kZero * 2;
  for (int k = first; k < first + kTerms; ++k) {
    const int16_t ea = o.a_exponent[row][k];
    for (int n = 0; n < kColumns; ++n) {
      const auto e = static_cast<int16_t>(ea + o.b_exponent[k][n]);
      largest[n] = e > largest[n] ? e : largest[n];
    }
  }
  float scale[kColumns];
  double unit[kColumns];
  bool inside = true;
  for (int n = 0; n < kColumns; ++n) {
    const int ec = exponent_of(c[n]);
    int e = ec > largest[n] ? ec : largest[n];
    e = e < -1000 ? 0 : e;  // nothing but zeros
    inside &= e >= -96 && e <= 116;
    scale[n] = float_of(static_cast<uint32_t>(fraction - e + 127) << 23);
    unit[n] = power(e - fraction);
  }
  if (!inside) return false;
  // Two sums, of which neither exceeds 32 bits: a product is below 2^(fraction + 2).
  int32_t low[kColumns] = {}, high[kColumns];
  for (int n = 0; n < kColumns; ++n) high[n] = static_cast<int32_t>(c[n] * scale[n]);
  for (int k = first; k < first + kTerms; k += 2) {
    const float a0 = o.a[row][k], a1 = o.a[row][k + 1];
    for (int n = 0; n < kColumns; ++n) {
      low[n] += static_cast<int32_t>(a0 * o.b[k][n] * scale[n]);
      high[n] += static_cast<int32_t>(a1 * o.b[k + 1][n] * scale[n]);
    }
  }
  for (int n = 0; n < kColumns; ++n) {
    const double sum = (static_cast<double>(low[n]) + static_cast<double>(high[n])) * unit[n];
    uint64_t bits;
    std::memcpy(&bits, &sum, sizeof bits);
    bits &= ~uint64_t{0x1fffffff};  // 24 bits are left
    double cut;
    std::memcpy(&cut, &bits, sizeof cut);
    c[n] = static_cast<float>(cut);
  }
  return true;
}

template <bool kBinary16, int kTerms>
inline __attribute__((always_inline)) void product(const MmaLane* const (&lanes)[32],
                                                   int fraction) {
  Operands o;
  read<kBinary16>(lanes, o);
  for (int row = 0; row < kRows; ++row) {
    float c[kColumns];
    const int g = row % 8, half = row / 8 * 2;
    for (int n = 0; n < kColumns; ++n) c[n] = lanes[g * 4 + n / 2]->d[half + n % 2];
    for (int first = 0; first < kInner; first += kTerms) {
      if (o.finite && fast_step<kTerms>(o, row, first, fraction, c)) continue;
      for (int n = 0; n < kColumns; ++n) {
        c[n] = any_step(o, row, n, first, kTerms, fraction, c[n]);
      }
    }
    for (int n = 0; n < kColumns; ++n) lanes[g * 4 + n / 2]->d[half + n % 2] = c[n];
  }
}

inline __attribute__((always_inline)) void any_product(const MmaLane* const (&lanes)[32],
                                                       bool binary16, const TensorCore& core) {
  if (core.terms == 8) {
    binary16 ? product<true, 8>(lanes, core.fraction) : product<false, 8>(lanes, core.fraction);
  } else {
    binary16 ? product<true, 16>(lanes, core.fraction) : product<false, 16>(lanes, core.fraction);
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void product_avx2(const MmaLane* const (&lanes)[32], bool binary16,
                                                  const TensorCore& core) {
  any_product(lanes, binary16, core);
}
#endif
void product_plain(const MmaLane* const (&lanes)[32], bool binary16, const TensorCore& core) {
  any_product(lanes, binary16, core);
}

}  // namespace

void warp_mma(const MmaLane* const (&lanes)[32], bool binary16, const TensorCore& core) {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) {
    product_avx2(lanes, binary16, core);
    return;
  }
#endif
  product_plain(lanes, binary16, core);
}

}  // namespace simt
