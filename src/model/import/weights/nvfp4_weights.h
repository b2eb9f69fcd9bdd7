// Matrices of 4-bit floats with a scale for each 16 and a factor for all, NVFP4, as Hugging Face
// folders hold them:
// - NAME.weight or NAME.weight_packed, U8 [rows, columns / 2]: E2M1, the even column in the low
// half;
// - NAME.weight_scale, F8_E4M3 [rows, columns / 16];
// - NAME.weight_scale_2, F32, one: what a weight is multiplied by besides (modelopt), or
//   NAME.weight_global_scale, F32, one: what it is divided by (compressed-tensors).
#pragma once

#include <cstdint>

#include "base/status.h"
#include "format/model_file.h"
#include "format/safetensors/safetensors_folder.h"

namespace aerie {

class Nvfp4Matrix {
 public:
  // Whether a tensor has the type and name of such a matrix.
  static bool is_packed(const SafetensorsTensor& tensor);
  // kInvalidData or kUnsupported, naming the tensor, if its scales do not fit it, or its rows are
  // no whole blocks of 64. The folder must outlive the object. Requires is_packed().
  static Expected<Nvfp4Matrix> of(const SafetensorsFolder& folder, const SafetensorsTensor& tensor);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Of all weights, beside their blocks; a divisor's reciprocal, rounded to float.
  float factor() const { return factor_; }
  // Blocks of NVFP4 with the shape {columns, rows}. kInvalidData for a scale that is negative or no
  // number, which such blocks do not hold.
  Expected<TensorData> read() const;

 private:
  const SafetensorsFolder* folder_ = nullptr;
  const SafetensorsTensor* codes_ = nullptr;
  const SafetensorsTensor* scales_ = nullptr;
  int64_t rows_ = 0, columns_ = 0;
  float factor_ = 1.0f;
};

}  // namespace aerie
