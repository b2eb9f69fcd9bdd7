#include "model/import/folder_reader.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "format/text.h"
#include "model/import/expert_stack.h"
#include "model/import/latent_tensors.h"
#include "model/import/linear_tensors.h"
#include "model/import/weights/int4_matrix.h"
#include "model/import/weights/nvfp4_weights.h"
#include "tensor/blocks.h"

namespace aerie {
namespace {

constexpr std::string_view kBlocks = "_blocks", kBlockScales = "_scales";

Expected<TensorData> as_floats(const TensorView& from) {
  TensorData out;
  out.view = from;
  out.view.dtype = DType::kF32;
  AERIE_ASSIGN_OR_RETURN(out.owned,
                         Buffer::allocate(static_cast<size_t>(from.elements()) * sizeof(float)));
  dequantize(from.dtype, from.data, from.elements(), out.owned.as<float>().data());
  out.view.data = out.owned.data();
  return out;
}

// `shape` is the result's.
Expected<TensorData> transpose(const TensorView& from, const Shape& shape) {
  const auto bytes = static_cast<size_t>(dtype_info(from.dtype).block_bytes);
  TensorData out;
  AERIE_ASSIGN_OR_RETURN(out.owned, Buffer::allocate(static_cast<size_t>(from.bytes())));
  const auto k = static_cast<size_t>(shape[0]), n = static_cast<size_t>(shape[1]);
  for (size_t row = 0; row < n; ++row) {
    for (size_t i = 0; i < k; ++i) {
      std::memcpy(out.owned.data() + (row * k + i) * bytes, from.data + (i * n + row) * bytes,
                  bytes);
    }
  }
  out.view = {from.dtype, Device::kCpu, shape, out.owned.data()};
  return out;
}

}  // namespace

bool FolderReader::is_nvfp4(const SafetensorsTensor& tensor) const {
  return scheme_.is_nvfp4() && Nvfp4Matrix::is_packed(tensor);
}

bool FolderReader::is_int4(const SafetensorsTensor& tensor) const {
  return scheme_.is_int4() && Int4Matrix::is_packed(tensor);
}

std::vector<int64_t> FolderReader::shape_of(const SafetensorsTensor& tensor) const {
  std::vector<int64_t> shape = tensor.shape;
  if (shape.size() == 2) shape[1] *= is_nvfp4(tensor) ? 2 : is_int4(tensor) ? 8 : 1;
  return shape;
}

const SafetensorsTensor* FolderReader::scales_of(const SafetensorsTensor& tensor) const {
  if (!tensor.name.ends_with(kBlocks)) return nullptr;
  const size_t stem = tensor.name.size() - kBlocks.size();
  return tensors_.find(tensor.name.substr(0, stem).append(kBlockScales));
}

bool FolderReader::has_blocks(std::string_view scales) const {
  if (!scales.ends_with(kBlockScales)) return false;
  const std::string_view stem = scales.substr(0, scales.size() - kBlockScales.size());
  return tensors_.find(std::string(stem).append(kBlocks)) != nullptr;
}

// Rows of each head from halves that turn together to neighbours that do.
Expected<TensorData> FolderReader::turn_rows(const TensorInfo& info, const Origin& origin,
                                             const TensorView& from) const {
  const int64_t heads =
      origin.change == TensorChange::kTurnQueries ? import_.heads() : import_.kv_heads();
  const int64_t head_dim = import_.head_dim(), half = import_.rope_dimensions() / 2;
  const bool is_vector = origin.tensor->shape.size() == 1;
  const int64_t rows = is_vector ? info.shape[0] : info.shape[1];
  if (rows != heads * head_dim) {
    return invalid_data("{}: tensor '{}' has {} rows for {} heads of {}", name_,
                        printable(origin.tensor->name), rows, heads, head_dim);
  }
  const size_t bytes = static_cast<size_t>(from.bytes() / rows);
  TensorData out;
  AERIE_ASSIGN_OR_RETURN(out.owned, Buffer::allocate(static_cast<size_t>(from.bytes())));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t r = row % head_dim;
    const int64_t source = r < 2 * half ? row - r + r % 2 * half + r / 2 : row;
    std::memcpy(out.owned.data() + static_cast<size_t>(row) * bytes,
                from.data + static_cast<size_t>(source) * bytes, bytes);
  }
  out.view = from;
  out.view.data = out.owned.data();
  return out;
}

// One tensor of the folder as the type of `info`, with this shape.
Expected<TensorData> FolderReader::read_stored(const SafetensorsTensor& tensor,
                                               const TensorInfo& info, const Shape& shape) const {
  TensorData data;
  if (info.dtype == DType::kNVFP4) {
    AERIE_ASSIGN_OR_RETURN(const Nvfp4Matrix matrix, Nvfp4Matrix::of(tensors_, tensor));
    AERIE_ASSIGN_OR_RETURN(data, matrix.read());
    tensors_.release(tensor.data);
    return data;
  }
  if (is_int4(tensor)) {
    AERIE_ASSIGN_OR_RETURN(const Int4Matrix matrix, Int4Matrix::of(tensors_, tensor));
    AERIE_ASSIGN_OR_RETURN(data, matrix.read(*info.dtype));
    data.view.shape = shape;
    tensors_.release(tensor.data);
    return data;
  }
  if (QuantizationScheme::needs_scales(tensor)) {
    AERIE_ASSIGN_OR_RETURN(data, scheme_.read(tensors_, tensor, *info.dtype));
    data.view.shape = shape;
    tensors_.release(tensor.data);
    return data;
  }
  data.view = {*safetensors_type_info(tensor.type).dtype, Device::kCpu, shape, tensor.data.data()};
  if (info.dtype == data.view.dtype) return data;
  return as_floats(data.view);
}

