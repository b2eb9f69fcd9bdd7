#include "kernels/cpu/panel.h"

#include <algorithm>
#include <cstring>

#include "tensor/blocks.h"

namespace aerie::kernels {
namespace {

// Puts `bits` bits of each code, from `shift` up, where codes of so many bits lie.
void write_bits(const WeightGroup& g, int bits, int shift, int row, uint8_t* to) {
  const int shared = 8 / bits;  // codes in a byte
  const int mask = (1 << bits) - 1;
  for (int k = 0; k < kGroup; ++k) {
    const int at = (k / 4 / shared * kPanelRows + row) * 4 + k % 4;
    to[at] |= static_cast<uint8_t>((g.codes[k] >> shift & mask) << (k / 4 % shared * bits));
  }
}

void write_codes(const PanelFormat& format, const WeightGroup& g, int row, uint8_t* codes) {
  write_bits(g, format.bits, 0, row, codes);
  if (format.high_bits > 0) {
    write_bits(g, format.high_bits, format.bits, row, codes + 64 * format.bits);
  }
}

void write_group(const PanelFormat& format, const WeightGroup& g, int row, int64_t group, int64_t k,
                 uint8_t* panel) {
  write_codes(format, g, row, panel + group * format.group_codes());
  uint8_t* scales = panel + format.scales_at(k) + group * format.group_scales();
  const auto put = [row](uint8_t* base, uint16_t value) { std::memcpy(base + 2 * row, &value, 2); };
  switch (format.scale) {
    case PanelScale::kZero:
    case PanelScale::kZeroBfloat:
      put(scales, g.d);
      break;
    case PanelScale::kMin:
      put(scales, g.d);
      put(scales + 32, g.m);
      break;
    case PanelScale::kSuperZero:
    case PanelScale::kSuper:
    case PanelScale::kSuperHalf:
    case PanelScale::kSuperHalfMin: {
      scales[row] = g.sc[0];
      if (format.scale != PanelScale::kSuperZero) scales[16 + row] = g.sc[1];
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

int64_t panel_bytes(DType dtype, int64_t k) {
  const PanelFormat format = panel_format(dtype);
  int64_t bytes = 0;
  switch (format.scale) {
    case PanelScale::kFloat:
      bytes = dtype_bytes(dtype, k * kPanelRows);
      break;
    case PanelScale::kZero:
    case PanelScale::kZeroBfloat:
    case PanelScale::kMin:
      bytes = format.heads_at(k);
      break;
    case PanelScale::kSuperZero:
    case PanelScale::kSuper:
    case PanelScale::kSuperHalf:
    case PanelScale::kSuperHalfMin:
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
        write_group(format, read_weight_group(weights.dtype, source, group), row, group, k, panel);
      }
    }
  }
}

}  // namespace aerie::kernels
