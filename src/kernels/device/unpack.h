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
  // A lane's 16 bytes of codes, and 8 more.
  static constexpr int kWhole = kCodes / 512;
  static constexpr bool kRest = kCodes % 512 != 0;
};

// What a lane has of a panel and 64 of k.
template <typename S>
struct Codes {
  uint4 whole[S::kWhole];
  uint2 rest;
  uint2 scales;  // of outputs g and g + 8
  uint2 super;
};

// 128 + code and 256 as bfloat16, whose last bit counts 1 (2) there: differences are exact.
inline constexpr uint32_t kOneByOne = 0x43004300u;

SIMT_DEV uint32_t part_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
SIMT_DEV uint32_t part_of(const uint2& v, int i) {
  return i == 0 ? v.x : v.y;
}

// Of nibble i of each half of a word: element i of the fragment, 128 added.
SIMT_DEV uint32_t nibbles(uint32_t word, int i) {
  return simt::and_or(word >> 4 * i, 0x000f000fu, kOneByOne);
}

// A code in the lowest bits of a bfloat16 is 2^-133 of it, and four bits higher, where one of them
// is the exponent's, 2^-129, both without a rounding: these multiply it to a 64th.
inline constexpr uint32_t kLowNibbles = 0x000f000fu, kOfLow = 0x7f007f00u;    // 2^127
inline constexpr uint32_t kHighNibbles = 0x00f000f0u, kOfHigh = 0x7d007d00u;  // 2^123
inline constexpr float kNibbleFactor = 64.0f;

// What products of unpacked codes are to be multiplied by.
SIMT_BOTH float unpacked_factor(MatrixKind kind) {
  return kind == MatrixKind::kQ4 || kind == MatrixKind::kQ4K ? kNibbleFactor : 1.0f;
}

SIMT_DEV float2 two_f16(uint32_t both) {
  return {simt::from_f16(static_cast<uint16_t>(both)),
          simt::from_f16(static_cast<uint16_t>(both >> 16))};
}

template <MatrixKind kKind>
struct Unpack;

// Weights as they are: no scales, one chain of sums.
template <>
struct Unpack<MatrixKind::kBf16> : Sizes<2048, 0, 0, false> {
  static constexpr int kTerms = 1;
  SIMT_DEV static void step(const Codes<Unpack>& c, int step, Fragment& a, int) {
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = part_of(c.whole[step], i);
  }
};

template <>
struct Unpack<MatrixKind::kBf16x2> : Sizes<4096, 0, 0, false> {
  static constexpr int kTerms = 2;
  SIMT_DEV static void step(const Codes<Unpack>& c, int step, Fragment& a, int term) {
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = part_of(c.whole[step * 2 + term], i);
  }
};

template <>
struct Unpack<MatrixKind::kQ4> : Sizes<512, 64, 0, false> {
  static constexpr int kTerms = 1;
  SIMT_DEV static void step(const Codes<Unpack>& c, int step, Fragment& a, int) {
    SIMT_UNROLL
    for (int i = 0; i < 4; i += 2) {
      const uint32_t codes = part_of(c.whole[0], step) >> 4 * i;
      a[i] = simt::fma_bf16x2(codes & kLowNibbles, kOfLow, 0xbe00be00u);  // - 8 / 64
      a[i + 1] = simt::fma_bf16x2(codes & kHighNibbles, kOfHigh, 0xbe00be00u);
    }
  }
  // Of outputs g and g + 8 for group 0 or 1.
  SIMT_DEV static float2 scale(const Codes<Unpack>& c, int group) {
    return two_f16(part_of(c.scales, group));
  }
};

template <>
struct Unpack<MatrixKind::kQ4K> : Sizes<512, 64, 64, false> {
  static constexpr int kTerms = 1;
  SIMT_DEV static void step(const Codes<Unpack>& c, int step, Fragment& a, int) {
    SIMT_UNROLL
    for (int i = 0; i < 4; i += 2) {
      const uint32_t codes = part_of(c.whole[0], step) >> 4 * i;
      a[i] = simt::mul_bf16x2(codes & kLowNibbles, kOfLow);
      a[i + 1] = simt::mul_bf16x2(codes & kHighNibbles, kOfHigh);
    }
  }
  SIMT_DEV static float2 scale(const Codes<Unpack>& c, int group) {
    return times(two_f16(c.super.x), c.scales.x, group);
  }
  SIMT_DEV static float2 minimum(const Codes<Unpack>& c, int group) {
    const float2 d = two_f16(c.super.y);
    return times({d.x / kNibbleFactor, d.y / kNibbleFactor}, c.scales.y, group);
  }

