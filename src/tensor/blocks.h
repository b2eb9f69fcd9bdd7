// How ggml's quantised formats lie in files, whatever is made of them: groups of 32 codes with
// their scales.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace aerie {

inline constexpr int kWeightGroup = 32;

// 32 consecutive weights of a row, undone to codes but not to values. With z = code_zero():
//   Q4_0, Q5_0, Q8_0   d (code - z)
//   Q4_1, Q5_1         d code + m
//   Q4_K, Q5_K         d sc[0] code - m sc[1]
//   Q6_K               d sc[i / 16] (code - z), sc signed
struct WeightGroup {
  uint8_t codes[kWeightGroup];
  uint16_t d = 0;      // binary16
  uint16_t m = 0;      // binary16; 0 in the types that have none
  uint8_t sc[2] = {};  // 0 in the types that have none
};

// Group `index` of the row of blocks at `row` (no alignment needed). Requires a quantised type.
WeightGroup read_weight_group(DType type, const uint8_t* row, int64_t index);

// The code that stands for 0; 0 in the types with a minimum. Requires a quantised type.
int code_zero(DType type);

}  // namespace aerie
