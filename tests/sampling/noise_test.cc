#include "sampling/noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>

#include "tests/verify/chi_square.h"

namespace aerie::noise_test {

TEST(Noise, LayoutIsThatOfTheHeader) {
  const NoiseKey key{0x0123456789abcdef, 7};
  const uint64_t position = 0x2'0000'0005;
  const PhiloxKey seed{0x89abcdef, 0x01234567};
  const PhiloxBlock target = philox4x32({21, 5, 2, 7}, seed);
  EXPECT_EQ(noise_uniform(key, NoiseStream::kTarget, position, 42),
            uniform53(target[0], target[1]));
  EXPECT_EQ(noise_uniform(key, NoiseStream::kTarget, position, 43),
            uniform53(target[2], target[3]));
  const PhiloxBlock accept = philox4x32({21, 5, 2 | 0x80000000, 7}, seed);
  EXPECT_EQ(noise_uniform(key, NoiseStream::kAccept, position, 42),
            uniform53(accept[0], accept[1]));
}

TEST(Noise, NoTwoDrawsShareANumber) {
  std::set<double> seen;
  size_t draws = 0;
  for (const uint64_t seed : {0ull, 1ull, 1ull << 32}) {
    for (const uint32_t choice : {0u, 1u}) {
      for (uint32_t stream = 0; stream < 4; ++stream) {
        for (const uint64_t a : {0ull, 1ull, 2ull, 1ull << 32, (1ull << 62) - 1}) {
          for (const uint32_t b : {0u, 1u, 2u, 3u, 1u << 16, 2u << 16, 0x7fffffffu, ~0u}) {
            seen.insert(noise_uniform({seed, choice}, static_cast<NoiseStream>(stream), a, b));
            ++draws;
          }
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), draws);
}

// The same bits on every machine: these were computed once and may never change.
TEST(Noise, GoldenBits) {
  EXPECT_EQ(noise_uniform({0, 0}, NoiseStream::kTarget, 0, 0), 0x1.989fa35785a72p-2);
  EXPECT_EQ(noise_uniform({0, 0}, NoiseStream::kTarget, 0, 1), 0x1.78af58993601bp-1);
  EXPECT_EQ(target_gumbel({0, 0}, 0, 0), 0x1.5b6c7ad999345p-4);
  EXPECT_EQ(target_gumbel({0, 0}, 0, 1), 0x1.2e62009252641p+0);
  EXPECT_EQ(target_gumbel({12345, 3}, 678, 49151), -0x1.7e52630e5bbc3p-1);
  EXPECT_EQ(noise_log(0x1p-53), -0x1.25e4f7b2737fap+5);
  EXPECT_EQ(noise_log(10.0), 0x1.26bb1bbb55516p+1);
}

TEST(Noise, BlockAgreesWithSingleDraws) {
  const NoiseKey key{99, 2};
  for (const int32_t first : {0, 64, 4096, 262080}) {
    uint32_t tops[kNoiseBlock];
    target_noise_block(key, 17, first, tops);
    for (int i = 0; i < kNoiseBlock; ++i) {
      const double u =
          noise_uniform(key, NoiseStream::kTarget, 17, static_cast<uint32_t>(first + i));
      EXPECT_EQ(tops[i], static_cast<uint32_t>(u * 0x1p32));
    }
  }
}

double ulps_off(double x) {
  const double computed = noise_log(x);
  const long double exact = std::log(static_cast<long double>(x));
  const double nearest = static_cast<double>(exact);
  const double ulp = std::nextafter(std::abs(nearest), HUGE_VAL) - std::abs(nearest);
  return static_cast<double>(std::abs(static_cast<long double>(computed) - exact) / ulp);
}

TEST(NoiseLog, IsWithinOneUlp) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    const double u = uniform53(static_cast<uint32_t>(random()), static_cast<uint32_t>(random()));
    worst = std::max(worst, ulps_off(u));
    worst = std::max(worst, ulps_off(-noise_log(u)));
    worst = std::max(worst, ulps_off(1 + std::ldexp(uniform(random) - 0.5, -(i % 52))));
    worst = std::max(worst, ulps_off(std::ldexp(1 + uniform(random), i % 2000 - 1000)));
  }
  EXPECT_LT(worst, 1.0);
}

TEST(NoiseLog, SpecialPoints) {
  EXPECT_EQ(noise_log(1.0), 0.0);
  EXPECT_LT(ulps_off(0x1p-53), 1.0);
  EXPECT_LT(ulps_off(1 - 0x1p-53), 1.0);
  EXPECT_LT(ulps_off(1 + 0x1p-52), 1.0);
  EXPECT_LT(ulps_off(0x1p-1074), 1.0);
  EXPECT_LT(ulps_off(0x1.fffffffffffffp+1023), 1.0);
  EXPECT_LT(ulps_off(std::sqrt(0.5)), 1.0);
  EXPECT_LT(gumbel_of(1 - 0x1p-53), kMaxGumbel);
  EXPECT_GT(gumbel_of(0x1p-53), -3.7);
}

// Uniform over tokens, over positions and over seeds.
TEST(Noise, IsUniform) {
  constexpr size_t kCells = 64;
  for (int axis = 0; axis < 5; ++axis) {
    stats::ChiSquareTest test(std::vector<double>(kCells, 1.0 / kCells));
    for (int64_t i = 0; i < test.samples(); ++i) {
      const uint32_t n = static_cast<uint32_t>(i);
      const double u = axis == 0   ? noise_uniform({5, 0}, NoiseStream::kTarget, 9, n)
                       : axis == 1 ? noise_uniform({5, 0}, NoiseStream::kTarget, n, 9)
                       : axis == 2 ? noise_uniform({n, 0}, NoiseStream::kTarget, 9, 9)
                       : axis == 3
                           ? noise_uniform({5, n}, NoiseStream::kDraft, 9, 9)
                           : noise_uniform({n / 3, 0}, NoiseStream::kAccept, 100, (n % 3) << 16);
      test.add(static_cast<size_t>(u * kCells));
    }
    EXPECT_FALSE(test.result().rejected) << axis;
  }
}

// Neighbouring draws, and the same draw in two streams, are independent: pairs fill a square
// evenly.
TEST(Noise, PairsAreIndependent) {
  constexpr size_t kSide = 8;
  for (int pair = 0; pair < 3; ++pair) {
    stats::ChiSquareTest test(std::vector<double>(kSide * kSide, 1.0 / (kSide * kSide)));
    for (int64_t i = 0; i < test.samples(); ++i) {
      const uint64_t n = static_cast<uint64_t>(i);
      const double u = noise_uniform({3, 0}, NoiseStream::kTarget, n, 6);
      const double v = pair == 0   ? noise_uniform({3, 0}, NoiseStream::kTarget, n, 7)
                       : pair == 1 ? noise_uniform({3, 0}, NoiseStream::kTarget, n + 1, 6)
                                   : noise_uniform({3, 0}, NoiseStream::kResidual, n, 6);
      test.add(static_cast<size_t>(u * kSide) * kSide + static_cast<size_t>(v * kSide));
    }
    EXPECT_FALSE(test.result().rejected) << pair;
  }
}

TEST(PhiloxTops, ManyBlocksAreThoseOfEach) {
  for (const PhiloxBlock counter : {PhiloxBlock{0, 0, 0, 0}, PhiloxBlock{7, 8, 9, 10},
                                    PhiloxBlock{0xffffffe0, 0xffffffff, 0x80000001, 0xfffffffe}}) {
    for (const PhiloxKey key : {PhiloxKey{0, 0}, PhiloxKey{0xffffffff, 0x9e3779b9}}) {
      std::array<uint32_t, kPhiloxTops> tops;
      philox_tops(counter, key, tops);
      for (uint32_t i = 0; i < kPhiloxTops / 2; ++i) {
        const PhiloxBlock one =
            philox4x32({counter[0] + i, counter[1], counter[2], counter[3]}, key);
        EXPECT_EQ(tops[2 * i], one[0]) << i;
        EXPECT_EQ(tops[2 * i + 1], one[2]) << i;
      }
    }
  }
}

}  // namespace aerie::noise_test
