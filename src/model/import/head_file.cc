#include "model/import/head_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/errors.h"
#include "format/converted_file.h"
#include "format/gguf/gguf.h"
#include "format/text.h"
#include "model/import/hugging_face_file.h"
#include "model/import/layer_names.h"
#include "model/import/metadata_reader.h"
#include "tensor/quantize.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelPrefix = "model.";
constexpr std::string_view kGguf = ".gguf";
constexpr int64_t kMaxVocab = int64_t{1} << 24;

// Where a configuration keeps the shape of its transformer; empty: at the top.
std::string shape_key(const Json& config) {
  for (const char* key : {"transformer_layer_config", "model"}) {
    const auto part = config.find(key);
    if (part != config.end() && part->is_object()) return key;
  }
  return "";
}

constexpr std::string_view kModuleProjection = ".eh_proj.weight";

bool is_projection(const SafetensorsTensor* tensor) {
  return tensor->name.starts_with("model.layers.") &&
         tensor->name.find(kModuleProjection) != std::string::npos;
}

// Whether there is such a matrix, packed or not.
bool has_matrix(const SafetensorsFolder& tensors, const std::string& name) {
  return tensors.find(name) != nullptr || tensors.find(name + "_packed") != nullptr;
}

bool may_have_predictors(const SafetensorsFolder& tensors) {
  return has_matrix(tensors, "mtp.fc.weight") || has_matrix(tensors, "model.mtp.fc.weight") ||
         std::ranges::any_of(tensors.tensors(), is_projection);
}

bool has_experts(const SafetensorsFolder& tensors) {
  return std::ranges::any_of(tensors.tensors(), [](const SafetensorsTensor* tensor) {
    const std::string_view name = tensor->name;
    return name.find("mtp.") < name.find(".mlp.experts.") &&
           name.find(".mlp.experts.") != name.npos;
  });
}

// Whether a module's layer is one that only its family's rules read.
bool needs_family(const SafetensorsFolder& tensors) {
  return has_experts(tensors) ||
         std::ranges::any_of(tensors.tensors(), [&](const SafetensorsTensor* tensor) {
           if (!is_projection(tensor)) return false;
           const size_t stem = tensor->name.find(kModuleProjection);
           return has_matrix(tensors,
                             tensor->name.substr(0, stem) + ".self_attn.kv_a_proj_with_mqa.weight");
         });
}

Expected<Json> read_config(const std::string& path) {
  Expected<Json> json = read_json(path);
  if (!json.ok() && json.status().code() == StatusCode::kNotFound) return Json(Json::object());
  if (!json.ok()) return json.status();
  AERIE_RETURN_IF_ERROR(JsonObject::view(*json, path).status());
  return json;
}

// The type that "draft_type" in config.json says, unless another was asked for.
Status take_own_type(const Json& config, const std::string& config_file, HeadFileOptions& options) {
  constexpr std::string_view kKey = "draft_type";
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(config, config_file));
  if (options.dtype || !object.has(kKey)) return {};
  AERIE_ASSIGN_OR_RETURN(const std::string_view name, object.string(kKey));
  const std::optional<DType> type = dtype_from_name(name);
  if (!type || !can_quantize(*type)) {
    return object.error(StatusCode::kUnsupported, kKey,
                        fmt::format("is {}, not one of {}", name, quantizable_types()));
  }
  options.dtype = type;
  return {};
}

}  // namespace

HeadFile::HeadFile(std::string name, std::optional<SafetensorsFolder> tensors,
                   std::shared_ptr<const Json> config, std::string config_file,
                   const HeadFileOptions& options)
    : ModelFile(std::move(name)),
      tensors_(std::move(tensors)),
      config_(std::move(config)),
      config_file_(std::move(config_file)),
      config_text_(config_->dump(-1, ' ', false, Json::error_handler_t::replace)),
      options_(options) {}

Expected<std::unique_ptr<HeadFile>> HeadFile::of_model(std::unique_ptr<ModelFile> model,
                                                       Json config, const std::string& config_file,
                                                       const HeadFileOptions& options) {
  std::unique_ptr<HeadFile> file(new HeadFile(model->name(), std::nullopt,
                                              std::make_shared<const Json>(std::move(config)),
                                              config_file, options));
  AERIE_ASSIGN_OR_RETURN(file->predictors_,
                         PredictorFile::wrap(std::move(model), options.dtype, options.pool));
  for (const TensorInfo& tensor : file->predictors_->tensors()) {
    file->entries_.emplace_back().of_model = &tensor;
  }
  AERIE_RETURN_IF_ERROR(file->name_tensors());
  return file;
}

