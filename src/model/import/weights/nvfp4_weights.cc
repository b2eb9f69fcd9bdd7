#include "model/import/weights/nvfp4_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <string_view>

#include "format/text.h"
#include "tensor/dtype.h"

namespace aerie {
namespace {

constexpr std::string_view kPackedSuffix = "_packed";
constexpr int64_t kNvfp4Block = 64, kNvfp4Scaled = 16, kNvfp4Scales = kNvfp4Block / kNvfp4Scaled;

Status refuse_tensor(const SafetensorsFolder& folder, const SafetensorsTensor& tensor,
                     std::string_view why, StatusCode code = StatusCode::kInvalidData) {
  return {code, fmt::format("{}: tensor '{}' {}", folder.name(), printable(tensor.name), why)};
}

Expected<float> read_factor(const SafetensorsFolder& folder, const SafetensorsTensor& tensor) {
  if (tensor.type != SafetensorsType::kF32 || tensor.elements() != 1) {
    return refuse_tensor(folder, tensor, "is not one number of type F32");
  }
  float factor;
  std::memcpy(&factor, tensor.data.data(), sizeof(factor));
  if (std::isfinite(factor) && factor > 0.0f) return factor;
  return refuse_tensor(folder, tensor, "is not positive");
}

}  // namespace

bool Nvfp4Matrix::is_packed(const SafetensorsTensor& tensor) {
  return tensor.type == SafetensorsType::kU8 &&
         (tensor.name.ends_with(".weight") || tensor.name.ends_with(".weight_packed"));
}

Expected<Nvfp4Matrix> Nvfp4Matrix::of(const SafetensorsFolder& folder,
                                      const SafetensorsTensor& tensor) {
  Nvfp4Matrix matrix;
  matrix.folder_ = &folder;
  matrix.codes_ = &tensor;
  std::string stem = tensor.name;
  const bool divided = stem.ends_with(kPackedSuffix);
  if (divided) stem.resize(stem.size() - kPackedSuffix.size());
  if (tensor.shape.size() != 2 || tensor.elements() == 0) {
    return refuse_tensor(folder, tensor, "is of type U8 and no matrix");
  }
  matrix.rows_ = tensor.shape[0];
  matrix.columns_ = 2 * tensor.shape[1];
  if (matrix.columns_ % kNvfp4Block != 0) {
    return refuse_tensor(folder, tensor,
                         fmt::format("has rows of {} elements; NVFP4 is read in blocks of {}",
                                     matrix.columns_, kNvfp4Block),
                         StatusCode::kUnsupported);
  }
  matrix.scales_ = folder.find(stem + "_scale");
  const SafetensorsTensor* factor = folder.find(stem + (divided ? "_global_scale" : "_scale_2"));
  if (matrix.scales_ == nullptr || factor == nullptr) {
    return refuse_tensor(folder, tensor,
                         fmt::format("is of 4-bit floats and has no '{}_scale{}' beside it", stem,
                                     matrix.scales_ == nullptr ? ""
                                     : divided                 ? " and _global_scale"
                                                               : "_2"));
  }
  const std::vector<int64_t> wanted = {matrix.rows_, matrix.columns_ / kNvfp4Scaled};
  if (matrix.scales_->type != SafetensorsType::kF8E4M3 || matrix.scales_->shape != wanted) {
    return refuse_tensor(
        folder, *matrix.scales_,
        fmt::format("is of type {} with the shape [{}] where 4-bit floats ask for "
                    "F8_E4M3 with [{}]",
                    safetensors_type_info(matrix.scales_->type).name,
                    fmt::join(matrix.scales_->shape, ", "), fmt::join(wanted, ", ")));
  }
  AERIE_ASSIGN_OR_RETURN(const float number, read_factor(folder, *factor));
  matrix.factor_ = divided ? 1.0f / number : number;
  return matrix;
}

// A block has its four scales, then of each 16 weights the first eight in the low halves of eight
// bytes and the others in the high halves.
Expected<TensorData> Nvfp4Matrix::read() const {
  TensorData out;
  const int64_t blocks = rows_ * columns_ / kNvfp4Block;
  AERIE_ASSIGN_OR_RETURN(
      out.owned,
      Buffer::allocate(static_cast<size_t>(dtype_bytes(DType::kNVFP4, blocks * kNvfp4Block))));
  out.view = {DType::kNVFP4, Device::kCpu, {columns_, rows_, 1, 1}, out.owned.data()};
  const auto* codes = reinterpret_cast<const uint8_t*>(codes_->data.data());
  const auto* scales = reinterpret_cast<const uint8_t*>(scales_->data.data());
  auto* to = reinterpret_cast<uint8_t*>(out.owned.data());
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t s = 0; s < kNvfp4Scales; ++s) {
      if (scales[s] >= 0x7F) {
        return refuse_tensor(*folder_, *scales_, "holds a scale that is negative or no number");
      }
      *to++ = scales[s];
    }
    for (int64_t s = 0; s < kNvfp4Scales; ++s, codes += kNvfp4Scaled / 2) {
      const auto code = [&](int64_t i) { return codes[i / 2] >> (i % 2 * 4) & 15; };
      for (int64_t i = 0; i < kNvfp4Scaled / 2; ++i) {
        *to++ = static_cast<uint8_t>(code(i) | code(i + kNvfp4Scaled / 2) << 4);
      }
    }
    scales += kNvfp4Scales;
  }
  return out;
}

}  // namespace aerie
