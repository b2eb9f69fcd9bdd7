#include "model/import/weights/quantization_scheme.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "format/text.h"
#include "model/import/weights/half_scales.h"
#include "model/import/weights/int4_matrix.h"
#include "model/import/weights/nvfp4_weights.h"
#include "tensor/blocks.h"
#include "tensor/dtype.h"

namespace aerie {
namespace {

constexpr std::string_view kWeightScales[] = {"_scale", "_scale_inv", "_scale_2", "_global_scale"};
// Of activations and of caches, which keep their precision here.
constexpr std::string_view kOtherScales[] = {
    ".input_scale", ".input_zero_point", ".activation_scale", ".input_scale_ub",    ".k_scale",
    ".v_scale",     ".kv_scale",         ".output_scale",     ".input_global_scale"};
constexpr std::string_view kUnsupported[] = {".weight_zero_point", ".weight_g_idx"};
constexpr int64_t kBlockBytes = 2 + kWeightGroup;  // of Q8_0: the scale, and codes

Status refuse(const SafetensorsFolder& folder, const SafetensorsTensor& weight,
              std::string_view why, StatusCode code = StatusCode::kInvalidData) {
  return {code, fmt::format("{}: tensor '{}' {}", folder.name(), printable(weight.name), why)};
}

std::string_view type_name(const SafetensorsTensor& tensor) {
  return safetensors_type_info(tensor.type).name;
}

bool ends_with_any(std::string_view name, std::span<const std::string_view> suffixes) {
  return std::ranges::any_of(suffixes, [&](std::string_view end) { return name.ends_with(end); });
}

// The weight's name, if this is one of its scales.
std::string_view scaled_weight(std::string_view name) {
  for (const std::string_view suffix : kWeightScales) {
    if (!name.ends_with(suffix)) continue;
    const std::string_view weight = name.substr(0, name.size() - suffix.size());
    if (weight.ends_with(".weight")) return weight;
  }
  return {};
}

bool all_fit_f16(const SafetensorsTensor& scales) {
  const DType type = *safetensors_type_info(scales.type).dtype;
  std::array<float, 1024> values;
  const int64_t total = scales.elements(), step = values.size();
  for (int64_t first = 0; first < total; first += step) {
    const int64_t count = std::min(step, total - first);
    dequantize(type, scales.data.data() + dtype_bytes(type, first), count, values.data());
    if (!std::all_of(values.begin(), values.begin() + count, fits_f16)) return false;
  }
  return true;
}

// Old checkpoints say so; newer ones never reorder.
bool is_reordered(const Json* actorder) {
  if (actorder == nullptr) return false;
  return *actorder == true || *actorder == "group" || *actorder == "dynamic";
}

}  // namespace

Expected<QuantizationScheme> QuantizationScheme::read(const JsonObject& config) {
  QuantizationScheme scheme;
  if (!config.has("quantization_config")) return scheme;
  scheme.quantized_ = true;
  AERIE_ASSIGN_OR_RETURN(const JsonObject how, config.object("quantization_config"));
  AERIE_ASSIGN_OR_RETURN(const std::string_view method, how.string("quant_method"));
  if (method == "compressed-tensors") {
    AERIE_RETURN_IF_ERROR(scheme.read_compressed_tensors(how));
  } else if (method == "modelopt") {
    AERIE_RETURN_IF_ERROR(scheme.read_modelopt(how));
  } else if (method != "fp8" && method != "fbgemm_fp8" && method != "mxfp4") {
    return how.error(StatusCode::kUnsupported, "quant_method",
                     "is '{}'; fp8, fbgemm_fp8, mxfp4, compressed-tensors and modelopt are "
                     "supported. Take the model's original weights, or a GGUF file of it",
                     printable(method, 64));
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

Status QuantizationScheme::read_compressed_tensors(const JsonObject& how) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view format, how.string("format"));
  nvfp4_ = format == "nvfp4-pack-quantized";
  int4_ = format == "pack-quantized";
  if (!nvfp4_ && !int4_ && format != "float-quantized" && format != "int-quantized" &&
      format != "naive-quantized") {
    return how.error(StatusCode::kUnsupported, "format",
                     "is '{}'; float-quantized, int-quantized, naive-quantized, pack-quantized and "
                     "nvfp4-pack-quantized are supported. Take the original weights",
                     printable(format, 64));
  }
  if (const Json* transform = how.find("transform_config");
      transform != nullptr && !transform->empty()) {
    return how.error(StatusCode::kUnsupported, "transform_config",
                     "rotates weights or activations, which is not supported");
  }
  if (format == "float-quantized" && !how.has("config_groups")) return {};
  return read_groups(how);
}

Status QuantizationScheme::read_modelopt(const JsonObject& how) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view algorithm, how.string("quant_algo"));
  if (algorithm != "NVFP4") {
    return how.error(StatusCode::kUnsupported, "quant_algo",
                     "is '{}'; of modelopt NVFP4 is supported. Take the original weights",
                     printable(algorithm, 64));
  }
  nvfp4_ = true;
  return how.has("config_groups") ? read_groups(how) : Status();
}

