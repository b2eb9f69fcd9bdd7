#include "train/run/checkpoint_files.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "format/output_file.h"
#include "format/safetensors/int8_weights.h"
#include "format/safetensors/safetensors_folder.h"
#include "format/safetensors/safetensors_write.h"
#include "model/import/weights/int4_matrix.h"

namespace aerie::train {
namespace {

constexpr const char* kTensors = "model.safetensors";

SafetensorsType stored_type(const at::Tensor& values) {
  switch (values.scalar_type()) {
    case at::kLong:
      return SafetensorsType::kI64;
    case at::kBool:
      return SafetensorsType::kBool;
    case at::kBFloat16:
      return SafetensorsType::kBF16;
    default:
      return SafetensorsType::kF32;
  }
}

std::optional<at::ScalarType> float_type(SafetensorsType type) {
  switch (type) {
    case SafetensorsType::kF32:
      return at::kFloat;
    case SafetensorsType::kF16:
      return at::kHalf;
    case SafetensorsType::kBF16:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

// As bytes in memory of the CPU.
at::Tensor plain(const at::Tensor& values) {
  const bool as_is = stored_type(values) != SafetensorsType::kF32;
  return values.detach().to(at::kCPU, as_is ? values.scalar_type() : at::kFloat).contiguous();
}

std::span<const std::byte> bytes_of(const at::Tensor& values) {
  return {static_cast<const std::byte*>(values.data_ptr()), values.nbytes()};
}

// A matrix of floats, or of integers with scales beside it (format/safetensors/int8_weights.h).
// None if it is of another type or shape.
std::optional<at::Tensor> read_floats(const SafetensorsFolder& files, const SafetensorsTensor& from,
                                      at::IntArrayRef shape) {
  if (from.shape != shape.vec()) return std::nullopt;
  const auto raw = [](const SafetensorsTensor& tensor, at::ScalarType type) {
    at::Tensor values = at::empty(tensor.shape, type);
    std::memcpy(values.data_ptr(), tensor.data.data(), tensor.data.size());
    return values;
  };
  if (const auto type = float_type(from.type)) return raw(from, *type);
  const SafetensorsTensor* scales = files.find(from.name + "_scale");
  const bool has_scales = from.type == SafetensorsType::kI8 && shape.size() == 2 &&
                          shape[1] % kInt8Group == 0 && scales != nullptr &&
                          scales->type == SafetensorsType::kF16 &&
                          scales->shape == std::vector<int64_t>{shape[0], shape[1] / kInt8Group};
  if (!has_scales) return std::nullopt;
  const at::Tensor codes = raw(from, at::kChar).to(at::kFloat).view({shape[0], -1, kInt8Group});
  return (codes * raw(*scales, at::kHalf).to(at::kFloat).unsqueeze(2)).view(shape);
}

// The same of integers of 4 bits (format/safetensors/int4_weights.h); null: there are none.
Expected<at::Tensor> read_packed(const SafetensorsFolder& files, const std::string& name) {
  const SafetensorsTensor* packed = files.find(name + "_packed");
  if (packed == nullptr || !Int4Matrix::is_packed(*packed)) return at::Tensor();
  AERIE_ASSIGN_OR_RETURN(const Int4Matrix matrix, Int4Matrix::of(files, *packed));
  AERIE_ASSIGN_OR_RETURN(const TensorData data, matrix.read(DType::kF32));
  at::Tensor values = at::empty({matrix.rows(), matrix.columns()}, at::kFloat);
  std::memcpy(values.data_ptr(), data.view.data, static_cast<size_t>(data.view.bytes()));
  return values;
}

}  // namespace

std::vector<StoredTensor> stored_parameters(const Parameters& parameters, bool bf16) {
  std::vector<StoredTensor> tensors;
  for (const Parameter& parameter : parameters.list()) {
    const bool narrow = bf16 && parameter.value.dim() > 1;
    tensors.push_back(
        {parameter.name, parameter.value.detach().to(narrow ? at::kBFloat16 : at::kFloat)});
  }
  for (const FixedTensor& tensor : parameters.fixed()) {
    tensors.push_back({tensor.name, tensor.values});
  }
  return tensors;
}

Status write_checkpoint(const std::string& folder, const std::vector<StoredTensor>& tensors,
                        const Json& config) {
  std::vector<SafetensorsEntry> entries;
  entries.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) {
    entries.push_back({tensor.name, stored_type(tensor.values), tensor.values.sizes().vec()});
  }
  const std::pair<std::string, std::string> format = {"format", "pt"};
  const auto written = write_safetensors(folder + "/" + kTensors, entries, {&format, 1},
                                         [&tensors](size_t index, const ByteSink& sink) {
                                           const at::Tensor values = plain(tensors[index].values);
                                           return sink(bytes_of(values));
                                         });
  AERIE_RETURN_IF_ERROR(written.status());
  return write_file(folder + "/config.json", config.dump(2) + "\n");
}

Status add_to_config(const std::string& folder, const std::string& key, const std::string& value) {
  const std::string path = folder + "/config.json";
  AERIE_ASSIGN_OR_RETURN(Json config, read_json(path));
  config[key] = value;
  return write_file(path, config.dump(2) + "\n");
}

Expected<std::vector<std::string>> read_parameters(const std::string& folder,
                                                   const Parameters& parameters) {
  AERIE_ASSIGN_OR_RETURN(const SafetensorsFolder files, SafetensorsFolder::open(folder));
  const auto wrong = [&](const std::string& name, const char* what) {
    return Status(StatusCode::kInvalidArgument, fmt::format("{}: {} {}", files.name(), name, what));
  };
  for (const FixedTensor& tensor : parameters.fixed()) {
    const SafetensorsTensor* found = files.find(tensor.name);
    if (found == nullptr) continue;
    const at::Tensor here = plain(tensor.values);
    if (found->type != stored_type(here) || !std::ranges::equal(found->data, bytes_of(here))) {
      return wrong(tensor.name,
                   "is not that of this training, which drafts other tokens: train on the same "
                   "data with the same --draft-vocab");
    }
  }
  std::vector<std::string> missing;
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : parameters.list()) {
    const SafetensorsTensor* found = files.find(parameter.name);
    if (found == nullptr) {
      AERIE_ASSIGN_OR_RETURN(const at::Tensor values, read_packed(files, parameter.name));
      if (!values.defined()) {
        missing.push_back(parameter.name);
        continue;
      }
      if (values.sizes() != parameter.value.sizes()) {
        return wrong(parameter.name, "has another shape than what is trained");
      }
      at::Tensor(parameter.value).copy_(values);
      continue;
    }
    const auto values = read_floats(files, *found, parameter.value.sizes());
    if (!values) return wrong(parameter.name, "has another type or shape than what is trained");
    at::Tensor(parameter.value).copy_(*values);
  }
  AERIE_RETURN_IF_ERROR(files.check());
  if (missing.size() < parameters.list().size()) return missing;
  return Status(StatusCode::kInvalidArgument,
                files.name() + ": none of its tensors is trained by this method");
}

}  // namespace aerie::train
