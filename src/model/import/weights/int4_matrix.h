// Matrices of 4-bit integers with a scale for each group of a row, as the package
// compressed-tensors packs them (format pack-quantized; "W4A16" models):
// - NAME.weight_packed, I32 [rows, columns / 8]: code + 8, the first column in the lowest bits;
// - NAME.weight_scale, F32, F16 or BF16 [rows, columns / group], or [rows, 1] for whole rows;
// - NAME.weight_shape, I64 or I32 [2]: rows and columns.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "format/model_file.h"
#include "format/safetensors/safetensors_folder.h"

namespace aerie {

class Int4Matrix {
 public:
  // Whether a tensor has the type and name of such a matrix.
  static bool is_packed(const SafetensorsTensor& tensor);
  // "NAME.weight_packed" -> "NAME.weight". Requires is_packed().
  static std::string weight_name(const SafetensorsTensor& tensor);
  // kInvalidData or kUnsupported, naming the tensor, if its scales or its shape do not fit it, it
  // has zero points, or its columns are in another order. The folder must outlive the object.
  // Requires is_packed(). Reads the scales.
  static Expected<Int4Matrix> of(const SafetensorsFolder& folder, const SafetensorsTensor& tensor);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // What holds every code times its scale: Q4_0 if no block of 32 has two scales and binary16 holds
  // all scales, F32 (rounded once) otherwise.
  DType type() const { return type_; }
  // In type() or as F32, with the shape {columns, rows}.
  Expected<TensorData> read(DType type) const;

 private:
  void fill_blocks(std::span<const float> scales, std::byte* to) const;
  void fill_floats(std::span<const float> scales, std::byte* to) const;
  // 0 to 15.
  uint8_t code(int64_t row, int64_t column) const;

  const SafetensorsTensor* codes_ = nullptr;
  const SafetensorsTensor* scales_ = nullptr;
  int64_t rows_ = 0, columns_ = 0, group_ = 0;
  DType type_ = DType::kF32;
};

}  // namespace aerie