Status QuantizationScheme::read_groups(const JsonObject& how) {
  AERIE_ASSIGN_OR_RETURN(const JsonObject groups, how.object("config_groups"));
  for (const auto& [name, value] : groups.json().items()) {
    AERIE_ASSIGN_OR_RETURN(
        const JsonObject group,
        JsonObject::view(value, fmt::format("{}: quantization_config.config_groups.{}", how.file(),
                                            printable(name, 64))));
    if (!group.has("weights")) continue;
    AERIE_ASSIGN_OR_RETURN(const JsonObject weights, group.object("weights"));
    AERIE_RETURN_IF_ERROR(read_group(weights));
  }
  return {};
}

// Which matrices a group is for is not read: their types and the shapes of their scales tell.
Status QuantizationScheme::read_group(const JsonObject& group) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view type, group.string("type", "int"));
  AERIE_ASSIGN_OR_RETURN(const int64_t bits, group.integer("num_bits", 8));
  AERIE_ASSIGN_OR_RETURN(const bool symmetric, group.boolean("symmetric", true));
  if (nvfp4_) {
    AERIE_ASSIGN_OR_RETURN(const int64_t size, group.integer("group_size", 16));
    if (bits == 4 && type == "float" && symmetric && size == 16) return {};
    return group.error(StatusCode::kUnsupported, "num_bits",
                       "is {} of type {} in groups of {}; symmetric floats of 4 in groups of 16 "
                       "are supported beside each other",
                       bits, printable(type, 64), size);
  }
  if (int4_) {
    if (bits == 4 && type == "int" && symmetric && !is_reordered(group.find("actorder"))) return {};
    return group.error(
        StatusCode::kUnsupported, "num_bits",
        "is {} of type {}; packed are symmetric integers of 4 supported, with columns in "
        "their order",
        bits, printable(type, 64));
  }
  if (bits != 8) {
    return group.error(StatusCode::kUnsupported, "num_bits", "is {}; 8 is supported", bits);
  }
  if (!symmetric) {
    return group.error(StatusCode::kUnsupported, "symmetric",
                       "is false; weights without zero points are supported");
  }
  if (type == "float") return {};
  if (type != "int") {
    return group.error(StatusCode::kUnsupported, "type", "is '{}'; int and float are supported",
                       printable(type, 64));
  }
  if (is_reordered(group.find("actorder"))) {
    return group.error(StatusCode::kUnsupported, "actorder",
                       "puts columns in another order, which is not supported");
  }
  AERIE_ASSIGN_OR_RETURN(const int64_t size, group.integer("group_size", kMatrix));
  const char* const usual = size > 0 ? "group" : size == kRow ? "channel" : "tensor";
  AERIE_ASSIGN_OR_RETURN(const std::string_view strategy, group.string("strategy", usual));
  if (strategy == "group" && size < 1) {
    return group.error(StatusCode::kInvalidData, "group_size", "is {}, not a positive size", size);
  }
  if (strategy != "group" && strategy != "channel" && strategy != "tensor") {
    return group.error(StatusCode::kUnsupported, "strategy",
                       "is '{}'; group, channel and tensor are supported", printable(strategy, 64));
  }
  groups_.insert(strategy == "group" ? size : strategy == "channel" ? kRow : kMatrix);
  return {};
}

bool QuantizationScheme::needs_scales(const SafetensorsTensor& tensor) {
  return tensor.type == SafetensorsType::kF8E4M3 || tensor.type == SafetensorsType::kI8;
}

bool QuantizationScheme::is_scale(std::string_view name) const {
  return !scaled_weight(name).empty() || ends_with_any(name, kOtherScales) ||
         ends_with_any(name, kUnsupported) || (int4_ && name.ends_with(".weight_shape"));
}

Status QuantizationScheme::check_scale(const SafetensorsFolder& folder,
                                       const SafetensorsTensor& scale) const {
  if (!quantized_) {
    return refuse(folder, scale,
                  "is a scale, and config.json has no quantization_config that says of what");
  }
  if (ends_with_any(scale.name, kUnsupported)) {
    return refuse(folder, scale,
                  "is of weights with zero points or reordered columns; symmetric ones in their "
                  "order are supported",
                  StatusCode::kUnsupported);
  }
  const std::string_view weight = scaled_weight(scale.name);
  if (weight.empty()) return {};
  const SafetensorsTensor* scaled = folder.find(weight);
  if (scaled != nullptr && needs_scales(*scaled)) return {};
  if (nvfp4_ || int4_) {
    if (scaled == nullptr) scaled = folder.find(std::string(weight) + "_packed");
    if (scaled != nullptr &&
        (nvfp4_ ? Nvfp4Matrix::is_packed(*scaled) : Int4Matrix::is_packed(*scaled))) {
      return {};
    }
  }
  return refuse(folder, scale,
                fmt::format("is a scale, and there is no tensor '{}' of type {}", printable(weight),
                            int4_    ? "I32, packed"
                            : nvfp4_ ? "U8"
                                     : "F8_E4M3 or I8"));
}

