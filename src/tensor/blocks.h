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

// The numbers of IQ4_NL and IQ4_XS (ggml's kvalues_iq4nl, 128 added) and of MXFP4 (twice the FP4
// values of the OCP's Microscaling Formats 1.0, 16 added).
inline constexpr uint8_t kIq4Numbers[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                            129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr uint8_t kFp4Numbers[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                            16, 15, 14, 13, 12, 10, 8,  4};

// Whether codes stand for other numbers, and these 16 numbers. (Two functions, because g++ 12 takes
// a comparison with nullptr for no constant when sanitizers are on.)
constexpr bool has_code_table(DType type) {
  return type == DType::kIQ4_NL || type == DType::kIQ4_XS || type == DType::kMXFP4;
}
// Requires has_code_table(type).
constexpr const uint8_t* code_table(DType type) {
  return type == DType::kMXFP4 ? kFp4Numbers : kIq4Numbers;
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
      return 16;
    case DType::kQ6_K:
      return 32;
    case DType::kQ8_0:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return 128;
    default:
      return 0;
  }
}

}  // namespace aerie
