#include "kernels/simt/tensor_core.h"

#include <cmath>
#include <cstring>

#include "kernels/simt/numbers.h"

namespace simt {
namespace {

constexpr int kRows = 16, kColumns = 8, kInner = 16;
constexpr int16_t kZero = -4000;  // the exponent of 0: below all others, also in a sum of two

// The numbers as they are, the columns of a and of b one after another.
struct Operands {
  alignas(64) uint16_t a[kInner][kRows];
  alignas(64) uint16_t b[kColumns][kInner];
  alignas(64) float d[kColumns][kRows];
};

void gather(const MmaLane* const (&lanes)[32], Operands& o) {
  for (int g = 0; g < 8; ++g) {
#pragma GCC unroll 4
    for (int t = 0; t < 8; t += 2) {
      const MmaLane& l = *lanes[g * 4 + t / 2];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int row = g + i % 2 * 8, k = t + i / 2 * 8;
        o.a[k][row] = static_cast<uint16_t>(l.a[i]);
        o.a[k + 1][row] = static_cast<uint16_t>(l.a[i] >> 16);
        o.d[t + i % 2][g + i / 2 * 8] = l.d[i];
      }
      std::memcpy(&o.b[g][t], &l.b[0], 4);
      std::memcpy(&o.b[g][t + 8], &l.b[1], 4);
    }
  }
}

void scatter(const Operands& o, const MmaLane* const (&lanes)[32]) {
  for (int g = 0; g < 8; ++g) {
#pragma GCC unroll 4
    for (int t = 0; t < 8; t += 2) {
      float* d = lanes[g * 4 + t / 2]->d;
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) d[i] = o.d[t + i % 2][g + i / 2 * 8];
    }
  }
}

template <bool kBinary16>
struct Format {
  static constexpr int kBits = kBinary16 ? 10 : 7;  // of the fraction
  static constexpr int kTop = kBinary16 ? 31 : 255;
  static constexpr int kBias = kBinary16 ? 15 : 127;
};

// The exponent of a product's factor or of the addend; a subnormal number has that of the smallest
// normal one.
template <bool kBinary16>
int exponent_of(uint16_t h) {
  using F = Format<kBinary16>;
  const int field = h >> F::kBits & F::kTop;
  return (h & 0x7fff) == 0 ? kZero : (field == 0 ? 1 : field) - F::kBias;
}

int exponent_of(float f) {
  const int field = static_cast<int>(bits_of(f) >> 23 & 255);
  return (bits_of(f) & 0x7fffffff) == 0 ? kZero : (field == 0 ? 1 : field) - 127;
}

// A double that is a whole multiple of 2^(exponent of the sum's first bit - 30) or coarser, cut to
// binary32.
float cut(double sum) {
  if (sum == 0) return 0.0f;
  int exponent;
  const double significand = std::frexp(sum, &exponent);  // [0.5, 1)
  if (exponent > 128) return sum < 0 ? -INFINITY : INFINITY;
  const int bits = exponent < -125 ? 24 + exponent + 125 : 24;  // fewer if subnormal
  if (bits <= 0) return sum < 0 ? -0.0f : 0.0f;
  return static_cast<float>(std::ldexp(std::trunc(std::ldexp(significand, bits)), exponent - bits));
}

// One step for one element, whatever the numbers are.
template <bool kBinary16>
float any_step(const uint16_t (&a)[kInner][kRows], int row, const uint16_t (&b)[kInner], int first,
               const TensorCore& core, float c) {
  double products[kInner];
  double plain = c;
  int largest = exponent_of(c);
  for (int i = 0; i < core.terms; ++i) {
    const uint16_t x = a[first + i][row], y = b[first + i];
    products[i] = kBinary16 ? double{from_f16(x)} * double{from_f16(y)}
                            : double{from_bf16(x)} * double{from_bf16(y)};
    plain += products[i];
    const int e = exponent_of<kBinary16>(x) + exponent_of<kBinary16>(y);
    largest = e > largest ? e : largest;
  }
  if (!std::isfinite(plain)) {
    return std::isnan(plain) ? float_of(0x7fffffff) : static_cast<float>(plain);
  }
  if (largest < -1000) return 0.0f;
  // Multiples of 2^(largest - fraction), cut towards 0.
  const int up = core.fraction - largest;
  double sum = std::trunc(std::ldexp(double{c}, up));
  for (int i = 0; i < core.terms; ++i) sum += std::trunc(std::ldexp(products[i], up));
  return cut(std::ldexp(sum, -up));
}

