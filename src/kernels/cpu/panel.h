// Weights as the CPU kernels read them: panels of 16 output rows, interleaved so that the rows are
// vector lanes. A sum over k then never crosses lanes, and its order is the same for any number of
// rows of activations.
//
// A panel of quantised weights holds the codes of all groups of 32 k, then their scales.
// Codes have 2, 4 or 8 bits, so that a byte holds n = 4, 2 or 1 of them:
//   [group][8 / n words][16 rows][4 bytes]; byte j of word w has k = 4 (n w + s) + j in its s-th
//   bits from below, s < n
// Codes of 5 and 6 bits lie as their low 4 bits do, and the group's words end with the high ones as
// codes of 1 and 2 bits would: n = 8 and 4. So do codes of 3 bits, the low 2 first.
// Scales are as PanelScale says; c is what tensor/blocks.h makes of a code, and d counts by its
// scale_unit().
// A panel of floats is [k][16 rows] in the file's type. Missing rows of the last panel are 0.
//
// Packed weights are kept in files: what changes any of this raises kPackingVersion
// (model/weight_cache.h).
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
  // Floats: no codes, no scales.
  kFloat,
  // w = d c: f16 d[16] for each group.
  kZero,
  // w = d c: bf16 d[16] for each group.
  kZeroBfloat,
  // w = d c, a scale for each 16 k: UE4M3 d[2][16] (ue4m3_to_f32()) for each group.
  kHalfE4M3,
  // w = d c + m: f16 d[16], m[16] for each group.
  kMin,
  // w = d sc c: i8 sc[16] for each group; f16 d[16] (and 32 unused bytes) for each 8 groups.
  kSuperZero,
  // w = d sc c - dmin mn: u8 sc[16], mn[16] for each group; f16 d[16], dmin[16] for each 8 groups.
  kSuper,
  // w = d sc c, a scale for each 16 k: i8 sc[2][16] for each group; f16 d[16] (and 32 unused bytes)
  // for each 8 groups.
  kSuperHalf,
  // w = d (2 s + 1) c, a scale for each 16 k: u8 (s of the first half + 16 that of the second)[16]
  // for each group; f16 d[16] (and 32 unused bytes) for each 8 groups.
  kSuperHalfOdd,
  // w = d sc c - dmin mn, both for each 16 k: u8 (sc + 16 mn)[2][16] for each group; f16 d[16],
  // dmin[16] for each 8 groups.
  kSuperHalfMin,
};

// Bytes that the scales of a group of 32 k take.
constexpr int panel_group_scales(PanelScale scale) {
  const bool one_byte = scale == PanelScale::kSuperZero || scale == PanelScale::kSuperHalfOdd;
  return scale == PanelScale::kMin ? 64 : one_byte ? 16 : 32;
}

// Whether numbers of 8 groups follow the scales.
constexpr bool has_heads(PanelScale scale) {
  return scale == PanelScale::kSuper || scale == PanelScale::kSuperZero ||
         scale == PanelScale::kSuperHalf || scale == PanelScale::kSuperHalfMin ||
         scale == PanelScale::kSuperHalfOdd;
}

struct PanelFormat {
  PanelScale scale = PanelScale::kFloat;
  int bits = 0;             // of a code, but for its high bits; 0 for floats
  bool high_bytes = false;  // whether numbers that codes stand for reach 128
  int high_bits = 0;        // that lie apart

  // Sizes and offsets in bytes.
  constexpr int64_t group_codes() const {
    return int64_t{kPanelRows} * kGroup * (bits + high_bits) / 8;
  }
  int64_t group_scales() const { return panel_group_scales(scale); }
  int64_t scales_at(int64_t k) const { return k / kGroup * group_codes(); }
  int64_t heads_at(int64_t k) const { return scales_at(k) + k / kGroup * group_scales(); }
};

// The kernels evaluate it while they are compiled: it must leave no copy of itself there.
constexpr PanelFormat panel_format(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return {};
    case DType::kQ4_0:
      return {PanelScale::kZero, 4};
    case DType::kQ4_1:
      return {PanelScale::kMin, 4};
    case DType::kQ5_0:
      return {PanelScale::kZero, 4, false, 1};
    case DType::kQ5_1:
      return {PanelScale::kMin, 4, false, 1};
    case DType::kQ8_0:
      return {PanelScale::kZero, 8, true};
    case DType::kQ2_K:
      return {PanelScale::kSuperHalfMin, 2};
    case DType::kQ3_K:
      return {PanelScale::kSuperHalf, 4};
    case DType::kQ4_K:
      return {PanelScale::kSuper, 4};
    case DType::kQ5_K:
      return {PanelScale::kSuper, 4, false, 1};
    case DType::kQ6_K:
      return {PanelScale::kSuperHalf, 4, false, 2};
    case DType::kIQ4_NL:
      return {PanelScale::kZero, 4, true};
    case DType::kIQ4_XS:
      return {PanelScale::kSuperZero, 4, true};
    case DType::kMXFP4:
      return {PanelScale::kZeroBfloat, 4};
    case DType::kIQ2_XXS:
      return {PanelScale::kSuperZero, 2, false, 1};
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return {PanelScale::kSuperHalfOdd, 2, false, 1};
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return {PanelScale::kSuperZero, 4};
    case DType::kNVFP4:
      return {PanelScale::kHalfE4M3, 4};
  }
  return {};
}

// Bytes of a panel, a multiple of 64.
int64_t panel_bytes(DType dtype, int64_t k);

// Writes panels [begin, end) of the [k, n] view to `out`, which is where panel 0 begins and zeroed.
void pack_panels(const TensorView& weights, int64_t begin, int64_t end, std::byte* out);

}  // namespace aerie::kernels
