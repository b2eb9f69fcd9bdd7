#include "train/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "format/output_file.h"
#include "format/safetensors_folder.h"
#include "format/safetensors_write.h"

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
  return tensors;
}

Status write_text(const std::string& path, const std::string& text) {
  AERIE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path));
  AERIE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
  return file.commit();
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
  return write_text(folder + "/config.json", config.dump(2) + "\n");
}

Status read_checkpoint(const std::string& folder, const std::vector<StoredTensor>& tensors) {
  AERIE_ASSIGN_OR_RETURN(const SafetensorsFolder files, SafetensorsFolder::open(folder));
  for (const StoredTensor& tensor : tensors) {
    const SafetensorsTensor* found = files.find(tensor.name);
    if (found == nullptr) {
      return {StatusCode::kNotFound,
              fmt::format("{}: has no tensor {}", files.name(), tensor.name)};
    }
    if (found->type != stored_type(tensor.values) || found->shape != tensor.values.sizes().vec()) {
      return {StatusCode::kInvalidData,
              fmt::format("{}: {} has another type or shape than what is trained", files.name(),
                          tensor.name)};
    }
    at::Tensor values = at::empty(tensor.values.sizes(),
                                  tensor.values.options().device(at::kCPU).requires_grad(false));
    std::copy_n(found->data.data(), found->data.size(), static_cast<std::byte*>(values.data_ptr()));
    const at::NoGradGuard no_grad;
    tensor.values.copy_(values);
  }
  return {};
}

}  // namespace aerie::train