template <bool kBinary16>
void any_column(Operands& o, int n, const TensorCore& core) {
  for (const uint16_t h : o.b[n]) {
    if ((h & 0x7fff) <= Format<kBinary16>::kTop << Format<kBinary16>::kBits) continue;
    for (float& d : o.d[n]) d = float_of(0x7fffffff);
    return;
  }
  for (int row = 0; row < kRows; ++row) {
    for (int first = 0; first < kInner; first += core.terms) {
      o.d[n][row] = any_step<kBinary16>(o.a, row, o.b[n], first, core, o.d[n][row]);
    }
  }
}

#define SIMT_INLINE inline __attribute__((always_inline))

// The numbers as vectors of kBytes see them.
struct Values {
  alignas(64) float a[kInner][kRows];
  alignas(64) float b[kColumns][kInner];
  alignas(64) int16_t a_exponent[kInner][kRows];
  alignas(64) int16_t b_exponent[kColumns][kInner];
};

// Whether all are finite.
template <bool kBinary16, int kCount>
SIMT_INLINE bool read(const uint16_t* numbers, float* values, int16_t* exponents) {
  using F = Format<kBinary16>;
  int16_t most = 0;
  for (int i = 0; i < kCount; ++i) {
    const uint16_t h = numbers[i];
    const auto field = static_cast<int16_t>(h >> F::kBits & F::kTop);
    most = field > most ? field : most;
    const auto e = static_cast<int16_t>(field + (field == 0 ? 1 : 0) - F::kBias);
    exponents[i] = (h & 0x7fff) == 0 ? kZero : e;
    if constexpr (kBinary16) {
      // Subnormal numbers become normal ones by the factor.
      const uint32_t size = static_cast<uint32_t>(h & 0x7fff) << 13;
      values[i] = float_of(size | static_cast<uint32_t>(h & 0x8000) << 16) * 0x1p112f;
    } else {
      values[i] = float_of(static_cast<uint32_t>(h) << 16);
    }
  }
  return most != F::kTop;
}

template <int kBytes>
struct VectorOf {
  static constexpr int kLanes = kBytes / 4;
  typedef float Floats __attribute__((vector_size(kBytes), may_alias));
  typedef int32_t Ints __attribute__((vector_size(kBytes), may_alias));
  typedef uint32_t Words __attribute__((vector_size(kBytes), may_alias));
  typedef int16_t Shorts __attribute__((vector_size(kBytes / 2), may_alias));
  typedef double Doubles __attribute__((vector_size(kBytes * 2), may_alias));
  typedef uint64_t Longs __attribute__((vector_size(kBytes * 2), may_alias));
};