Expected<std::unique_ptr<HeadFile>> HeadFile::open(const std::string& path,
                                                   HeadFileOptions options) {
  if (options.dtype && !can_quantize(*options.dtype)) {
    return invalid_argument("there is no conversion to {}", dtype_info(*options.dtype).name);
  }
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return not_found(path.empty() ? "no draft head is named: give a folder with safetensors"
                                  : path + ": there is no such file or folder");
  }
  if (path.ends_with(kGguf)) {
    AERIE_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> model, GgufFile::open(path));
    return of_model(std::move(model), Json::object(), path, options);
  }
  const fs::path folder =
      fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path();
  const std::string config_file = (folder / "config.json").string();
  AERIE_ASSIGN_OR_RETURN(SafetensorsFolder tensors, SafetensorsFolder::open_any(path));
  AERIE_ASSIGN_OR_RETURN(Json config, read_config(config_file));
  AERIE_RETURN_IF_ERROR(take_own_type(config, config_file, options));
  if (may_have_predictors(tensors)) {
    auto model = open_hugging_face_predictors(path);
    if (model.ok()) return of_model(*std::move(model), std::move(config), config_file, options);
    // Without them a module is a layer of Llama's shape.
    if (needs_family(tensors)) return model.status();
  }
  std::unique_ptr<HeadFile> file(new HeadFile(path, std::move(tensors),
                                              std::make_shared<const Json>(std::move(config)),
                                              config_file, options));
  AERIE_ASSIGN_OR_RETURN(file->scheme_, QuantizationScheme::read(file->config_object()));
  if (file->scheme_.is_nvfp4()) {
    return file->config_object().error(StatusCode::kUnsupported, "quantization_config",
                                       "says NVFP4, of which models are read and heads are not");
  }
  file->shape_ = file->import_shape();
  AERIE_RETURN_IF_ERROR(file->list_tensors());
  AERIE_RETURN_IF_ERROR(file->name_tensors());
  return file;
}

JsonObject HeadFile::config_object() const {
  return *JsonObject::view(*config_, config_file_);
}

// Heads that are no transformers (Medusa's, recurrent ones) have another configuration, so an error
// counts only for those who want a blueprint.
Status HeadFile::import_shape() {
  const std::string key = shape_key(*config_);
  AERIE_ASSIGN_OR_RETURN(
      HuggingFaceImport import,
      key.empty() ? HuggingFaceImport::create(*config_, config_file_)
                  : HuggingFaceImport::create(config_->at(key), config_file_ + ": " + key));
  const JsonObject config = import.config();
  AERIE_ASSIGN_OR_RETURN(const std::string_view type, config.string("model_type", "llama"));
  AERIE_ASSIGN_OR_RETURN(const int64_t vocab, config.integer_in("vocab_size", 1, kMaxVocab));
  import.set_architecture("llama");
  // Qwen3's configurations may leave it out.
  const int head_dim = type == "qwen3" ? 128 : 0;
  AERIE_RETURN_IF_ERROR(import.copy_llama_shape({.sizes = {.head_dim = head_dim}}));
  if (type.starts_with("qwen")) AERIE_RETURN_IF_ERROR(import.add_qwen_windows());
  import.add_integer("vocab_size", vocab, "vocab_size");
  import_ = std::move(import);
  return {};
}

Status HeadFile::list_tensors() {
  HuggingFaceImport rules = *HuggingFaceImport::create(Json::object(), config_file_);
  rules.add_llama_rules(false);
  rules.add_rule("model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm");
  rules.add_rule("model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm");
  for (const TensorRule& rule : rules.rules()) {
    if (rule.from.find("{}") == std::string::npos) continue;
    layer_rules_.emplace(rule.from.substr(kModelPrefix.size()), rule.to);
  }
  for (const SafetensorsTensor* tensor : tensors_->tensors()) {
    AERIE_RETURN_IF_ERROR(list_tensor(*tensor));
  }
  if (import_) shape_metadata_ = import_->metadata().release();
  return {};
}

