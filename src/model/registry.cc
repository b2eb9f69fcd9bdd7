#include "model/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/llama.h"

namespace aerie {
namespace {

constexpr ModelFamily kFamilies[] = {
    {"llama", read_llama_config, load_llama},
};

Expected<const ModelFamily*> family_of(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view architecture, file.string("general.architecture"));
  std::string known;
  for (const ModelFamily& family : kFamilies) {
    if (family.architecture == architecture) return &family;
    if (!known.empty()) known += ", ";
    known += family.architecture;
  }
  return Status(StatusCode::kUnsupported,
                fmt::format("{}: the model family '{}' is not supported; these are: {}",
                            file.name(), architecture, known));
}

}  // namespace

std::span<const ModelFamily> model_families() {
  return kFamilies;
}

int64_t packed_weight_bytes(const ModelFile& file, const kernels::Backend& backend) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (!tensor.dtype) continue;
    bytes += backend.packed_bytes({*tensor.dtype, Device::kCpu, tensor.shape, nullptr});
  }
  return bytes;
}

int64_t working_bytes(const ModelConfig& config, const ModelOptions& options) {
  const int64_t widths = int64_t{4} * (config.hidden + config.q_width()) + 2 * config.kv_width() +
                         int64_t{4} * config.ffn;
  const int64_t chunks = options.max_positions / kernels::kAttentionChunk + 1;
  const int64_t partials =
      std::min<int64_t>(options.max_rows, kernels::AttentionWorkspace::kSplitRows) * config.heads *
      chunks * (config.head_dim + 16);
  const int64_t logits = int64_t{options.max_logits} * config.vocab;
  return (widths * options.max_rows + partials + logits) * int64_t{sizeof(float)};
}

Expected<ModelConfig> read_model_config(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(const ModelFamily* family, family_of(file));
  return family->read_config(file);
}

Expected<std::unique_ptr<Model>> load_model(const ModelFile& file, const ModelOptions& options) {
  AERIE_ASSIGN_OR_RETURN(const ModelFamily* family, family_of(file));
  return family->load(file, options);
}

}  // namespace aerie
