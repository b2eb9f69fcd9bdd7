// From a matrix's codes to fragments of a tensor core's product: one for each MatrixKind.
//
// A product step takes 16 outputs by 16 of k. Of 32 of k, lane (g, t) of a warp, g = lane / 4, t =
// lane % 4, holds for outputs g and g + 8 those from 8 t on, 4 of them in each of two steps; the
// activations' lanes the same of k for row g, which so are 16 bytes as they lie in memory. kQ6K,
// whose scales are for 16 of k, has in each step 4 from 4 t on of 16.
#pragma once

#include <cstdint>

#include "kernels/device/device.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

using Fragment = uint32_t[4];  // of weights: outputs g, g + 8; then the same of 2 more of k

// What all kinds have: bytes of codes and scales of a panel and 64 of k, and of its supers.
template <int kCodes, int kScales, int kSupers, bool kSixteens>
struct Sizes {
  static constexpr int kCodeBytes = kCodes;
  static constexpr int kScaleBytes = kScales;
  static constexpr int kSuperBytes = kSupers;
  static constexpr bool kGroupsOf16 = kSixteens;
};

// 128 + code and 256 as bfloat16, whose last bit counts 1 (2) there: differences are exact.
inline constexpr uint32_t kOneByOne = 0x43004300u;

template <MatrixKind kKind>
struct Unpack;

// Weights as they are: no scales, one chain of sums.
template <>
struct Unpack<MatrixKind::kBf16> : Sizes<2048, 0, 0, false> {
  static constexpr int kTerms = 1;
  SIMT_DEV static void step(const unsigned char* codes, int step, int lane, Fragment& a, int) {
    const uint4 v = *reinterpret_cast<const uint4*>(codes + step * 512 + lane * 16);
    a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
  }
};

template <>
struct Unpack<MatrixKind::kBf16x2> : Sizes<4096, 0, 0, false> {
  static constexpr int kTerms = 2;
  SIMT_DEV static void step(const unsigned char* codes, int step, int lane, Fragment& a, int term) {
    const uint4 v = *reinterpret_cast<const uint4*>(codes + (step * 2 + term) * 512 + lane * 16);
    a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
  }
};

// Of nibble i of each half of a word: element i of the fragment.
SIMT_DEV uint32_t word_of(const unsigned char* codes, int step, int lane) {
  return *reinterpret_cast<const uint32_t*>(codes + lane * 16 + step * 4);
}

template <>
struct Unpack<MatrixKind::kQ4> : Sizes<512, 64, 0, false> {
  static constexpr int kTerms = 1;
  SIMT_DEV static void step(const unsigned char* codes, int step, int lane, Fragment& a, int) {
    const uint32_t w = word_of(codes, step, lane);
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      a[i] = simt::sub_bf16x2((w >> 4 * i & 0x000f000fu) | kOneByOne, 0x43084308u);  // 136
    }
  }
  // Of outputs g and g + 8 for group 0 or 1.
  SIMT_DEV static float2 scale(const unsigned char* scales, uint2, int group, int lane) {
    const uint2 v = *reinterpret_cast<const uint2*>(scales + lane / 4 * 8);
    const uint32_t both = group == 0 ? v.x : v.y;
    return {simt::from_f16(static_cast<uint16_t>(both)),
            simt::from_f16(static_cast<uint16_t>(both >> 16))};
  }
};

template <>
struct Unpack<MatrixKind::kQ4K> : Sizes<512, 64, 64, false> {
  static constexpr int kTerms = 1;
  SIMT_DEV static void step(const unsigned char* codes, int step, int lane, Fragment& a, int) {
    const uint32_t w = word_of(codes, step, lane);
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      a[i] = simt::sub_bf16x2((w >> 4 * i & 0x000f000fu) | kOneByOne, kOneByOne);
    }
  }
};

template <>
struct Unpack<MatrixKind::kQ8> : Sizes<1024, 64, 0, false> {
  static constexpr int kTerms = 1;
  // Bytes of a word: two of k for output g, then for g + 8; of the second word: of 2 more of k.
  SIMT_DEV static void step(const unsigned char* codes, int step, int lane, Fragment& a, int) {
    const uint2 v =
        *reinterpret_cast<const uint2*>(codes + step / 2 * 512 + lane * 16 + step % 2 * 8);
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t w = (i < 2 ? v.x : v.y) >> 8 * (i % 2);
      // 7 bits, less 128 where the sign is set: 128 + bits less 128 or 256.
      a[i] = simt::sub_bf16x2((w & 0x007f007fu) | kOneByOne, (w & 0x00800080u) | kOneByOne);
    }
  }
  SIMT_DEV static float2 scale(const unsigned char* scales, uint2 super, int group, int lane) {
    return Unpack<MatrixKind::kQ4>::scale(scales, super, group, lane);
  }
};

template <>
struct Unpack<MatrixKind::kQ6K> : Sizes<768, 64, 32, true> {
  static constexpr int kTerms = 1;
  SIMT_DEV static void step(const unsigned char* codes, int step, int lane, Fragment& a, int) {
    const uint32_t w = word_of(codes, step, lane);
    // Two bits each, of two steps in a word.
    const uint32_t high =
        *reinterpret_cast<const uint32_t*>(codes + 512 + lane * 8 + step / 2 * 4) >> 8 * (step % 2);
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t code = (w >> 4 * i & 0x000f000fu) | (high >> 2 * i << 4 & 0x00300030u);
      a[i] = simt::sub_bf16x2(code | kOneByOne, 0x43204320u);  // 160
    }
  }
  // Of outputs g and g + 8 for 16 of k.
  SIMT_DEV static float2 scale(const unsigned char* scales, uint2 super, int step, int lane) {
    const uint2 v = *reinterpret_cast<const uint2*>(scales + lane / 4 * 8);
    const uint32_t both = (step < 2 ? v.x : v.y) >> 16 * (step % 2);
    const float first = static_cast<float>(static_cast<int8_t>(both));
    const float second = static_cast<float>(static_cast<int8_t>(both >> 8));
    return {simt::from_f16(static_cast<uint16_t>(super.x)) * first,
            simt::from_f16(static_cast<uint16_t>(super.x >> 16)) * second};
  }
};

