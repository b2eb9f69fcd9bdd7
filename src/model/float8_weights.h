// Weights in 8-bit floats (OCP E4M3) with scales beside them, as Hugging Face folders hold them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "format/json.h"
#include "format/model_file.h"
#include "format/safetensors_folder.h"

namespace aerie {

// How config.json's quantization_config says that weights are stored: one scale for a matrix, one
// for each row, or one for each block ("weight_block_size", as in DeepSeek-V3 and Qwen3). The
// scales of activations and caches, which such checkpoints bring along, are not used: these keep
// their precision.
class Float8Scheme {
 public:
  // Without quantization_config: nothing is quantised. kUnsupported, naming it, for a method that
  // is not one of these.
  static Expected<Float8Scheme> read(const JsonObject& config);

  // Whether a tensor is a scale of others: of weights, of activations, of a cache.
  bool is_scale(std::string_view name) const;
  // That there is a matrix for it.
  Status check_scale(const SafetensorsFolder& folder, const SafetensorsTensor& scale) const;
  // That the matrix has scales that fit it.
  Status check(const SafetensorsFolder& folder, const SafetensorsTensor& weight) const;
  // Code times scale, in F32, with the shape {columns, rows}. Requires check().
  Expected<TensorData> read(const SafetensorsFolder& folder, const SafetensorsTensor& weight) const;

 private:
  // The scales of a matrix: of blocks of `rows` by `columns`, `stride` of them in a row of blocks.
  struct Grid {
    const SafetensorsTensor* scales = nullptr;
    int64_t rows = 1, columns = 1, stride = 1;
  };
  Expected<Grid> grid_of(const SafetensorsFolder& folder, const SafetensorsTensor& weight) const;

  bool quantized_ = false;
  int64_t block_rows_ = 0, block_columns_ = 0;  // 0: one scale for a row or a matrix
};

}  // namespace aerie