Status HeadFile::list_tensor(const SafetensorsTensor& tensor) {
  if (tensor.elements() == 0 || tensor.shape.size() > Shape().size()) {
    return refuse(StatusCode::kUnsupported, tensor.name,
                  fmt::format("has {} dimensions and {} elements; up to {} dimensions and at "
                              "least one element are read",
                              tensor.shape.size(), tensor.elements(), Shape().size()));
  }
  if (scheme_.is_quantized() && scheme_.is_scale(tensor.name)) {
    return scheme_.check_scale(*tensors_, tensor);
  }
  Entry entry;
  entry.tensor = &tensor;
  entry.stored = safetensors_type_info(tensor.type).dtype;
  // Others of such types are lists of tokens and the like.
  if (scheme_.is_int4() && Int4Matrix::is_packed(tensor)) {
    AERIE_ASSIGN_OR_RETURN(entry.packed, Int4Matrix::of(*tensors_, tensor));
    entry.stored = entry.packed->type();
  }
  entry.scaled = scheme_.is_quantized() && QuantizationScheme::needs_scales(tensor) &&
                 tensor.name.ends_with(".weight");
  if (entry.scaled) {
    AERIE_ASSIGN_OR_RETURN(entry.stored, scheme_.type_of(*tensors_, tensor));
  }
  entries_.push_back(std::move(entry));
  return {};
}

// "layers.3.mlp.up_proj.weight" -> "blk.3.ffn_up.weight"; other names stay.
std::string HeadFile::name_in_layer(std::string name) const {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return name;
  const std::string suffix = name.substr(dot);
  const LayerName at = split_layer(std::string_view(name).substr(0, dot));
  const auto rule = layer_rules_.find(at.stem);
  if (at.layer < 0 || rule == layer_rules_.end()) return name;
  if (suffix != ".weight" && suffix != ".bias") return name;
  return with_layer(rule->second, at.layer) + suffix;
}

Status HeadFile::name_tensors() {
  std::erase_if(entries_, [](const Entry& entry) {
    return entry.tensor == nullptr && entry.of_model == nullptr;
  });
  // Names point into the entries, which must not move.
  entries_.reserve(entries_.size() + (import_ ? import_->made().size() : 0));
  std::unordered_set<std::string_view> names;
  bool has_layers = false;
  for (Entry& entry : entries_) {
    entry.name = stored_name(entry);
    for (const auto& [from, to] : prefixes_) {
      if (!entry.name.starts_with(from)) continue;
      entry.name.replace(0, from.size(), to);
      break;
    }
    entry.name = name_in_layer(std::move(entry.name));
    has_layers |= entry.name.starts_with("blk.");
    if (!names.insert(entry.name).second) {
      return refuse(StatusCode::kInvalidData, stored_name(entry),
                    fmt::format("would be called '{}', as another one is", printable(entry.name)));
    }
  }
  const size_t made = import_ && has_layers ? import_->made().size() : 0;
  for (size_t i = 0; i < made; ++i) {
    Entry& entry = entries_.emplace_back();
    entry.made = i;
    entry.name = import_->made()[i].first;
    if (names.contains(entries_.back().name)) {
      return refuse(StatusCode::kInvalidData, entries_.back().name,
                    "is there, and the configuration makes one of the same name");
    }
  }
  std::vector<TensorInfo> infos;
  for (const Entry& entry : entries_) infos.push_back(describe(entry));
  set_contents(shape_metadata_, std::move(infos));
  return {};
}

std::string HeadFile::stored_name(const Entry& entry) const {
  if (entry.packed) return Int4Matrix::weight_name(*entry.tensor);
  return entry.tensor != nullptr ? entry.tensor->name : std::string(entry.of_model->name);
}

// As files of safetensors say it: the innermost last, and no size of 1 that nobody wrote.
std::vector<int64_t> HeadFile::stored_shape(const Entry& entry) const {
  if (entry.packed) return {entry.packed->rows(), entry.packed->columns()};
  if (entry.tensor != nullptr) return entry.tensor->shape;
  const Shape& shape = entry.of_model->shape;
  const auto end =
      std::find_if(shape.rbegin(), shape.rend(), [](int64_t size) { return size > 1; });
  return {end, shape.rend()};
}

