#include "kernels/cpu/panel.h"

#include <algorithm>
#include <cstring>

namespace aerie::kernels {
namespace {

// One group of 32 weights of one row, with the scales of its format as they are in the file.
struct Group {
  uint8_t codes[kGroup];
  uint16_t d = 0;      // f16
  uint16_t m = 0;      // f16: the minimum, or dmin of a super-block
  uint8_t sc[2] = {};  // kSuper: scale and minimum; kSuperHalf: the scales of both halves
};

uint16_t read_u16(const uint8_t* p) {
  uint16_t x;
  std::memcpy(&x, p, 2);
  return x;
}

void read_nibbles(const uint8_t* qs, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = qs[j] & 0x0F;
    codes[j + 16] = qs[j] >> 4;
  }
}

void add_fifth_bits(const uint8_t* qh, uint8_t* codes) {
  for (int j = 0; j < kGroup; ++j)
    codes[j] |= static_cast<uint8_t>(((qh[j / 8] >> (j % 8)) & 1) << 4);
}

// The six-bit scale and minimum of sub-block j of Q4_K and Q5_K.
void read_super_scale(const uint8_t* s, int j, uint8_t* sc) {
  if (j < 4) {
    sc[0] = s[j] & 63;
    sc[1] = s[j + 4] & 63;
  } else {
    sc[0] = static_cast<uint8_t>((s[j + 4] & 0x0F) | ((s[j - 4] >> 6) << 4));
    sc[1] = static_cast<uint8_t>((s[j + 4] >> 4) | ((s[j] >> 6) << 4));
  }
}

void read_q6_group(const uint8_t* block, int j, Group& g) {
  const uint8_t* ql = block + 64 * (j / 4);
  const uint8_t* qh = block + 128 + 32 * (j / 4);
  const uint8_t* sc = block + 192;
  const int quarter = j % 4;
  for (int l = 0; l < kGroup; ++l) {
    const int low = ql[l + 32 * (quarter % 2)] >> (quarter < 2 ? 0 : 4) & 0x0F;
    const int high = qh[l] >> (2 * quarter) & 3;
    g.codes[l] = static_cast<uint8_t>(low | high << 4);
  }
  g.sc[0] = sc[2 * j];
  g.sc[1] = sc[2 * j + 1];
  g.d = read_u16(block + 208);
}

Group read_group(DType dtype, const uint8_t* row, int64_t group) {
  Group g;
  const DTypeInfo& info = dtype_info(dtype);
  const int groups_per_block = info.block_elements / kGroup;
  const uint8_t* b = row + group / groups_per_block * info.block_bytes;
  const int j = static_cast<int>(group % groups_per_block);
  switch (dtype) {
    case DType::kQ4_0:
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
      for (int l = 0; l < kGroup; ++l) g.codes[l] = static_cast<uint8_t>(b[2 + l] ^ 0x80);
      break;
    case DType::kQ4_K:
    case DType::kQ5_K: {
      g.d = read_u16(b);
      g.m = read_u16(b + 2);
      read_super_scale(b + 4, j, g.sc);
      const uint8_t* qs = b + (dtype == DType::kQ4_K ? 16 : 48) + 32 * (j / 2);
      for (int l = 0; l < kGroup; ++l) {
        g.codes[l] = j % 2 == 0 ? qs[l] & 0x0F : qs[l] >> 4;
        if (dtype == DType::kQ5_K) {
          g.codes[l] |= static_cast<uint8_t>((b[16 + l] >> j & 1) << 4);
        }
      }
      break;
    }
    case DType::kQ6_K:
      read_q6_group(b, j, g);
      break;
    default:
      break;
  }
  return g;
}

void write_codes(const PanelFormat& format, const Group& g, int row, uint8_t* codes) {
  for (int k = 0; k < kGroup; ++k) {
    if (format.bits == 4) {
      const int at = (k / 8 * kPanelRows + row) * 4 + k % 4;
      codes[at] |= static_cast<uint8_t>(g.codes[k] << (k % 8 < 4 ? 0 : 4));
    } else {
      codes[(k / 4 * kPanelRows + row) * 4 + k % 4] = g.codes[k];
    }
  }
}

void write_group(const PanelFormat& format, const Group& g, int row, int64_t group, int64_t k,
                 uint8_t* panel) {
  write_codes(format, g, row, panel + group * format.group_codes());
  uint8_t* scales = panel + format.scales_at(k) + group * format.group_scales();
  const auto put = [row](uint8_t* base, uint16_t value) { std::memcpy(base + 2 * row, &value, 2); };
  switch (format.scale) {
    case PanelScale::kZero:
      put(scales, g.d);
      break;
    case PanelScale::kMin:
      put(scales, g.d);
      put(scales + 32, g.m);
      break;
    case PanelScale::kSuper:
    case PanelScale::kSuperHalf: {
      scales[row] = g.sc[0];
      scales[16 + row] = g.sc[1];
      uint8_t* head = panel + format.heads_at(k) + group / 8 * 64;
      put(head, g.d);
      put(head + 32, g.m);
      break;
    }
    case PanelScale::kFloat:
      break;
  }
}

void pack_float_row(const TensorView& weights, int64_t n, int row, uint8_t* panel) {
  const int bytes = dtype_info(weights.dtype).block_bytes;
  const auto* source = reinterpret_cast<const uint8_t*>(weights.row(n));
  for (int64_t k = 0; k < weights.row_length(); ++k) {
    std::memcpy(panel + (k * kPanelRows + row) * bytes, source + k * bytes, bytes);
  }
}

}  // namespace

