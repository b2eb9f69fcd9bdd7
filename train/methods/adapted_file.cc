#include "train/methods/adapted_file.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/model_source.h"
#include "format/converted_file.h"
#include "format/gguf/gguf_write.h"
#include "format/gguf/metadata_builder.h"

namespace aerie::train {
namespace {

// GGUF's numbers of what most of a file's weights are.
constexpr uint32_t kMostlyF32 = 0, kMostlyF16 = 1;

class AdaptedFile final : public ModelFile {
 public:
  static Expected<std::unique_ptr<AdaptedFile>> wrap(std::unique_ptr<ModelFile> file,
                                                     AdaptedWeights weights);

  std::string format() const override { return file_->format() + ", adapted"; }
  int64_t file_bytes() const override { return file_->file_bytes(); }  // of what is read
  Status check_intact() const override { return file_->check_intact(); }
  void release(const TensorView& view) const override { file_->release(view); }
  std::string origin_of(std::string_view name) const override { return file_->origin_of(name); }

 private:
  AdaptedFile(std::unique_ptr<ModelFile> file, AdaptedWeights weights)
      : ModelFile(file->name()), file_(std::move(file)), weights_(std::move(weights)) {}
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override;

  std::unique_ptr<ModelFile> file_;
  AdaptedWeights weights_;  // on the CPU, contiguous
  MetadataBuilder builder_;
};

Expected<std::unique_ptr<AdaptedFile>> AdaptedFile::wrap(std::unique_ptr<ModelFile> file,
                                                         AdaptedWeights weights) {
  std::unique_ptr<AdaptedFile> made(new AdaptedFile(std::move(file), std::move(weights)));
  const ModelFile& source = *made->file_;
  for (const auto& [name, values] : made->weights_) {
    AERIE_ASSIGN_OR_RETURN(const TensorInfo* info, source.tensor_info(name));
    const int64_t outputs = values.dim() == 1 ? 1 : values.size(0);
    const Shape shape = {values.size(-1), outputs, 1, 1};
    if (info->shape == shape) continue;
    return Status(StatusCode::kInvalidData,
                  fmt::format("{}: {} is {}, and what was made of it {}", source.name(), name,
                              shape_to_string(info->shape), shape_to_string(shape)));
  }
  uint32_t type = kMostlyF32;
  std::vector<TensorInfo> tensors(source.tensors().begin(), source.tensors().end());
  for (TensorInfo& tensor : tensors) {
    if (!made->weights_.contains(std::string(tensor.name))) continue;
    if (tensor.dtype == DType::kF32) continue;
    set_type(tensor, DType::kF16);
    type = kMostlyF16;
  }
  for (const auto& [key, value] : source.metadata()) made->builder_.add(std::string(key), value);
  made->builder_.add_u32("general.file_type", type);
  made->set_contents(made->builder_.release(), std::move(tensors));
  return made;
}

Expected<TensorData> AdaptedFile::read_tensor(const TensorInfo& tensor) const {
  const auto found = weights_.find(std::string(tensor.name));
  if (found == weights_.end()) return file_->read(tensor.name);
  const TensorView floats = {DType::kF32, Device::kCpu, tensor.shape,
                             static_cast<const std::byte*>(found->second.data_ptr())};
  Expected<TensorData> made = convert_values(floats, *tensor.dtype, nullptr);
  if (made.ok()) return made;
  return made.status().with_context(found->first);
}

}  // namespace

Status write_adapted_model(const Target& target, const AdaptedWeights& weights,
                           const std::string& path) {
  std::vector<std::string> notes;
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<ModelFile> file, open_whole_model(target.path(), notes));
  AdaptedWeights ordered;
  for (const auto& [name, values] : weights) {
    ordered[name] =
        target.in_file_order(name, values.detach()).to(at::kCPU, at::kFloat).contiguous();
  }
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<AdaptedFile> adapted,
                         AdaptedFile::wrap(std::move(file), std::move(ordered)));
  return write_gguf(*adapted, path);
}

}  // namespace aerie::train
