#include "tensor/blocks.h"

#include <bit>
#include <cassert>
#include <cstring>

#include "tensor/grids.h"

// Reading whole blocks, type and group are constants, of which the compiler makes much.
#define AERIE_INLINE [[gnu::always_inline]] inline

namespace aerie {
namespace {

// Byte by byte: no alignment, either endianness.
uint16_t read_u16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

// Sixteen codes at a time: loading a model unpacks all of its weights once.
typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef uint64_t Longs __attribute__((vector_size(16)));
Bytes load(const uint8_t* p) {
  Bytes bytes;
  std::memcpy(&bytes, p, sizeof(bytes));
  return bytes;
}
void store(uint8_t* p, Bytes bytes) {
  std::memcpy(p, &bytes, sizeof(bytes));
}
// `bits` bits of each byte, from `shift` up.
Bytes field(Bytes bytes, int bits, int shift) {
  return bytes >> static_cast<uint8_t>(shift) & static_cast<uint8_t>((1 << bits) - 1);
}

void read_nibbles(const uint8_t* qs, uint8_t* codes) {
  const Bytes q = load(qs);
  store(codes, field(q, 4, 0));
  store(codes + 16, field(q, 4, 4));
}

// Bit i of a byte belongs to code i of eight.
void add_fifth_bits(const uint8_t* qh, uint8_t* codes) {
  constexpr Bytes kBits = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  for (int half = 0; half < 2; ++half) {
    const Longs bits = {qh[2 * half] * 0x0101010101010101u, qh[2 * half + 1] * 0x0101010101010101u};
    const auto is_set = reinterpret_cast<Bytes>((reinterpret_cast<Bytes>(bits) & kBits) == kBits);
    store(codes + 16 * half, load(codes + 16 * half) | (is_set & uint8_t{0x10}));
  }
}

// The six-bit scale and minimum of sub-block j of Q4_K and Q5_K: eight pairs in 12 bytes, the last
// four pairs' top two bits in the top bits of the first eight bytes.
void read_super_scale(const uint8_t* s, int j, uint8_t* sc) {
  if (j < 4) {
    sc[0] = s[j] & 63;
    sc[1] = s[j + 4] & 63;
  } else {
    sc[0] = static_cast<uint8_t>((s[j + 4] & 0x0F) | ((s[j - 4] >> 6) << 4));
    sc[1] = static_cast<uint8_t>((s[j + 4] >> 4) | ((s[j] >> 6) << 4));
  }
}

// Sixteen sub-blocks, a byte of scale and minimum for each.
AERIE_INLINE void read_q2_group(const uint8_t* block, int j, WeightGroup& g) {
  const uint8_t* qs = block + 16 + 32 * (j / 4);
  for (int l = 0; l < kWeightGroup; l += 16) {
    store(g.codes + l, field(load(qs + l), 2, 2 * (j % 4)));
  }
  g.sc[0] = block[2 * j];
  g.sc[1] = block[2 * j + 1];
  g.d = read_u16(block + 80);
  g.m = read_u16(block + 82);
}

// Sixteen six-bit scales in 12 bytes: low nibbles in the first eight, the first eight scales' in
// the low halves; then the top two bits of scales i, i + 4, i + 8 and i + 12 in byte 8 + i.
uint8_t read_q3_scale(const uint8_t* s, int i) {
  const int low = i < 8 ? s[i] & 0x0F : s[i - 8] >> 4;
  const int high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
  return static_cast<uint8_t>((low | high << 4) - 32);
}

AERIE_INLINE void read_q3_group(const uint8_t* block, int j, WeightGroup& g) {
  const uint8_t* qs = block + 32 + 32 * (j / 4);
  for (int l = 0; l < kWeightGroup; l += 16) {
    const Bytes high = field(load(block + l), 1, j);
    store(g.codes + l, field(load(qs + l), 2, 2 * (j % 4)) | high << uint8_t{2});
  }
  for (int h = 0; h < 2; ++h) g.sc[h] = read_q3_scale(block + 96, 2 * j + h);
  g.d = read_u16(block + 108);
}

AERIE_INLINE void read_iq4_xs_group(const uint8_t* block, int j, WeightGroup& g) {
  const int low = block[4 + j / 2] >> (4 * (j % 2)) & 0x0F;
  const int high = read_u16(block + 2) >> (2 * j) & 3;
  g.d = read_u16(block);
  g.sc[0] = g.sc[1] = static_cast<uint8_t>((low | high << 4) - 32);
  read_nibbles(block + 8 + 16 * j, g.codes);
}

// 2^(e - 128) as bfloat16: half of what E8M0 means by e, since the numbers are twice FP4's values.
uint16_t half_of_e8m0(uint8_t e) {
  if (e == 255) return 0x7FC0;  // NaN
  return static_cast<uint16_t>(e < 2 ? 0x20 << e : (e - 1) << 7);
}

AERIE_INLINE void read_q6_group(const uint8_t* block, int j, WeightGroup& g) {
  const uint8_t* ql = block + 64 * (j / 4);
  const uint8_t* qh = block + 128 + 32 * (j / 4);
  const uint8_t* sc = block + 192;
  const int quarter = j % 4;
  for (int l = 0; l < kWeightGroup; l += 16) {
    const Bytes low = field(load(ql + l + 32 * (quarter % 2)), 4, quarter < 2 ? 0 : 4);
    store(g.codes + l, low | field(load(qh + l), 2, 2 * quarter) << uint8_t{4});
  }
  g.sc[0] = sc[2 * j];
  g.sc[1] = sc[2 * j + 1];
  g.d = read_u16(block + 208);
}

// Sub-block j of Q4_K or Q5_K.
AERIE_INLINE void read_super_group(bool fifth_bits, const uint8_t* block, int j, WeightGroup& g) {
  g.d = read_u16(block);
  g.m = read_u16(block + 2);
  read_super_scale(block + 4, j, g.sc);
  const uint8_t* qs = block + (fifth_bits ? 48 : 16) + 32 * (j / 2);
  for (int l = 0; l < kWeightGroup; l += 16) {
    const Bytes high = fifth_bits ? field(load(block + 16 + l), 1, j) : Bytes{};
    store(g.codes + l, field(load(qs + l), 4, j % 2 * 4) | high << uint8_t{4});
  }
}

uint32_t read_u32(const uint8_t* p) {
  return read_u16(p) | static_cast<uint32_t>(read_u16(p + 2)) << 16;
}

// Magnitudes of eight weights, one a byte, with their signs above the kBits bits of each.
template <int kBits>
void write_signed(uint64_t magnitudes, unsigned signs, uint8_t* codes) {
  static_assert(std::endian::native == std::endian::little);
  const uint64_t picked = signs * 0x0101010101010101u & 0x8040201008040201u;
  const uint64_t set = (picked + 0x7F7F7F7F7F7F7F7Fu) >> 7 & 0x0101010101010101u;
  const uint64_t both = magnitudes | set << kBits;
  std::memcpy(codes, &both, sizeof(both));
}

// Eight signs of which seven are stored: an even number of them is set.
unsigned even_signs(unsigned seven) {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1) << 7;
}

// 2 s + 1 of the nibble that is number i.
uint8_t odd_scale(const uint8_t* nibbles, int i) {
  return static_cast<uint8_t>((nibbles[i / 2] >> (4 * (i % 2)) & 15) * 2 + 1);
}

AERIE_INLINE void read_iq2_xxs_group(const uint8_t* block, int j, WeightGroup& g) {
  const uint8_t* points = block + 2 + 8 * j;
  const uint32_t rest = read_u32(points + 4);
  for (int i = 0; i < 4; ++i) {
    write_signed<2>(kIq2XxsGrid[points[i]], even_signs(rest >> (7 * i) & 127), g.codes + 8 * i);
  }
  g.d = read_u16(block);
  g.sc[0] = g.sc[1] = static_cast<uint8_t>((rest >> 28) * 2 + 1);
}

AERIE_INLINE void read_iq2_xs_group(const uint8_t* block, int j, WeightGroup& g) {
  for (int i = 0; i < 4; ++i) {
    const unsigned both = read_u16(block + 2 + 8 * j + 2 * i);
    write_signed<2>(kIq2XsGrid[both & 511], even_signs(both >> 9), g.codes + 8 * i);
  }
  g.d = read_u16(block);
  for (int h = 0; h < 2; ++h) g.sc[h] = odd_scale(block + 66, 2 * j + h);
}

AERIE_INLINE void read_iq2_s_group(const uint8_t* block, int j, WeightGroup& g) {
  const uint8_t *points = block + 2 + 4 * j, *signs = block + 34 + 4 * j;
  const unsigned high = block[66 + j];
  for (int i = 0; i < 4; ++i) {
    const unsigned point = points[i] | (high >> (2 * i) & 3) << 8;
    write_signed<2>(kIq2SGrid[point], signs[i], g.codes + 8 * i);
  }
  g.d = read_u16(block);
  for (int h = 0; h < 2; ++h) g.sc[h] = odd_scale(block + 74, 2 * j + h);
}

AERIE_INLINE void read_iq3_xxs_group(const uint8_t* block, int j, WeightGroup& g) {
  const uint8_t* points = block + 2 + 8 * j;
  const uint32_t rest = read_u32(block + 66 + 4 * j);
  for (int i = 0; i < 4; ++i) {
    const uint64_t magnitudes =
        kIq3XxsGrid[points[2 * i]] | uint64_t{kIq3XxsGrid[points[2 * i + 1]]} << 32;
    write_signed<3>(magnitudes, even_signs(rest >> (7 * i) & 127), g.codes + 8 * i);
  }
  g.d = read_u16(block);
  g.sc[0] = g.sc[1] = static_cast<uint8_t>((rest >> 28) * 2 + 1);
}

AERIE_INLINE void read_iq3_s_group(const uint8_t* block, int j, WeightGroup& g) {
  const uint8_t *points = block + 2 + 8 * j, *signs = block + 74 + 4 * j;
  const unsigned high = block[66 + j];
  const auto four = [&](int i) -> uint64_t { return kIq3SGrid[points[i] | (high >> i & 1) << 8]; };
  for (int i = 0; i < 4; ++i) {
    write_signed<3>(four(2 * i) | four(2 * i + 1) << 32, signs[i], g.codes + 8 * i);
  }
  g.d = read_u16(block);
  g.sc[0] = g.sc[1] = odd_scale(block + 106, j);
}

// Four scales of a block, of 16 weights each. ggml_ue4m3_to_fp32() passes over bit 7, and takes
// E4M3's NaN for 0 if that is not set.
AERIE_INLINE void read_nvfp4_group(const uint8_t* block, int j, WeightGroup& g) {
  for (int h = 0; h < 2; ++h) {
    const uint8_t scale = block[2 * j + h], *qs = block + 4 + 16 * j + 8 * h;
    g.sc[h] = scale == 0x7F ? 0 : scale & 0x7F;
    for (int i = 0; i < 8; ++i) {
      g.codes[16 * h + i] = qs[i] & 15;
      g.codes[16 * h + 8 + i] = qs[i] >> 4;
    }
  }
}

// Group j of a block.
AERIE_INLINE void read_group(DType type, const uint8_t* b, int j, WeightGroup& g) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      g.d = read_u16(b);
      return read_nibbles(b + 2, g.codes);
    case DType::kQ4_1:
      g.d = read_u16(b);
      g.m = read_u16(b + 2);
      return read_nibbles(b + 4, g.codes);
    case DType::kQ5_0:
      g.d = read_u16(b);
      read_nibbles(b + 6, g.codes);
      return add_fifth_bits(b + 2, g.codes);
    case DType::kQ5_1:
      g.d = read_u16(b);
      g.m = read_u16(b + 2);
      read_nibbles(b + 8, g.codes);
      return add_fifth_bits(b + 4, g.codes);
    case DType::kQ8_0:
      g.d = read_u16(b);
      for (int l = 0; l < kWeightGroup; l += 16)
        store(g.codes + l, load(b + 2 + l) ^ uint8_t{0x80});
      return;
    case DType::kMXFP4:
      g.d = half_of_e8m0(b[0]);
      return read_nibbles(b + 1, g.codes);
    case DType::kIQ4_XS:
      return read_iq4_xs_group(b, j, g);
    case DType::kIQ2_XXS:
      return read_iq2_xxs_group(b, j, g);
    case DType::kIQ2_XS:
      return read_iq2_xs_group(b, j, g);
    case DType::kIQ2_S:
      return read_iq2_s_group(b, j, g);
    case DType::kIQ3_XXS:
      return read_iq3_xxs_group(b, j, g);
    case DType::kIQ3_S:
      return read_iq3_s_group(b, j, g);
    case DType::kNVFP4:
      return read_nvfp4_group(b, j, g);
    case DType::kQ2_K:
      return read_q2_group(b, j, g);
    case DType::kQ3_K:
      return read_q3_group(b, j, g);
    case DType::kQ4_K:
      return read_super_group(false, b, j, g);
    case DType::kQ5_K:
      return read_super_group(true, b, j, g);
    case DType::kQ6_K:
      return read_q6_group(b, j, g);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      assert(false);
  }
}