PanelFormat panel_format(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return {};
    case DType::kQ4_0:
      return {PanelScale::kZero, 4, 8};
    case DType::kQ4_1:
      return {PanelScale::kMin, 4, 0};
    case DType::kQ5_0:
      return {PanelScale::kZero, 8, 16};
    case DType::kQ5_1:
      return {PanelScale::kMin, 8, 0};
    case DType::kQ8_0:
      return {PanelScale::kZero, 8, 128};
    case DType::kQ4_K:
      return {PanelScale::kSuper, 4, 0};
    case DType::kQ5_K:
      return {PanelScale::kSuper, 8, 0};
    case DType::kQ6_K:
      return {PanelScale::kSuperHalf, 8, 32};
  }
  return {};
}

int64_t panel_bytes(DType dtype, int64_t k) {
  const PanelFormat format = panel_format(dtype);
  int64_t bytes = 0;
  switch (format.scale) {
    case PanelScale::kFloat:
      bytes = dtype_bytes(dtype, k * kPanelRows);
      break;
    case PanelScale::kZero:
    case PanelScale::kMin:
      bytes = format.heads_at(k);
      break;
    case PanelScale::kSuper:
    case PanelScale::kSuperHalf:
      bytes = format.heads_at(k) + k / (8 * kGroup) * 64;
      break;
  }
  return (bytes + 63) / 64 * 64;
}

void pack_panels(const TensorView& weights, int64_t begin, int64_t end, std::byte* out) {
  const int64_t k = weights.row_length();
  const PanelFormat format = panel_format(weights.dtype);
  const int64_t bytes = panel_bytes(weights.dtype, k);
  for (int64_t p = begin; p < end; ++p) {
    auto* panel = reinterpret_cast<uint8_t*>(out + p * bytes);
    const int64_t rows = std::min<int64_t>(kPanelRows, weights.rows() - p * kPanelRows);
    for (int row = 0; row < rows; ++row) {
      const int64_t n = p * kPanelRows + row;
      if (format.scale == PanelScale::kFloat) {
        pack_float_row(weights, n, row, panel);
        continue;
      }
      const auto* source = reinterpret_cast<const uint8_t*>(weights.row(n));
      for (int64_t group = 0; group < k / kGroup; ++group) {
        write_group(format, read_group(weights.dtype, source, group), row, group, k, panel);
      }
    }
  }
}

}  // namespace aerie::kernels
