// Weights as the CPU kernels read them: panels of 16 output rows, interleaved so that the rows are
// vector lanes. A sum over k then never crosses lanes, and its order is the same for any number of
// rows of activations.
//
// A panel of quantised weights holds the codes of all groups of 32 k, then their scales:
//   codes, 4 bit: [group][4 words][16 rows][4 bytes]; byte j of word w has k = 8w + j in its low
//   and
//                 8w + 4 + j in its high nibble
//   codes, 8 bit: [group][8 words][16 rows][4 bytes]; byte j of word w has k = 4w + j
//   scales, by PanelScale. Codes are unsigned; a zero point is taken off in the products.
// A panel of floats is [k][16 rows] in the file's type. Missing rows of the last panel are 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/blocks.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace aerie::kernels {

inline constexpr int kPanelRows = 16;
inline constexpr int kGroup = kWeightGroup;

enum class PanelScale : uint8_t {
  kFloat,      // floats: no codes, no scales
  kZero,       // w = d (code - zero): f16 d[16] for each group
  kMin,        // w = d code + m: f16 d[16], m[16] for each group
  kSuper,      // w = d sc code - dmin mn: u8 sc[16], mn[16] for each group; f16 d[16], dmin[16] for
               // each 8 groups
  kSuperHalf,  // w = d sc (code - zero), sc for each 16 k: i8 sc[2][16] for each group; f16 d[16]
               // (and 32 unused bytes) for each 8 groups
};

struct PanelFormat {
  PanelScale scale = PanelScale::kFloat;
  int bits = 0;  // 4 or 8; 0 for floats
  int zero = 0;

  // Sizes and offsets in bytes.
  int64_t group_codes() const { return int64_t{kPanelRows} * kGroup * bits / 8; }
  int64_t group_scales() const { return scale == PanelScale::kMin ? 64 : 32; }
  int64_t scales_at(int64_t k) const { return k / kGroup * group_codes(); }
  int64_t heads_at(int64_t k) const { return scales_at(k) + k / kGroup * group_scales(); }
};

PanelFormat panel_format(DType dtype);

// Bytes of a panel, a multiple of 64.
int64_t panel_bytes(DType dtype, int64_t k);

// Writes panels [begin, end) of the [k, n] view to `out`, which is where panel 0 begins and zeroed.
void pack_panels(const TensorView& weights, int64_t begin, int64_t end, std::byte* out);

}  // namespace aerie::kernels