TensorInfo HeadFile::describe(const Entry& entry) const {
  TensorInfo info;
  if (entry.of_model != nullptr) {
    info = *entry.of_model;
    info.name = entry.name;
    if (entry.rows.empty()) return info;
    info.shape[stored_shape(entry).size() == 2 ? 1 : 0] = static_cast<int64_t>(entry.rows.size());
    if (info.dtype) set_type(info, *info.dtype);
    return info;
  }
  info.name = entry.name;
  if (entry.tensor == nullptr) {
    info.shape[0] = static_cast<int64_t>(import_->made()[entry.made].second.size());
    set_type(info, DType::kF32);
    return info;
  }
  const std::vector<int64_t> shape = stored_shape(entry);
  std::reverse_copy(shape.begin(), shape.end(), info.shape.begin());
  const bool is_matrix = shape.size() == 2;
  if (!entry.rows.empty()) info.shape[is_matrix ? 1 : 0] = static_cast<int64_t>(entry.rows.size());
  if (!entry.stored) {
    info.type_name = safetensors_type_info(entry.tensor->type).name;
    info.bytes = static_cast<int64_t>(entry.tensor->data.size());
    return info;
  }
  DType wanted = is_matrix ? options_.dtype.value_or(*entry.stored) : *entry.stored;
  if (info.shape[0] % dtype_info(wanted).block_elements != 0) {
    wanted = entry.stored == DType::kBF16 ? DType::kBF16 : DType::kF16;
  }
  set_type(info, wanted);
  return info;
}

Status HeadFile::rename_prefix(std::string_view from, std::string_view to) {
  prefixes_.emplace_back(from, to);
  return name_tensors();
}

HeadFile::Entry* HeadFile::find_entry(std::string_view name) {
  const TensorInfo* info = find_tensor(name);
  return info == nullptr ? nullptr : &entries_[static_cast<size_t>(info - tensors().data())];
}

Status HeadFile::keep_rows(std::string_view name, std::vector<int32_t> ids) {
  AERIE_RETURN_IF_ERROR(tensor_info(name).status());
  Entry& entry = *find_entry(name);
  const bool is_made = entry.tensor == nullptr && entry.of_model == nullptr;
  const std::vector<int64_t> shape = is_made ? std::vector<int64_t>() : stored_shape(entry);
  if (shape.empty() || shape.size() > 2) {
    return refuse(StatusCode::kUnsupported, origin_of(name), "is neither a matrix nor a vector");
  }
  const int64_t rows = shape[0];
  // select_rows() would take it for a vector.
  if (rows == 1 && shape.size() == 2) {
    return refuse(StatusCode::kUnsupported, stored_name(entry), "has one row, no vocabulary");
  }
  for (const int32_t id : ids) {
    if (id >= 0 && id < rows) continue;
    return refuse(StatusCode::kInvalidArgument, stored_name(entry),
                  fmt::format("has {} rows, and row {} is to be kept", rows, id));
  }
  if (ids.empty()) {
    return refuse(StatusCode::kInvalidArgument, stored_name(entry), "is to keep no rows");
  }
  entry.source = fmt::format("rows of {}: {}", stored_name(entry), fmt::join(ids, " "));
  entry.rows = std::move(ids);
  return name_tensors();
}

Expected<std::vector<int64_t>> HeadFile::integers(std::string_view name) const {
  const TensorInfo* info = find_tensor(name);
  if (info == nullptr) {
    return not_found("{}: there is no tensor '{}'", this->name(), printable(name));
  }
  const Entry& entry = entries_[static_cast<size_t>(info - tensors().data())];
  if (entry.tensor == nullptr) {
    return refuse(StatusCode::kUnsupported, name,
                  fmt::format("is of type {}; integers are wanted", info->type_name));
  }
  Expected<std::vector<int64_t>> values = read_integers(*entry.tensor);
  if (values.ok()) return values;
  return values.status().with_context(this->name());
}

Expected<Blueprint> HeadFile::blueprint() const {
  if (predictors_ != nullptr) return predictors_->blueprint();
  if (!shape_.ok()) return shape_;
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, MetadataReader(*this).read_llama_shape());
  blueprint.rope_style = kernels::RopeStyle::kHalves;
  blueprint.query_key_norm = find_tensor("blk.0.attn_q_norm.weight") != nullptr
                                 ? QueryKeyNorm::kHead
                                 : QueryKeyNorm::kNone;
  return blueprint;
}

