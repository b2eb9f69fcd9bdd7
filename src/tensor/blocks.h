// How ggml's quantised formats lie in files, whatever is made of them: groups of 32 codes with
// their scales.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace aerie {

inline constexpr int kWeightGroup = 32;

// 32 consecutive weights of a row, undone to codes but not to values. A code stands for a number:
// an entry of code_table() or else itself. With c = number - code_zero():
//   Q4_0, Q5_0, Q8_0, IQ4_NL, MXFP4   d c
//   Q4_1, Q5_1                        d c + m
//   Q2_K                              d (sc[i / 16] % 16) c - m (sc[i / 16] / 16)
//   Q4_K, Q5_K                        d sc[0] c - m sc[1]
//   Q3_K, Q6_K, IQ4_XS                d sc[i / 16] c, sc signed
//   IQ2_XXS, IQ2_XS, IQ2_S            d sc[i / 16] c / 8, sc odd and below 32
//   NVFP4                             UE4M3(sc[i / 16]) c / 2, sc below 128
//   IQ3_XXS, IQ3_S                    d sc[i / 16] c / 4 and d sc[i / 16] c, sc odd and below 32
struct WeightGroup {
  uint8_t codes[kWeightGroup];
  uint16_t d = 0;      // binary16; bfloat16 in MXFP4, whose powers of two reach further
  uint16_t m = 0;      // binary16; 0 in the types that have none
  uint8_t sc[2] = {};  // 0 in the types that have none
};

// Group `index` of the row of blocks at `row` (no alignment needed). Requires a quantised type.
WeightGroup read_weight_group(DType type, const uint8_t* row, int64_t index);
// Groups [first, first + count), which are whole blocks.
void read_weight_groups(DType type, const uint8_t* row, int64_t first, int64_t count,
                        WeightGroup* out);

// What NVFP4's scales are: E4M3 without a sign, and with 480 where that has NaN.
inline float ue4m3_to_f32(uint8_t bits) {
  return bits == 0x7F ? 480.0f : f8_e4m3_to_f32(bits);
}

// The numbers of IQ4_NL and IQ4_XS (ggml's kvalues_iq4nl, 128 added), of MXFP4 and of NVFP4 (twice
// the FP4 values of the OCP's Microscaling Formats 1.0, 16 added).
inline constexpr uint8_t kIq4Numbers[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                            129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr uint8_t kFp4Numbers[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                            16, 15, 14, 13, 12, 10, 8,  4};

// Those of the formats with grids (grids.h): a magnitude, with its sign above it in the code.
inline constexpr uint8_t kIq2Numbers[16] = {51, 68, 86, 43, 35, 18, 0,  43,
                                            43, 43, 43, 43, 43, 43, 43, 43};
inline constexpr uint8_t kIq3XxsNumbers[16] = {66, 74, 82, 90, 98, 106, 114, 124,
                                               58, 50, 42, 34, 26, 18,  10,  0};
inline constexpr uint8_t kIq3SNumbers[16] = {16, 18, 20, 22, 24, 26, 28, 30,
                                             14, 12, 10, 8,  6,  4,  2,  0};

// Whether codes stand for other numbers, and these 16 numbers. (Two functions, because g++ 12 takes
// a comparison with nullptr for no constant when sanitizers are on.)
constexpr bool has_code_table(DType type) {
  switch (type) {
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMXFP4:
    case DType::kNVFP4:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return true;
    default:
      return false;
  }
}
// Requires has_code_table(type).
constexpr const uint8_t* code_table(DType type) {
  switch (type) {
    case DType::kMXFP4:
    case DType::kNVFP4:
      return kFp4Numbers;
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return kIq2Numbers;
    case DType::kIQ3_XXS:
      return kIq3XxsNumbers;
    case DType::kIQ3_S:
      return kIq3SNumbers;
    default:
      return kIq4Numbers;
  }
}

// A power of two by which a block's d, or NVFP4's scales, count: where formulas have fractions.
constexpr float scale_unit(DType type) {
  switch (type) {
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return 0.125f;
    case DType::kIQ3_XXS:
      return 0.25f;
    case DType::kNVFP4:
      return 0.5f;
    default:
      return 1.0f;
  }
}

// The number of a weight of 0; 0 in the types with a minimum. Requires a quantised
// type.
constexpr int code_zero(DType type) {
  switch (type) {
    case DType::kQ3_K:
      return 4;
    case DType::kQ4_0:
      return 8;
    case DType::kQ5_0:
    case DType::kMXFP4:
    case DType::kNVFP4:
      return 16;
    case DType::kQ6_K:
      return 32;
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return 43;
    case DType::kIQ3_XXS:
      return 62;
    case DType::kIQ3_S:
      return 15;
    case DType::kQ8_0:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return 128;
    default:
      return 0;
  }
}

}  // namespace aerie