// One step for the elements of a column from row `row` on. Every product is exact in binary32, or
// too small to count, while the largest exponents are in the range that is checked here; false if
// not.
template <int kBytes, int kTerms>
SIMT_INLINE bool fast_step(const Values& v, int n, int row, int first, int fraction, float* c) {
  using V = VectorOf<kBytes>;
  using Floats = typename V::Floats;
  using Ints = typename V::Ints;
  using Words = typename V::Words;
  using Shorts = typename V::Shorts;
  Shorts most = Shorts{} + static_cast<int16_t>(2 * kZero);
  for (int k = first; k < first + kTerms; ++k) {
    const Shorts e = *reinterpret_cast<const Shorts*>(&v.a_exponent[k][row]) + v.b_exponent[n][k];
    most = e > most ? e : most;
  }
  const auto addend = *reinterpret_cast<const Floats*>(c);
  const auto bits = reinterpret_cast<Words>(addend);
  const auto field = reinterpret_cast<Ints>(bits >> 23 & 255);
  const Ints normal = field == 0 ? Ints{} - 126 : field - 127;
  const Ints own = reinterpret_cast<Ints>(bits & 0x7fffffffu) == 0 ? Ints{} + kZero : normal;
  Ints e = __builtin_convertvector(most, Ints);
  e = own > e ? own : e;
  e = e < -1000 ? Ints{} : e;  // nothing but zeros
  const Ints outside = (e < -96) | (e > 116);
  int32_t any[V::kLanes];
  std::memcpy(any, &outside, sizeof any);
  int32_t some = 0;
  for (const int32_t one : any) some |= one;
  if (some != 0) return false;
  const auto scale = reinterpret_cast<Floats>((fraction - e + 127) << 23);
  // Two sums, of which neither exceeds 32 bits: a product is below 2^(fraction + 2).
  Ints low{}, high = __builtin_convertvector(addend * scale, Ints);
  for (int k = first; k < first + kTerms; k += 2) {
    low += __builtin_convertvector(
        *reinterpret_cast<const Floats*>(&v.a[k][row]) * v.b[n][k] * scale, Ints);
    high += __builtin_convertvector(
        *reinterpret_cast<const Floats*>(&v.a[k + 1][row]) * v.b[n][k + 1] * scale, Ints);
  }
  // 24 bits are left, and it is in units of 1 / scale.
  const auto unit = reinterpret_cast<Floats>((e - fraction + 127) << 23);
  for (int half = 0; half < 2; ++half) {
    using Half = VectorOf<kBytes / 2>;
    using Doubles = typename Half::Doubles;
    const auto part = [half](const auto& whole, auto& into) {
      std::memcpy(&into, reinterpret_cast<const char*>(&whole) + half * sizeof into, sizeof into);
    };
    typename Half::Ints a, b;
    typename Half::Floats u;
    part(low, a);
    part(high, b);
    part(unit, u);
    const Doubles sum = __builtin_convertvector(a, Doubles) + __builtin_convertvector(b, Doubles);
    const auto kept = reinterpret_cast<Doubles>(reinterpret_cast<typename Half::Longs>(sum) &
                                                ~uint64_t{0x1fffffff});
    const typename Half::Floats result = __builtin_convertvector(kept, typename Half::Floats) * u;
    std::memcpy(c + half * Half::kLanes, &result, sizeof result);
  }
  return true;
}

template <bool kBinary16, int kTerms, int kBytes>
SIMT_INLINE void product(const MmaLane* const (&lanes)[32], int fraction) {
  Operands o;
  gather(lanes, o);
  Values v;
  const bool finite = read<kBinary16, kInner * kRows>(o.a[0], v.a[0], v.a_exponent[0]);
  for (int n = 0; n < kColumns; ++n) {
    alignas(64) float c[kRows];
    std::memcpy(c, o.d[n], sizeof c);
    // Columns that nobody looks at are often no numbers: the others are no slower for it.
    bool fast = read<kBinary16, kInner>(o.b[n], v.b[n], v.b_exponent[n]) && finite;
    for (int first = 0; fast && first < kInner; first += kTerms) {
      for (int row = 0; fast && row < kRows; row += kBytes / 4) {
        fast = fast_step<kBytes, kTerms>(v, n, row, first, fraction, c + row);
      }
    }
    if (fast) {
      std::memcpy(o.d[n], c, sizeof c);
    } else {
      any_column<kBinary16>(o, n, {kTerms, fraction});
    }
  }
  scatter(o, lanes);
}

template <int kBytes>
SIMT_INLINE void any_product(const MmaLane* const (&lanes)[32], bool binary16,
                             const TensorCore& core) {
  const int fraction = core.fraction;
  if (core.terms == 8) {
    binary16 ? product<true, 8, kBytes>(lanes, fraction)
             : product<false, 8, kBytes>(lanes, fraction);
  } else {
    binary16 ? product<true, 16, kBytes>(lanes, fraction)
             : product<false, 16, kBytes>(lanes, fraction);
  }
}

using Product = void (*)(const MmaLane* const (&)[32], bool, const TensorCore&);

void product_16(const MmaLane* const (&lanes)[32], bool binary16, const TensorCore& core) {
  any_product<16>(lanes, binary16, core);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void product_32(const MmaLane* const (&lanes)[32], bool binary16,
                                                const TensorCore& core) {
  any_product<32>(lanes, binary16, core);
}
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void product_64(
    const MmaLane* const (&lanes)[32], bool binary16, const TensorCore& core) {
  any_product<64>(lanes, binary16, core);
}
#endif

Product best_product() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return product_64;
  }
  if (__builtin_cpu_supports("avx2")) return product_32;
#endif
  return product_16;
}

}  // namespace

void warp_mma(const MmaLane* const (&lanes)[32], bool binary16, const TensorCore& core) {
  static const Product product_here = best_product();
  product_here(lanes, binary16, core);
}

}  // namespace simt