// All rows, as the files have them.
Expected<TensorData> HeadFile::read_stored(const Entry& entry) const {
  if (entry.of_model != nullptr) return predictors_->read(entry.of_model->name);
  if (entry.packed) return entry.packed->read(*entry.stored);
  if (entry.scaled) return scheme_.read(*tensors_, *entry.tensor, *entry.stored);
  TensorData data;
  data.view.dtype = *entry.stored;
  data.view.data = entry.tensor->data.data();
  data.view.shape = {1, 1, 1, 1};
  std::reverse_copy(entry.tensor->shape.begin(), entry.tensor->shape.end(),
                    data.view.shape.begin());
  return data;
}

Expected<TensorData> HeadFile::read_tensor(const TensorInfo& info) const {
  const Entry& entry = entries_[static_cast<size_t>(&info - tensors().data())];
  TensorData data;
  if (entry.tensor == nullptr && entry.of_model == nullptr) {
    const std::vector<float>& values = import_->made()[entry.made].second;
    data.view = {DType::kF32, Device::kCpu, info.shape,
                 reinterpret_cast<const std::byte*>(values.data())};
    return data;
  }
  AERIE_ASSIGN_OR_RETURN(data, read_stored(entry));
  if (!entry.rows.empty()) {
    AERIE_ASSIGN_OR_RETURN(data, select_rows(data, entry.rows));
    data.view.shape = info.shape;
  }
  if (data.view.dtype != *info.dtype) {
    Expected<TensorData> converted = convert_values(data.view, *info.dtype, options_.pool);
    if (!converted.ok()) {
      return converted.status().with_context(
          fmt::format("{}: tensor '{}'", name(), printable(stored_name(entry))));
    }
    data = *std::move(converted);
  }
  if (data.owned.size() > 0 && entry.tensor != nullptr) tensors_->release(entry.tensor->data);
  return data;
}

std::string HeadFile::format() const {
  return predictors_ != nullptr ? predictors_->format() : "safetensors";
}

int64_t HeadFile::file_bytes() const {
  return predictors_ != nullptr ? predictors_->file_bytes() : tensors_->file_bytes();
}

Status HeadFile::check_intact() const {
  return predictors_ != nullptr ? predictors_->check_intact() : tensors_->check();
}

void HeadFile::release(const TensorView& view) const {
  if (predictors_ != nullptr) return predictors_->release(view);
  if (view.valid()) tensors_->release({view.data, static_cast<size_t>(view.bytes())});
}

std::vector<SourceFile> HeadFile::sources() const {
  std::vector<SourceFile> files =
      predictors_ != nullptr ? predictors_->sources() : tensors_->sources();
  if (predictors_ == nullptr) {
    SourceFile& config = files.emplace_back();
    config.path = config_file_;
    config.bytes = std::as_bytes(std::span(config_text_));
  }
  for (const Entry& entry : entries_) {
    if (entry.source.empty()) continue;
    SourceFile& rows = files.emplace_back();
    rows.path = name();
    rows.bytes = std::as_bytes(std::span(entry.source));
  }
  return files;
}

std::string HeadFile::origin_of(std::string_view name) const {
  const TensorInfo* info = find_tensor(name);
  if (info != nullptr) {
    const Entry& entry = entries_[static_cast<size_t>(info - tensors().data())];
    if (entry.of_model != nullptr) return predictors_->origin_of(entry.of_model->name);
    return entry.tensor != nullptr ? stored_name(entry) : entry.name;
  }
  if (predictors_ == nullptr) return std::string(name);
  for (const auto& [from, to] : prefixes_) {
    if (name.starts_with(to)) {
      return predictors_->origin_of(from + std::string(name.substr(to.size())));
    }
  }
  return predictors_->origin_of(name);
}

std::string HeadFile::origin_of_key(std::string_view key) const {
  return import_ ? import_->origin_of_key(key) : std::string(key);
}

Status HeadFile::refuse(StatusCode code, std::string_view tensor, std::string_view why) const {
  return {code, fmt::format("{}: tensor '{}' {}", name(), printable(tensor), why)};
}

}  // namespace aerie
