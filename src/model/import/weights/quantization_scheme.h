// How a Hugging Face folder's weights are quantised, and those in 8 bits with scales beside them:
// floats (OCP E4M3) or integers. Of NVFP4 (nvfp4_weights.h) and packed 4-bit integers
// (int4_matrix.h) it says that they are such, and what lies beside them.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>

#include "base/status.h"
#include "format/json.h"
#include "format/model_file.h"
#include "format/safetensors/safetensors_folder.h"

namespace aerie {

// How config.json's quantization_config says that weights are stored. Floats have one scale for a
// matrix, one for each row, or one for each block ("weight_block_size", as in DeepSeek-V3 and
// Qwen3); integers, which are symmetric, one for a matrix, for each row, or for each group of a
// row's elements. The scales of activations and caches, which such checkpoints bring along, are not
// used: these keep their precision.
class QuantizationScheme {
 public:
  // Without quantization_config: nothing is quantised. kUnsupported, naming it, for a method that
  // is not one of these.
  static Expected<QuantizationScheme> read(const JsonObject& config);

  bool is_quantized() const { return quantized_; }
  // 4-bit floats as modelopt and compressed-tensors (nvfp4-pack-quantized) write them.
  bool is_nvfp4() const { return nvfp4_; }
  // 4-bit integers as compressed-tensors (pack-quantized) writes them (int4_matrix.h).
  bool is_int4() const { return int4_; }

  // Whether a tensor is of a type that means nothing without scales.
  static bool needs_scales(const SafetensorsTensor& tensor);

  // Whether a tensor belongs to others: scales of weights, of activations, of a cache, and zero
  // points.
  bool is_scale(std::string_view name) const;
  // That there is a matrix for it. kUnsupported for what weights have that are not symmetric or
  // whose columns are in another order.
  Status check_scale(const SafetensorsFolder& folder, const SafetensorsTensor& scale) const;

  // The smallest type that holds every code times its scale: Q8_0 for integers, if no block of 32
  // has two scales and binary16 holds all scales, and F32 (rounded once) otherwise. kInvalidData if
  // the scales do not fit the matrix. Requires needs_scales(); reads the scales.
  Expected<DType> type_of(const SafetensorsFolder& folder, const SafetensorsTensor& weight) const;
  // Code times scale with the shape {columns, rows}. Requires `type` to be F32 or what type_of()
  // says.
  Expected<TensorData> read(const SafetensorsFolder& folder, const SafetensorsTensor& weight,
                            DType type) const;

 private:
  // The scales of a matrix: of blocks of `rows` by `columns`, `stride` of them in a row of blocks.
  struct Grid {
    const SafetensorsTensor* scales = nullptr;
    int64_t rows = 1, columns = 1, stride = 1;
  };
  Status read_compressed_tensors(const JsonObject& how);
  Status read_modelopt(const JsonObject& how);
  Status read_groups(const JsonObject& how);
  Status read_group(const JsonObject& group);
  Expected<Grid> grid_of(const SafetensorsFolder& folder, const SafetensorsTensor& weight) const;
  Status fit_floats(const SafetensorsFolder& folder, const SafetensorsTensor& weight,
                    Grid& grid) const;
  Status fit_integers(const SafetensorsFolder& folder, const SafetensorsTensor& weight,
                      Grid& grid) const;

  bool quantized_ = false, nvfp4_ = false, int4_ = false;
  int64_t block_rows_ = 0, block_columns_ = 0;  // 0: one scale for a row or a matrix
  // How many elements of a row have a scale of integers: kRow, kMatrix, or so many. Empty: no
  // integers.
  static constexpr int64_t kMatrix = 0, kRow = -1;
  std::set<int64_t> groups_;
};

}  // namespace aerie
