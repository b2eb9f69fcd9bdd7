// Weights as integers of 8 bits with scales beside them, in the layout of the package
// compressed-tensors (format int-quantized, strategy group): what a folder of safetensors holds
// that is read as Q8_0 bit for bit (model/import/weights/quantization_scheme.h).
//
// A matrix "X.weight" [n, k] is stored as "X.weight", I8 [n, k], and "X.weight_scale", F16
// [n, k / kInt8Group]; config.json has int8_quantization_config() as its "quantization_config".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"
#include "tensor/dtype.h"

namespace aerie {

inline constexpr int64_t kInt8Group = 32;  // consecutive elements of a row with one scale

struct Int8Rows {
  std::vector<int8_t> codes;     // [rows][k]
  std::vector<uint16_t> scales;  // [rows][k / kInt8Group], binary16
};

// Rows of k floats: code times scale is what dequantising quantize(DType::kQ8_0) of them gives.
// kInvalidArgument unless k is a positive multiple of kInt8Group and the values are whole rows;
// kInvalidData, naming the element, for one that Q8_0 cannot hold: NaN, infinite or too large.
Expected<Int8Rows> quantize_rows_int8(std::span<const float> values, int64_t k);

// What is refused there, of whichever type of blocks of as many.
Status check_rows(std::span<const float> values, int64_t k, DType type);

// What says so in config.json. `ignored` are the modules ("layers.0.mlp.up_proj") whose matrices
// are no integers.
Json int8_quantization_config(std::span<const std::string> ignored);
// The same for another number of bits, in another format of that package.
Json integer_quantization_config(const char* format, int bits,
                                 std::span<const std::string> ignored);

}  // namespace aerie
