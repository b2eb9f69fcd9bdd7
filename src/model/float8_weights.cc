#include "model/float8_weights.h"

#include <fmt/format.h>

#include <vector>

#include "format/text.h"
#include "tensor/dtype.h"

namespace aerie {
namespace {

constexpr std::string_view kWeightScales[] = {"_scale", "_scale_inv"};
// Of activations and of caches, which keep their precision here.
constexpr std::string_view kOtherScales[] = {".input_scale", ".activation_scale", ".input_scale_ub",
                                             ".k_scale",     ".v_scale",          ".kv_scale",
                                             ".output_scale"};

Status refuse(const SafetensorsFolder& folder, const SafetensorsTensor& weight,
              std::string_view why) {
  return {StatusCode::kInvalidData,
          fmt::format("{}: tensor '{}' {}", folder.name(), printable(weight.name), why)};
}

}  // namespace

Expected<Float8Scheme> Float8Scheme::read(const JsonObject& config) {
  Float8Scheme scheme;
  if (!config.has("quantization_config")) return scheme;
  scheme.quantized_ = true;
  AERIE_ASSIGN_OR_RETURN(const JsonObject how, config.object("quantization_config"));
  AERIE_ASSIGN_OR_RETURN(const std::string_view method, how.string("quant_method"));
  if (method == "compressed-tensors") {
    AERIE_ASSIGN_OR_RETURN(const std::string_view format, how.string("format"));
    if (format != "float-quantized") {
      return how.error(StatusCode::kUnsupported, "format",
                       fmt::format("is '{}'; float-quantized is supported", printable(format, 64)));
    }
  } else if (method != "fp8" && method != "fbgemm_fp8") {
    return how.error(StatusCode::kUnsupported, "quant_method",
                     fmt::format("is '{}'; fp8, fbgemm_fp8 and compressed-tensors are supported. "
                                 "Take the model's original weights, or a GGUF file of it",
                                 printable(method, 64)));
  }
  if (how.has("weight_block_size")) {
    AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> size, how.integers("weight_block_size"));
    if (size.size() != 2 || size[0] < 1 || size[1] < 1) {
      return how.error(StatusCode::kInvalidData, "weight_block_size", "is not two positive sizes");
    }
    scheme.block_rows_ = size[0];
    scheme.block_columns_ = size[1];
  }
  return scheme;
}

bool Float8Scheme::is_scale(std::string_view name) const {
  for (const std::string_view suffix : kWeightScales) {
    if (name.ends_with(".weight" + std::string(suffix))) return true;
  }
  for (const std::string_view suffix : kOtherScales) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

Status Float8Scheme::check_scale(const SafetensorsFolder& folder,
                                 const SafetensorsTensor& scale) const {
  if (!quantized_) {
    return refuse(folder, scale,
                  "is a scale, and config.json has no quantization_config that says of what");
  }
  for (const std::string_view suffix : kWeightScales) {
    if (!scale.name.ends_with(".weight" + std::string(suffix))) continue;
    const std::string_view weight =
        std::string_view(scale.name).substr(0, scale.name.size() - suffix.size());
    const SafetensorsTensor* scaled = folder.find(weight);
    if (scaled == nullptr || scaled->type != SafetensorsType::kF8E4M3) {
      return refuse(folder, scale,
                    fmt::format("is a scale, and there is no tensor '{}' of type F8_E4M3",
                                printable(weight)));
    }
  }
  return {};
}

Expected<Float8Scheme::Grid> Float8Scheme::grid_of(const SafetensorsFolder& folder,
                                                   const SafetensorsTensor& weight) const {
  if (weight.shape.size() != 2) return refuse(folder, weight, "is of type F8_E4M3 and no matrix");
  const int64_t rows = weight.shape[0], columns = weight.shape[1];
  if (!quantized_) {
    return refuse(folder, weight,
                  "is of type F8_E4M3, and config.json has no quantization_config that says what "
                  "its scales are");
  }
  Grid grid;
  grid.scales = folder.find(weight.name + "_scale_inv");
  if (grid.scales == nullptr) grid.scales = folder.find(weight.name + "_scale");
  if (grid.scales == nullptr) {
    return refuse(folder, weight, "is of type F8_E4M3 and has no scales beside it");
  }
  if (!safetensors_type_info(grid.scales->type).dtype) {
    return refuse(folder, *grid.scales, "holds scales and is not of F32, F16 or BF16");
  }
  const int64_t count = grid.scales->elements();
  if (count == 1) {
    grid.rows = rows;
    grid.columns = columns;
  } else if (block_rows_ > 0) {
    grid.rows = block_rows_;
    grid.columns = block_columns_;
    grid.stride = (columns - 1) / block_columns_ + 1;
    const std::vector<int64_t> wanted = {(rows - 1) / block_rows_ + 1, grid.stride};
    if (grid.scales->shape != wanted) {
      return refuse(folder, weight,
                    fmt::format("has other scales than its {} x {} elements in blocks of {} x {} "
                                "ask for",
                                rows, columns, block_rows_, block_columns_));
    }
  } else if (count == rows && grid.scales->shape[0] == rows) {
    grid.columns = columns;
  } else {
    return refuse(folder, weight, fmt::format("has {} rows and {} scales", rows, count));
  }
  return grid;
}

Status Float8Scheme::check(const SafetensorsFolder& folder, const SafetensorsTensor& weight) const {
  return grid_of(folder, weight).status();
}

Expected<TensorData> Float8Scheme::read(const SafetensorsFolder& folder,
                                        const SafetensorsTensor& weight) const {
  AERIE_ASSIGN_OR_RETURN(const Grid grid, grid_of(folder, weight));
  const int64_t rows = weight.shape[0], columns = weight.shape[1];
  std::vector<float> scales(static_cast<size_t>(grid.scales->elements()));
  dequantize(*safetensors_type_info(grid.scales->type).dtype, grid.scales->data.data(),
             grid.scales->elements(), scales.data());
  TensorData out;
  AERIE_ASSIGN_OR_RETURN(out.owned,
                         Buffer::allocate(static_cast<size_t>(rows * columns) * sizeof(float)));
  float* value = out.owned.as<float>().data();
  const std::byte* code = weight.data.data();
  for (int64_t row = 0; row < rows; ++row) {
    const float* row_scales = scales.data() + row / grid.rows * grid.stride;
    for (int64_t column = 0; column < columns; ++column) {
      *value++ = f8_e4m3_to_f32(static_cast<uint8_t>(*code++)) * row_scales[column / grid.columns];
    }
  }
  out.view = {DType::kF32, Device::kCpu, {columns, rows, 1, 1}, out.owned.data()};
  return out;
}

}  // namespace aerie
