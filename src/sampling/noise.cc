#include "sampling/noise.h"

#include <bit>
#include <cassert>

namespace aerie {
namespace {

PhiloxKey philox_key(NoiseKey key) {
  return {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)};
}

PhiloxBlock philox_counter(NoiseKey key, NoiseStream stream, uint64_t a, uint32_t b) {
  assert(a < uint64_t{1} << 62);
  return {b >> 1, static_cast<uint32_t>(a),
          static_cast<uint32_t>(a >> 32) | (static_cast<uint32_t>(stream) << 30), key.choice};
}

}  // namespace

double noise_uniform(NoiseKey key, NoiseStream stream, uint64_t a, uint32_t b) {
  const PhiloxBlock block = philox4x32(philox_counter(key, stream, a, b), philox_key(key));
  return (b & 1) != 0 ? uniform53(block[2], block[3]) : uniform53(block[0], block[1]);
}

// x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); with s = f / (2 + f), log(1 + f) = 2 atanh(s)
// = 2s + s R, R = 2 (s^2/3 + s^4/5 + ...), whose first term is taken apart as f - f^2/2 + s f^2/2
// so that f enters exactly (the reduction of fdlibm's e_log.c, with the plain series: the first
// term left out is below 2^-60).
double noise_log(double x) {
  assert(x > 0);
  constexpr double kLn2Hi = 0x1.62e42feep-1;  // 32 bits: k * kLn2Hi is exact
  constexpr double kLn2Lo = 0x1.a39ef35793c76p-33;
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;  // the bits of sqrt(1/2)
  constexpr uint64_t kOne = 0x3ff0000000000000;

  int k = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    k = -54;
  }
  const uint64_t shifted = std::bit_cast<uint64_t>(x) + (kOne - kSqrtHalf);
  k += static_cast<int>(shifted >> 52) - 1023;
  const double f = std::bit_cast<double>((shifted & 0x000fffffffffffff) + kSqrtHalf) - 1.0;

  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = 2.0 / 23;
  for (int n = 21; n >= 3; n -= 2) series = series * z + 2.0 / n;
  series *= z;
  const double half_square = 0.5 * f * f;
  return k * kLn2Hi - ((half_square - (s * (half_square + series) + k * kLn2Lo)) - f);
}

double target_gumbel(NoiseKey key, uint64_t position, int32_t token) {
  return gumbel_of(
      noise_uniform(key, NoiseStream::kTarget, position, static_cast<uint32_t>(token)));
}

void target_noise_block(NoiseKey key, uint64_t position, int32_t first, uint32_t out[kNoiseBlock]) {
  assert(first % 2 == 0);
  philox_tops(philox_counter(key, NoiseStream::kTarget, position, static_cast<uint32_t>(first)),
              philox_key(key), std::span<uint32_t, kNoiseBlock>(out, kNoiseBlock));
}

}  // namespace aerie
