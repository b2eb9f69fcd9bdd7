#include "model/import/weights/int4_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "format/text.h"
#include "model/import/weights/half_scales.h"
#include "tensor/blocks.h"

namespace aerie {
namespace {

constexpr std::string_view kPacked = "_packed";
constexpr int64_t kPerWord = 8;
constexpr int kCentre = 8;

Status refuse(const SafetensorsFolder& folder, const SafetensorsTensor& tensor,
              std::string_view why, StatusCode code = StatusCode::kInvalidData) {
  return {code, fmt::format("{}: tensor '{}' {}", folder.name(), printable(tensor.name), why)};
}

std::vector<float> floats_of(const SafetensorsTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  dequantize(*safetensors_type_info(tensor.type).dtype, tensor.data.data(), tensor.elements(),
             values.data());
  return values;
}

}  // namespace

bool Int4Matrix::is_packed(const SafetensorsTensor& tensor) {
  return tensor.type == SafetensorsType::kI32 && tensor.name.ends_with(".weight_packed");
}

std::string Int4Matrix::weight_name(const SafetensorsTensor& tensor) {
  return tensor.name.substr(0, tensor.name.size() - kPacked.size());
}

Expected<Int4Matrix> Int4Matrix::of(const SafetensorsFolder& folder,
                                    const SafetensorsTensor& tensor) {
  const std::string name = weight_name(tensor);
  if (tensor.shape.size() != 2 || tensor.elements() == 0) {
    return refuse(folder, tensor, "is of packed integers and no matrix");
  }
  Int4Matrix matrix;
  matrix.codes_ = &tensor;
  matrix.rows_ = tensor.shape[0];
  matrix.columns_ = kPerWord * tensor.shape[1];
  for (const char* other : {"_zero_point", "_g_idx"}) {
    if (folder.find(name + other) == nullptr) continue;
    return refuse(
        folder, tensor,
        fmt::format("has '{}{}' beside it; symmetric integers with columns in their order "
                    "are supported",
                    printable(name), other),
        StatusCode::kUnsupported);
  }
  if (const SafetensorsTensor* shape = folder.find(name + "_shape")) {
    AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> said, read_integers(*shape));
    if (said != std::vector{matrix.rows_, matrix.columns_}) {
      return refuse(folder, *shape,
                    fmt::format("says [{}], and there are {} rows of {} packed columns",
                                fmt::join(said, ", "), matrix.rows_, matrix.columns_));
    }
  }
  matrix.scales_ = folder.find(name + "_scale");
  if (matrix.scales_ == nullptr) {
    return refuse(
        folder, tensor,
        fmt::format("is of packed integers and has no '{}_scale' beside it", printable(name)));
  }
  const std::vector<int64_t>& shape = matrix.scales_->shape;
  const bool fits = safetensors_type_info(matrix.scales_->type).dtype && shape.size() == 2 &&
                    shape[0] == matrix.rows_ && shape[1] > 0 && matrix.columns_ % shape[1] == 0;
  if (!fits) {
    return refuse(
        folder, *matrix.scales_,
        fmt::format("of type {} with the shape [{}] are no scales of {} rows of {} packed "
                    "columns",
                    safetensors_type_info(matrix.scales_->type).name, fmt::join(shape, ", "),
                    matrix.rows_, matrix.columns_));
  }
  matrix.group_ = matrix.columns_ / shape[1];
  const bool whole = matrix.group_ % kWeightGroup == 0;
  if (whole && std::ranges::all_of(floats_of(*matrix.scales_), fits_f16)) {
    matrix.type_ = DType::kQ4_0;
  }
  return matrix;
}

uint8_t Int4Matrix::code(int64_t row, int64_t column) const {
  const int64_t at = row * columns_ + column;
  return static_cast<uint8_t>(codes_->data[static_cast<size_t>(at / 2)]) >> (at % 2 * 4) & 15;
}

// A block has its scale, then 16 bytes: the first half of its codes low, the second high.
void Int4Matrix::fill_blocks(std::span<const float> scales, std::byte* to) const {
  const int64_t in_row = columns_ / group_;
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t column = 0; column < columns_; column += kWeightGroup) {
      const uint16_t scale =
          f32_to_f16(scales[static_cast<size_t>(row * in_row + column / group_)]);
      std::memcpy(to, &scale, sizeof(scale));
      to += sizeof(scale);
      for (int64_t i = column; i < column + kWeightGroup / 2; ++i) {
        *to++ = static_cast<std::byte>(code(row, i) | code(row, i + kWeightGroup / 2) << 4);
      }
    }
  }
}

void Int4Matrix::fill_floats(std::span<const float> scales, std::byte* to) const {
  const int64_t in_row = columns_ / group_;
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t column = 0; column < columns_; ++column, to += sizeof(float)) {
      const float scale = scales[static_cast<size_t>(row * in_row + column / group_)];
      const float value = static_cast<float>(code(row, column) - kCentre) * scale;
      std::memcpy(to, &value, sizeof(value));
    }
  }
}

Expected<TensorData> Int4Matrix::read(DType type) const {
  TensorData out;
  AERIE_ASSIGN_OR_RETURN(
      out.owned, Buffer::allocate(static_cast<size_t>(dtype_bytes(type, rows_ * columns_))));
  out.view = {type, Device::kCpu, {columns_, rows_, 1, 1}, out.owned.data()};
  const std::vector<float> scales = floats_of(*scales_);
  if (type == DType::kQ4_0) {
    fill_blocks(scales, out.owned.data());
  } else {
    fill_floats(scales, out.owned.data());
  }
  return out;
}

}  // namespace aerie