// Scale and minimum of outputs g and g + 8.
struct ScaleAndMin {
  float2 scale, min;
};
SIMT_DEV ScaleAndMin q4k_scale(const unsigned char* scales, uint2 super, int group, int lane) {
  const uint2 v = *reinterpret_cast<const uint2*>(scales + lane / 4 * 8);
  const uint32_t s = v.x >> 16 * group, m = v.y >> 16 * group;
  const float d0 = simt::from_f16(static_cast<uint16_t>(super.x));
  const float d1 = simt::from_f16(static_cast<uint16_t>(super.x >> 16));
  const float m0 = simt::from_f16(static_cast<uint16_t>(super.y));
  const float m1 = simt::from_f16(static_cast<uint16_t>(super.y >> 16));
  return {{d0 * static_cast<float>(s & 255u), d1 * static_cast<float>(s >> 8 & 255u)},
          {m0 * static_cast<float>(m & 255u), m1 * static_cast<float>(m >> 8 & 255u)}};
}

// One panel's product with 64 of k of a tile of 8 rows each: sums += weights x activations.
// `b`: of 32 of k, [tile][4].
template <MatrixKind kKind, int kTiles>
struct Panel {
  using U = Unpack<kKind>;

  // Half a step (32 of k), in the order of k.
  SIMT_DEV static void add(const unsigned char* codes, const unsigned char* scales, uint2 super,
                           int half, int lane, const uint32_t (&b)[kTiles][4],
                           float (&sums)[kTiles][4]) {
    if constexpr (U::kScaleBytes == 0) {
      add_plain(codes, half, lane, b, sums);
    } else if constexpr (U::kGroupsOf16) {
      add_sixteens(codes, scales, super, half, lane, b, sums);
    } else {
      add_scaled(codes, scales, super, half, lane, b, sums);
    }
  }

 private:
  SIMT_DEV static void add_plain(const unsigned char* codes, int half, int lane,
                                 const uint32_t (&b)[kTiles][4], float (&sums)[kTiles][4]) {
    SIMT_UNROLL
    for (int s = 0; s < 2; ++s) {
      SIMT_UNROLL
      for (int term = 0; term < U::kTerms; ++term) {
        Fragment a;
        U::step(codes, half * 2 + s, lane, a, term);
        SIMT_UNROLL
        for (int i = 0; i < kTiles; ++i) {
          const uint32_t x[2] = {b[i][2 * s], b[i][2 * s + 1]};
          simt::mma_bf16(sums[i], a, x);
        }
      }
    }
  }

  SIMT_DEV static void add_scaled(const unsigned char* codes, const unsigned char* scales,
                                  uint2 super, int half, int lane, const uint32_t (&b)[kTiles][4],
                                  float (&sums)[kTiles][4]) {
    Fragment a[2];
    U::step(codes, half * 2, lane, a[0], 0);
    U::step(codes, half * 2 + 1, lane, a[1], 0);
    ScaleAndMin by{};
    if constexpr (kKind == MatrixKind::kQ4K) {
      by = q4k_scale(scales, super, half, lane);
    } else {
      by.scale = U::scale(scales, super, half, lane);
    }
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      SIMT_UNROLL
      for (int s = 0; s < 2; ++s) {
        const uint32_t x[2] = {b[i][2 * s], b[i][2 * s + 1]};
        simt::mma_bf16(d, a[s], x);
      }
      scale_into(d, by.scale, sums[i]);
      if constexpr (kKind == MatrixKind::kQ4K) {
        // The activations' sums: what a panel of ones gives.
        const Fragment ones = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
        float all[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        SIMT_UNROLL
        for (int s = 0; s < 2; ++s) {
          const uint32_t x[2] = {b[i][2 * s], b[i][2 * s + 1]};
          simt::mma_bf16(all, ones, x);
        }
        scale_into(all, {-by.min.x, -by.min.y}, sums[i]);
      }
    }
  }

  SIMT_DEV static void add_sixteens(const unsigned char* codes, const unsigned char* scales,
                                    uint2 super, int half, int lane, const uint32_t (&b)[kTiles][4],
                                    float (&sums)[kTiles][4]) {
    SIMT_UNROLL
    for (int s = 0; s < 2; ++s) {
      Fragment a;
      U::step(codes, half * 2 + s, lane, a, 0);
      const float2 by = U::scale(scales, super, half * 2 + s, lane);
      SIMT_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        const uint32_t x[2] = {b[i][2 * s], b[i][2 * s + 1]};
        float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        simt::mma_bf16(d, a, x);
        scale_into(d, by, sums[i]);
      }
    }
  }

  SIMT_DEV static void scale_into(const float (&d)[4], float2 by, float (&sums)[4]) {
    sums[0] = simt::fma(d[0], by.x, sums[0]);
    sums[1] = simt::fma(d[1], by.x, sums[1]);
    sums[2] = simt::fma(d[2], by.y, sums[2]);
    sums[3] = simt::fma(d[3], by.y, sums[3]);
  }
};

}  // namespace aerie::device
