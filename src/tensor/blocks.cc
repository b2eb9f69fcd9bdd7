#include "tensor/blocks.h"

#include <cassert>

namespace aerie {
namespace {

// Byte by byte: no alignment, either endianness.
uint16_t read_u16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

void read_nibbles(const uint8_t* qs, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = qs[j] & 0x0F;
    codes[j + 16] = qs[j] >> 4;
  }
}

void add_fifth_bits(const uint8_t* qh, uint8_t* codes) {
  for (int j = 0; j < kWeightGroup; ++j)
    codes[j] |= static_cast<uint8_t>(((qh[j / 8] >> (j % 8)) & 1) << 4);
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
void read_q2_group(const uint8_t* block, int j, WeightGroup& g) {
  const uint8_t* qs = block + 16 + 32 * (j / 4);
  for (int l = 0; l < kWeightGroup; ++l) g.codes[l] = qs[l] >> (2 * (j % 4)) & 3;
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

void read_q3_group(const uint8_t* block, int j, WeightGroup& g) {
  const uint8_t* qs = block + 32 + 32 * (j / 4);
  for (int l = 0; l < kWeightGroup; ++l) {
    const int low = qs[l] >> (2 * (j % 4)) & 3;
    const int high = block[l] >> j & 1;
    g.codes[l] = static_cast<uint8_t>(low | high << 2);
  }
  for (int h = 0; h < 2; ++h) g.sc[h] = read_q3_scale(block + 96, 2 * j + h);
  g.d = read_u16(block + 108);
}

void read_iq4_xs_group(const uint8_t* block, int j, WeightGroup& g) {
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

void read_q6_group(const uint8_t* block, int j, WeightGroup& g) {
  const uint8_t* ql = block + 64 * (j / 4);
  const uint8_t* qh = block + 128 + 32 * (j / 4);
  const uint8_t* sc = block + 192;
  const int quarter = j % 4;
  for (int l = 0; l < kWeightGroup; ++l) {
    const int low = ql[l + 32 * (quarter % 2)] >> (quarter < 2 ? 0 : 4) & 0x0F;
    const int high = qh[l] >> (2 * quarter) & 3;
    g.codes[l] = static_cast<uint8_t>(low | high << 4);
  }
  g.sc[0] = sc[2 * j];
  g.sc[1] = sc[2 * j + 1];
  g.d = read_u16(block + 208);
}

}  // namespace

WeightGroup read_weight_group(DType type, const uint8_t* row, int64_t index) {
  WeightGroup g;
  const DTypeInfo& info = dtype_info(type);
  const int groups_per_block = info.block_elements / kWeightGroup;
  const uint8_t* b = row + index / groups_per_block * info.block_bytes;
  const int j = static_cast<int>(index % groups_per_block);
  switch (type) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      g.d = read_u16(b);
      read_nibbles(b + 2, g.codes);
      break;
    case DType::kQ4_1:
      g.d = read_u16(b);
      g.m = read_u16(b + 2);
      read_nibbles(b + 4, g.codes);
      break;
    case DType::kQ5_0:
      g.d = read_u16(b);
      read_nibbles(b + 6, g.codes);
      add_fifth_bits(b + 2, g.codes);
      break;
    case DType::kQ5_1:
      g.d = read_u16(b);
      g.m = read_u16(b + 2);
      read_nibbles(b + 8, g.codes);
      add_fifth_bits(b + 4, g.codes);
      break;
    case DType::kQ8_0:
      g.d = read_u16(b);
      for (int l = 0; l < kWeightGroup; ++l) g.codes[l] = static_cast<uint8_t>(b[2 + l] ^ 0x80);
      break;
    case DType::kMXFP4:
      g.d = half_of_e8m0(b[0]);
      read_nibbles(b + 1, g.codes);
      break;
    case DType::kIQ4_XS:
      read_iq4_xs_group(b, j, g);
      break;
    case DType::kQ2_K:
      read_q2_group(b, j, g);
      break;
    case DType::kQ3_K:
      read_q3_group(b, j, g);
      break;
    case DType::kQ4_K:
    case DType::kQ5_K: {
      g.d = read_u16(b);
      g.m = read_u16(b + 2);
      read_super_scale(b + 4, j, g.sc);
      const uint8_t* qs = b + (type == DType::kQ4_K ? 16 : 48) + 32 * (j / 2);
      for (int l = 0; l < kWeightGroup; ++l) {
        g.codes[l] = j % 2 == 0 ? qs[l] & 0x0F : qs[l] >> 4;
        if (type == DType::kQ5_K) {
          g.codes[l] |= static_cast<uint8_t>((b[16 + l] >> j & 1) << 4);
        }
      }
      break;
    }
    case DType::kQ6_K:
      read_q6_group(b, j, g);
      break;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      assert(false);
  }
  return g;
}

}  // namespace aerie