constexpr int groups_of_block(DType type) {
  switch (type) {
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_XS:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return 8;
    case DType::kNVFP4:
      return 2;
    default:
      return 1;
  }
}

template <DType kType>
void read_blocks(const uint8_t* row, int64_t first, int64_t count, WeightGroup* out) {
  constexpr int kGroups = groups_of_block(kType);
  const int bytes = dtype_info(kType).block_bytes;
  assert(first % kGroups == 0 && count % kGroups == 0);
  for (int64_t block = first / kGroups; block < (first + count) / kGroups; ++block) {
    const uint8_t* b = row + block * bytes;
#pragma GCC unroll 8
    for (int j = 0; j < kGroups; ++j) {
      *out = {};
      read_group(kType, b, j, *out++);
    }
  }
}

}  // namespace

WeightGroup read_weight_group(DType type, const uint8_t* row, int64_t index) {
  WeightGroup group = {};
  const int groups = groups_of_block(type);
  read_group(type, row + index / groups * dtype_info(type).block_bytes,
             static_cast<int>(index % groups), group);
  return group;
}

void read_weight_groups(DType type, const uint8_t* row, int64_t first, int64_t count,
                        WeightGroup* out) {
  switch (type) {
    case DType::kQ4_0:
      return read_blocks<DType::kQ4_0>(row, first, count, out);
    case DType::kQ4_1:
      return read_blocks<DType::kQ4_1>(row, first, count, out);
    case DType::kQ5_0:
      return read_blocks<DType::kQ5_0>(row, first, count, out);
    case DType::kQ5_1:
      return read_blocks<DType::kQ5_1>(row, first, count, out);
    case DType::kQ8_0:
      return read_blocks<DType::kQ8_0>(row, first, count, out);
    case DType::kQ2_K:
      return read_blocks<DType::kQ2_K>(row, first, count, out);
    case DType::kQ3_K:
      return read_blocks<DType::kQ3_K>(row, first, count, out);
    case DType::kQ4_K:
      return read_blocks<DType::kQ4_K>(row, first, count, out);
    case DType::kQ5_K:
      return read_blocks<DType::kQ5_K>(row, first, count, out);
    case DType::kQ6_K:
      return read_blocks<DType::kQ6_K>(row, first, count, out);
    case DType::kIQ4_NL:
      return read_blocks<DType::kIQ4_NL>(row, first, count, out);
    case DType::kIQ4_XS:
      return read_blocks<DType::kIQ4_XS>(row, first, count, out);
    case DType::kMXFP4:
      return read_blocks<DType::kMXFP4>(row, first, count, out);
    case DType::kIQ2_XXS:
      return read_blocks<DType::kIQ2_XXS>(row, first, count, out);
    case DType::kIQ2_XS:
      return read_blocks<DType::kIQ2_XS>(row, first, count, out);
    case DType::kIQ2_S:
      return read_blocks<DType::kIQ2_S>(row, first, count, out);
    case DType::kIQ3_XXS:
      return read_blocks<DType::kIQ3_XXS>(row, first, count, out);
    case DType::kIQ3_S:
      return read_blocks<DType::kIQ3_S>(row, first, count, out);
    case DType::kNVFP4:
      return read_blocks<DType::kNVFP4>(row, first, count, out);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      assert(false);
  }
}

}  // namespace aerie