 private:
  // By bytes 2 group and 2 group + 1. 2^23 and a byte are one number by its bits; without
  // roundings, d (2^23 + byte) - d 2^23 is d byte.
  SIMT_DEV static float2 times(float2 d, uint32_t bytes, int group) {
    return {simt::fma(d.x, simt::two_23_and_byte(bytes, 2 * group), d.x * -0x1p23f),
            simt::fma(d.y, simt::two_23_and_byte(bytes, 2 * group + 1), d.y * -0x1p23f)};
  }
};

template <>
struct Unpack<MatrixKind::kQ8> : Sizes<1024, 64, 0, false> {
  static constexpr int kTerms = 1;
  // Bytes of a word: two of k for output g, then for g + 8; of the second word: of 2 more of k.
  SIMT_DEV static void step(const Codes<Unpack>& c, int step, Fragment& a, int) {
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t w = part_of(c.whole[step / 2], step % 2 * 2 + i / 2) >> 8 * (i % 2);
      // 7 bits, less 128 where the sign is set: 128 + bits less 128 or 256.
      a[i] = simt::sub_bf16x2(simt::and_or(w, 0x007f007fu, kOneByOne),
                              simt::and_or(w, 0x00800080u, kOneByOne));
    }
  }
  SIMT_DEV static float2 scale(const Codes<Unpack>& c, int group) {
    return two_f16(part_of(c.scales, group));
  }
};

template <>
struct Unpack<MatrixKind::kQ6K> : Sizes<768, 64, 32, true> {
  static constexpr int kTerms = 1;
  SIMT_DEV static void step(const Codes<Unpack>& c, int step, Fragment& a, int) {
    const uint32_t word = part_of(c.whole[0], step);
    // Two bits each, of two steps in a word.
    const uint32_t high = part_of(c.rest, step / 2) >> 8 * (step % 2);
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t top = i < 2 ? high << (4 - 2 * i) : high >> (2 * i - 4);
      a[i] = simt::sub_bf16x2(simt::and_or(top, 0x00300030u, nibbles(word, i)),
                              0x43204320u);  // 160
    }
  }
  // Of outputs g and g + 8 for 16 of k.
  SIMT_DEV static float2 scale(const Codes<Unpack>& c, int step) {
    const uint32_t both = part_of(c.scales, step / 2) >> 16 * (step % 2);
    const float2 d = two_f16(c.super.x);
    return {d.x * static_cast<float>(static_cast<int8_t>(both)),
            d.y * static_cast<float>(static_cast<int8_t>(both >> 8))};
  }
};

template <>
struct Unpack<MatrixKind::kFp4> : Sizes<512, 64, 0, false> {
  static constexpr int kTerms = 1;
  // A number's sign, exponent and last bit in the places of a bfloat16's are 2^-126 of it, exactly,
  // subnormal or not.
  SIMT_DEV static void step(const Codes<Unpack>& c, int step, Fragment& a, int) {
    const uint32_t word = part_of(c.whole[0], step);
    SIMT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t sizes = i < 2 ? word << (6 - 4 * i) : word >> (4 * i - 6);
      const uint32_t both = simt::and_or(word << (12 - 4 * i), 0x80008000u, sizes & 0x01c001c0u);
      a[i] = simt::mul_bf16x2(both, 0x7f007f00u);  // 2^127
    }
  }
  SIMT_DEV static float2 scale(const Codes<Unpack>& c, int group) {
    const uint32_t both = part_of(c.scales, group);
    return {simt::float_of(both << 16), simt::float_of(both & 0xffff0000u)};
  }
};

// A lane's codes from where a panel's 64 of k lie in shared memory.
template <MatrixKind kKind>
struct Reader {
  using U = Unpack<kKind>;
  using C = Codes<U>;

  SIMT_DEV static void read(const unsigned char* codes, const unsigned char* scales,
                            const unsigned char* super, int lane, C& c) {
    read(codes, scales, lane, c);
    if constexpr (U::kSuperBytes == 64) {
      c.super = *reinterpret_cast<const uint2*>(super + lane / 4 * 8);
    }
    if constexpr (U::kSuperBytes == 32) {
      c.super.x = *reinterpret_cast<const uint32_t*>(super + lane / 4 * 4);
    }
  }
  // But for the super.
  SIMT_DEV static void read(const unsigned char* codes, const unsigned char* scales, int lane,
                            C& c) {
    SIMT_UNROLL
    for (int i = 0; i < U::kWhole; ++i) {
      c.whole[i] = *reinterpret_cast<const uint4*>(codes + i * 512 + lane * 16);
    }
    if constexpr (U::kRest) {
      c.rest = *reinterpret_cast<const uint2*>(codes + U::kWhole * 512 + lane * 8);
    }
    if constexpr (U::kScaleBytes > 0) {
      c.scales = *reinterpret_cast<const uint2*>(scales + lane / 4 * 8);
    }
  }
};

// Activations of 32 of k, of tiles of 8 rows: [tile][4]. With their sums, where weights have
// minima: what a panel of ones gives.
template <int kTiles>
struct Inputs {
  uint32_t b[kTiles][4];
  float sums[kTiles][4];