Expected<TensorData> FolderReader::read_heads(const TensorInfo& info, const Origin& origin) const {
  Shape stored = info.shape;  // gates and inputs share a tensor
  stored[1] = origin.tensor->shape[0];
  if (origin.tensor->shape.size() == 1) stored = {origin.tensor->shape[0], 1, 1, 1};
  AERIE_ASSIGN_OR_RETURN(TensorData data, read_stored(*origin.tensor, info, stored));
  AERIE_ASSIGN_OR_RETURN(TensorData arranged,
                         arrange_heads(origin.change, import_.linear(), data.view));
  TensorData& out = arranged.owned.size() > 0 ? arranged : data;
  out.view.shape = info.shape;
  return std::move(out);
}

Expected<TensorData> FolderReader::read_stack(const TensorInfo& info, const Origin& origin) const {
  const Shape shape = {info.shape[0], info.shape[1], 1, 1};
  TensorData whole;
  whole.view = {*info.dtype, Device::kCpu, info.shape, nullptr};
  AERIE_ASSIGN_OR_RETURN(whole.owned, Buffer::allocate(static_cast<size_t>(whole.view.bytes())));
  whole.view.data = whole.owned.data();
  std::byte* to = whole.owned.data();
  for (const SafetensorsTensor* tensor : origin.stack) {
    AERIE_ASSIGN_OR_RETURN(const TensorData part, read_stored(*tensor, info, shape));
    std::memcpy(to, part.view.data, static_cast<size_t>(part.view.bytes()));
    to += part.view.bytes();
    tensors_.release(tensor->data);
  }
  return whole;
}

Expected<TensorData> FolderReader::read_factors(const TensorInfo& info, const Origin& of) const {
  TensorData out;
  AERIE_ASSIGN_OR_RETURN(out.owned, Buffer::allocate(static_cast<size_t>(info.bytes)));
  out.view = {DType::kF32, Device::kCpu, info.shape, out.owned.data()};
  const std::span<float> factors = out.owned.as<float>();
  for (size_t i = 0; i < static_cast<size_t>(info.shape[0]); ++i) {
    const SafetensorsTensor* tensor = of.stack.empty() ? of.tensor : of.stack[i];
    AERIE_ASSIGN_OR_RETURN(const Nvfp4Matrix matrix, Nvfp4Matrix::of(tensors_, *tensor));
    factors[i] = matrix.factor();
  }
  return out;
}

Expected<TensorData> FolderReader::read(const TensorInfo& info, const Origin& origin) const {
  if (!origin.stack.empty()) return read_stack(info, origin);
  if (origin.tensor == nullptr) {
    const auto* values =
        reinterpret_cast<const std::byte*>(import_.made()[origin.made].second.data());
    return TensorData{{DType::kF32, Device::kCpu, info.shape, values}, {}};
  }
  if (arranges_heads(origin.change)) return read_heads(info, origin);
  if (is_stack(origin.change)) {
    AERIE_ASSIGN_OR_RETURN(const ExpertStack stack,
                           ExpertStack::of(*origin.tensor, scales_of(*origin.tensor), origin.change,
                                           import_.experts()));
    AERIE_ASSIGN_OR_RETURN(TensorData made, stack.read());
    if (made.owned.size() > 0) tensors_.release(origin.tensor->data);
    return made;
  }
  const bool halved =
      origin.change == TensorChange::kUpperRows || origin.change == TensorChange::kLowerRows;
  const bool divided = halved || origin.change == TensorChange::kLatentKeys ||
                       origin.change == TensorChange::kLatentValues;
  const std::vector<int64_t> own = shape_of(*origin.tensor);
  AERIE_ASSIGN_OR_RETURN(
      TensorData data,
      read_stored(*origin.tensor, info, divided ? Shape{own[1], own[0], 1, 1} : info.shape));
  switch (origin.change) {
    default:
      return data;
    case TensorChange::kLowerRows:
      data.view.data = data.view.row(info.shape[1]);
      [[fallthrough]];
    case TensorChange::kUpperRows:
      data.view.shape = info.shape;
      return data;
    case TensorChange::kLatentKeys:
    case TensorChange::kLatentValues:
      return divide_latent(origin.change, import_.latent(), import_.heads(), data.view);
    case TensorChange::kTurnQueries:
    case TensorChange::kTurnKeys:
      return turn_rows(info, origin, data.view);
    case TensorChange::kTranspose:
      return transpose(data.view, info.shape);
    case TensorChange::kAddOne: {
      if (data.owned.size() == 0) {
        AERIE_ASSIGN_OR_RETURN(data, as_floats(data.view));
      }
      for (float& value : data.owned.as<float>()) value += 1.0f;
      return data;
    }
  }
  return data;
}

}  // namespace aerie
