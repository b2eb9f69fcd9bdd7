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
#include "format/safetensors/safetensors_folder.h"
#include "format/safetensors/safetensors_write.h"

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
      missing.push_back(parameter.name);
      continue;
    }
    const std::optional<at::ScalarType> type = float_type(found->type);
    if (!type || found->shape != parameter.value.sizes().vec()) {
      return wrong(parameter.name, "has another type or shape than what is trained");
    }
    at::Tensor values = at::empty(parameter.value.sizes(), *type);
    std::memcpy(values.data_ptr(), found->data.data(), found->data.size());
    at::Tensor(parameter.value).copy_(values);
  }
  AERIE_RETURN_IF_ERROR(files.check());
  if (missing.size() < parameters.list().size()) return missing;
  return Status(StatusCode::kInvalidArgument,
                files.name() + ": none of its tensors is trained by this method");
}

}  // namespace aerie::train
