#include "model/import/predictor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "format/converted_file.h"
#include "model/import/layer_names.h"
#include "model/registry.h"

namespace aerie {
namespace {

constexpr std::string_view kBlock = "blk.{}.";
constexpr std::string_view kProjection = ".nextn.eh_proj.weight";

// -1: of no layer.
int64_t layer_of(std::string_view tensor) {
  const LayerName at = split_layer(tensor);
  return at.stem.starts_with(kBlock) ? at.layer : -1;
}

// The first layer behind the model's; -1: the file does not say.
int64_t first_predictor(const ModelFile& file) {
  const Expected<std::string_view> family = file.string("general.architecture");
  if (!family.ok()) return -1;
  const auto count = file.integer(fmt::format("{}.nextn_predict_layers", *family));
  const auto all = file.integer(fmt::format("{}.block_count", *family));
  if (!count.ok() || !all.ok() || *count < 1 || *count >= *all) return -1;
  return *all - *count;
}

}  // namespace

bool is_of_predictor(const ModelFile& file, std::string_view tensor) {
  const int64_t first = first_predictor(file);
  return first >= 0 && layer_of(tensor) >= first;
}

bool has_predictors(const ModelFile& file) {
  const int64_t first = first_predictor(file);
  return first >= 0 && std::ranges::any_of(file.tensors(), [first](const TensorInfo& tensor) {
           return tensor.name.ends_with(kProjection) && layer_of(tensor.name) >= first;
         });
}

PredictorFile::PredictorFile(std::unique_ptr<ModelFile> file, Blueprint blueprint, ThreadPool* pool)
    : ModelFile(file->name()),
      file_(std::move(file)),
      blueprint_(std::move(blueprint)),
      first_(blueprint_.config.layers),
      pool_(pool) {}

Expected<std::unique_ptr<PredictorFile>> PredictorFile::wrap(std::unique_ptr<ModelFile> file,
                                                             std::optional<DType> type,
                                                             ThreadPool* pool) {
  if (!has_predictors(*file)) {
    return invalid_argument(
        "{}: has no module for multi-token prediction (tensors like blk.N{}, N behind the model's "
        "layers, and their number as nextn_predict_layers)",
        file->name(), kProjection);
  }
  AERIE_ASSIGN_OR_RETURN(const ModelFamily* family, find_family(*file));
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, family->read(*file));
  if (blueprint.predictors == 0) {
    return not_supported("{}: modules for multi-token prediction of the family '{}' are not read",
                         file->name(), family->architecture);
  }
  std::unique_ptr<PredictorFile> made(new PredictorFile(std::move(file), blueprint, pool));
  made->list_tensors(type);
  return made;
}

void PredictorFile::list_tensors(std::optional<DType> type) {
  std::vector<TensorInfo> infos;
  for (const TensorInfo& tensor : file_->tensors()) {
    const LayerName at = split_layer(tensor.name);
    if (!at.stem.starts_with(kBlock) || at.layer < first_) continue;
    TensorInfo info = tensor;
    info.name = names_.emplace_back(with_layer(at.stem, at.layer - first_));
    if (type && info.dtype) {
      const std::optional<DType> wanted = converted_type(info, *type, true);
      if (wanted != info.dtype) set_type(info, *wanted);
    }
    infos.push_back(info);
    origins_.push_back(&tensor);
  }
  set_contents({}, std::move(infos));
  ModelConfig& config = blueprint_.config;
  config.layers = std::exchange(blueprint_.predictors, 0);
  config.linear_layers.clear();
  config.linear = {};
  blueprint_.layers.assign(static_cast<size_t>(config.layers), LayerPlan());
  for (int i = 0; i < config.layers; ++i) {
    const std::string router = fmt::format("blk.{}.ffn_gate_inp.weight", i);
    blueprint_.layers[static_cast<size_t>(i)].experts = find_tensor(router) != nullptr;
  }
}

Expected<TensorData> PredictorFile::read_tensor(const TensorInfo& info) const {
  const TensorInfo& origin = *origins_[static_cast<size_t>(&info - tensors().data())];
  AERIE_ASSIGN_OR_RETURN(TensorData data, file_->read(origin.name));
  if (data.view.dtype == *info.dtype) return data;
  Expected<TensorData> converted = convert_values(data.view, *info.dtype, pool_);
  if (!converted.ok()) {
    return converted.status().with_context(
        fmt::format("{}: tensor '{}'", name(), file_->origin_of(origin.name)));
  }
  file_->release(data.view);
  return converted;
}

std::string PredictorFile::origin_of(std::string_view name) const {
  const TensorInfo* info = find_tensor(name);
  if (info != nullptr) {
    return file_->origin_of(origins_[static_cast<size_t>(info - tensors().data())]->name);
  }
  const LayerName at = split_layer(name);
  if (!at.stem.starts_with(kBlock)) return std::string(name);
  return file_->origin_of(with_layer(at.stem, at.layer + first_));
}

}  // namespace aerie