Expected<QuantizationScheme::Grid> QuantizationScheme::grid_of(
    const SafetensorsFolder& folder, const SafetensorsTensor& weight) const {
  const std::string_view type = type_name(weight);
  if (weight.shape.size() != 2) {
    return refuse(folder, weight, fmt::format("is of type {} and no matrix", type));
  }
  if (!quantized_) {
    return refuse(folder, weight,
                  fmt::format("is of type {}, and config.json has no quantization_config that says "
                              "what its scales are",
                              type));
  }
  Grid grid;
  const bool is_float = weight.type == SafetensorsType::kF8E4M3;
  if (is_float) grid.scales = folder.find(weight.name + "_scale_inv");
  if (grid.scales == nullptr) grid.scales = folder.find(weight.name + "_scale");
  if (grid.scales == nullptr) {
    return refuse(folder, weight, fmt::format("is of type {} and has no scales beside it", type));
  }
  if (!safetensors_type_info(grid.scales->type).dtype) {
    return refuse(folder, *grid.scales, "holds scales and is not of F32, F16 or BF16");
  }
  AERIE_RETURN_IF_ERROR(is_float ? fit_floats(folder, weight, grid)
                                 : fit_integers(folder, weight, grid));
  return grid;
}

Status QuantizationScheme::fit_floats(const SafetensorsFolder& folder,
                                      const SafetensorsTensor& weight, Grid& grid) const {
  const int64_t rows = weight.shape[0], columns = weight.shape[1];
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
  return {};
}

Status QuantizationScheme::fit_integers(const SafetensorsFolder& folder,
                                        const SafetensorsTensor& weight, Grid& grid) const {
  if (groups_.empty()) {
    return refuse(folder, weight,
                  "is of type I8, and quantization_config says nothing of integers");
  }
  const int64_t rows = weight.shape[0], columns = weight.shape[1];
  const std::vector<int64_t>& shape = grid.scales->shape;
  const int64_t in_row = shape.size() == 2 && shape[0] == rows ? shape[1] : 0;
  if (grid.scales->elements() == 1 && groups_.contains(kMatrix)) {
    grid.rows = rows;
    grid.columns = columns;
  } else if ((in_row == 1 || shape == std::vector{rows}) && groups_.contains(kRow)) {
    grid.columns = columns;
  } else if (in_row > 0 && columns % in_row == 0 && groups_.contains(columns / in_row)) {
    grid.columns = columns / in_row;
    grid.stride = in_row;
  } else {
    return refuse(folder, weight,
                  fmt::format("of {} x {} elements has scales of the shape [{}], which no group of "
                              "quantization_config asks for",
                              rows, columns, fmt::join(shape, ", ")));
  }
  return {};
}

Expected<DType> QuantizationScheme::type_of(const SafetensorsFolder& folder,
                                            const SafetensorsTensor& weight) const {
  AERIE_ASSIGN_OR_RETURN(const Grid grid, grid_of(folder, weight));
  const bool is_in_blocks = weight.type == SafetensorsType::kI8 &&
                            weight.shape[1] % kWeightGroup == 0 && grid.columns % kWeightGroup == 0;
  return is_in_blocks && all_fit_f16(*grid.scales) ? DType::kQ8_0 : DType::kF32;
}

Expected<TensorData> QuantizationScheme::read(const SafetensorsFolder& folder,
                                              const SafetensorsTensor& weight, DType type) const {
  AERIE_ASSIGN_OR_RETURN(const Grid grid, grid_of(folder, weight));
  const int64_t rows = weight.shape[0], columns = weight.shape[1];
  std::vector<float> scales(static_cast<size_t>(grid.scales->elements()));
  dequantize(*safetensors_type_info(grid.scales->type).dtype, grid.scales->data.data(),
             grid.scales->elements(), scales.data());
  TensorData out;
  AERIE_ASSIGN_OR_RETURN(out.owned,
                         Buffer::allocate(static_cast<size_t>(dtype_bytes(type, rows * columns))));
  out.view = {type, Device::kCpu, {columns, rows, 1, 1}, out.owned.data()};
  const bool is_float = weight.type == SafetensorsType::kF8E4M3;
  std::byte* to = out.owned.data();
  const std::byte* code = weight.data.data();
  for (int64_t row = 0; row < rows; ++row) {
    const float* row_scales = scales.data() + row / grid.rows * grid.stride;
    if (type == DType::kQ8_0) {
      for (int64_t column = 0; column < columns; column += kWeightGroup) {
        const uint16_t scale = f32_to_f16(row_scales[column / grid.columns]);
        std::memcpy(to, &scale, sizeof(scale));
        std::memcpy(to + sizeof(scale), code, kWeightGroup);
        to += kBlockBytes;
        code += kWeightGroup;
      }
      continue;
    }
    for (int64_t column = 0; column < columns; ++column, to += sizeof(float)) {
      const auto bits = static_cast<uint8_t>(*code++);
      const float value =
          is_float ? f8_e4m3_to_f32(bits) : static_cast<float>(static_cast<int8_t>(bits));
      const float product = value * row_scales[column / grid.columns];
      std::memcpy(to, &product, sizeof(product));
    }
  }
  return out;
}

}  // namespace aerie
