// Weights as integers of 4 bits with scales beside them, in the layout of the package
// compressed-tensors (format pack-quantized, strategy group): what a folder of safetensors holds
// that is read as Q4_0 bit for bit (model/import/weights/int4_matrix.h).
//
// A matrix "X.weight" [n, k] is stored as "X.weight_packed", I32 [n, k / 8], "X.weight_scale", F16
// [n, k / kInt4Group], and "X.weight_shape", I64 [2].
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace aerie {

inline constexpr int64_t kInt4Group = 32;  // consecutive elements of a row with one scale

struct Int4Rows {
  std::vector<uint8_t> codes;    // [rows][k / 2], code + 8, the first of two low
  std::vector<uint16_t> scales;  // [rows][k / kInt4Group], binary16
};

// Rows of k floats: code times scale is what dequantising quantize(DType::kQ4_0) of them gives.
// kInvalidArgument unless k is a positive multiple of kInt4Group and the values are whole rows;
// kInvalidData, naming the element, for one that Q4_0 cannot hold: NaN, infinite or too large.
Expected<Int4Rows> quantize_rows_int4(std::span<const float> values, int64_t k);

// What says so in config.json, as int8_quantization_config().
Json int4_quantization_config(std::span<const std::string> ignored);

}  // namespace aerie