  SIMT_DEV void step(int tile, int s, uint32_t (&x)[2]) const {
    x[0] = b[tile][2 * s], x[1] = b[tile][2 * s + 1];
  }
  SIMT_DEV void add_up() {
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const Fragment ones = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = 0.0f;
      SIMT_UNROLL
      for (int s = 0; s < 2; ++s) {
        uint32_t x[2];
        step(i, s, x);
        simt::mma_bf16(sums[i], ones, x);
      }
    }
  }
};

// Sums of outputs g and g + 8 that the scales of these are applied to.
SIMT_DEV void scale_into(const float (&d)[4], float2 by, float (&sums)[4]) {
  sums[0] = simt::fma(d[0], by.x, sums[0]);
  sums[1] = simt::fma(d[1], by.x, sums[1]);
  sums[2] = simt::fma(d[2], by.y, sums[2]);
  sums[3] = simt::fma(d[3], by.y, sums[3]);
}

// One panel's product with half a step (32 of k) of a tile of 8 rows each: sums += weights x
// activations, in the order of k.
template <MatrixKind kKind, int kTiles>
struct Panel {
  using U = Unpack<kKind>;
  using Sums = float[kTiles][4];
  static constexpr bool kHasMinima = kKind == MatrixKind::kQ4K;

  SIMT_DEV static void add(const Codes<U>& codes, int half, const Inputs<kTiles>& inputs,
                           Sums& sums) {
    if constexpr (U::kScaleBytes == 0) {
      add_plain(codes, half, inputs, sums);
    } else if constexpr (U::kGroupsOf16) {
      add_sixteens(codes, half, inputs, sums);
    } else {
      add_scaled(codes, half, inputs, sums);
    }
  }

 private:
  SIMT_DEV static void add_plain(const Codes<U>& codes, int half, const Inputs<kTiles>& inputs,
                                 Sums& sums) {
    SIMT_UNROLL
    for (int s = 0; s < 2; ++s) {
      SIMT_UNROLL
      for (int term = 0; term < U::kTerms; ++term) {
        Fragment a;
        U::step(codes, half * 2 + s, a, term);
        SIMT_UNROLL
        for (int i = 0; i < kTiles; ++i) {
          uint32_t x[2];
          inputs.step(i, s, x);
          simt::mma_bf16(sums[i], a, x);
        }
      }
    }
  }

  SIMT_DEV static void add_scaled(const Codes<U>& codes, int half, const Inputs<kTiles>& inputs,
                                  Sums& sums) {
    Fragment a[2];
    U::step(codes, half * 2, a[0], 0);
    U::step(codes, half * 2 + 1, a[1], 0);
    const float2 by = U::scale(codes, half);
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      SIMT_UNROLL
      for (int s = 0; s < 2; ++s) {
        uint32_t x[2];
        inputs.step(i, s, x);
        simt::mma_bf16(d, a[s], x);
      }
      scale_into(d, by, sums[i]);
    }
    if constexpr (kHasMinima) {
      const float2 less = U::minimum(codes, half);
      SIMT_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        scale_into(inputs.sums[i], {-less.x, -less.y}, sums[i]);
      }
    }
  }

  SIMT_DEV static void add_sixteens(const Codes<U>& codes, int half, const Inputs<kTiles>& inputs,
                                    Sums& sums) {
    SIMT_UNROLL
    for (int s = 0; s < 2; ++s) {
      Fragment a;
      U::step(codes, half * 2 + s, a, 0);
      const float2 by = U::scale(codes, half * 2 + s);
      SIMT_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        uint32_t x[2];
        inputs.step(i, s, x);
        float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        simt::mma_bf16(d, a, x);
        scale_into(d, by, sums[i]);
      }
    }
  }
};

// A row's 64 of k in shared memory, 128 bytes: pieces of 16 lie where their number and the row's
// last bit say, so that the lanes of a load touch all banks.
SIMT_DEV int piece_at(int row, int piece) {
  return row * 128 + (piece ^ (row & 1) << 2) * 16;
}

// What lane t has of half a step of such a row.
template <bool kGroupsOf16>
SIMT_DEV void read_row(const unsigned char* rows, int row, int half, int t, uint32_t (&b)[4]) {
  if constexpr (kGroupsOf16) {
    SIMT_UNROLL
    for (int s = 0; s < 2; ++s) {
      const uint2 v = *reinterpret_cast<const uint2*>(
          rows + piece_at(row, half * 4 + s * 2 + t / 2) + t % 2 * 8);
      b[2 * s] = v.x, b[2 * s + 1] = v.y;
    }
  } else {
    const uint4 v = *reinterpret_cast<const uint4*>(rows + piece_at(row, half * 4 + t));
    b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
  }
}

}  // namespace aerie::device
