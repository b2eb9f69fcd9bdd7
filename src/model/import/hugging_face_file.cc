#include "model/import/hugging_face_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "base/errors.h"
#include "base/files.h"
#include "base/log.h"
#include "format/gguf/gguf.h"
#include "format/json.h"
#include "format/safetensors/safetensors_folder.h"
#include "format/text.h"
#include "model/import/expert_stack.h"
#include "model/import/folder_reader.h"
#include "model/import/hugging_face_import.h"
#include "model/import/latent_tensors.h"
#include "model/import/layer_names.h"
#include "model/import/linear_tensors.h"
#include "model/import/suggested_sampling.h"
#include "model/import/weights/int4_matrix.h"
#include "model/import/weights/nvfp4_weights.h"
#include "model/import/weights/quantization_scheme.h"
#include "model/pooling.h"
#include "model/registry.h"

namespace aerie {
namespace {

constexpr std::string_view kPackedEnd = "_packed";  // of 4-bit weights
constexpr const char* kVocab = "vocab_size";
constexpr int64_t kMostVocab = int64_t{1} << 24;
constexpr const char* kTied = "tie_word_embeddings";
constexpr const char* kTargetVocab = "target_vocab_size";
constexpr int64_t kMostDraftIds = int64_t{1} << 24;

enum class Part : uint8_t {
  kAll,
  kModel,       // without modules for multi-token prediction
  kPredictors,  // these alone
};

class HuggingFaceFile final : public ModelFile {
 public:
  HuggingFaceFile(std::string name, SafetensorsFolder tensors, QuantizationScheme scheme,
                  HuggingFaceImport import)
      : ModelFile(std::move(name)),
        tensors_(std::move(tensors)),
        scheme_(std::move(scheme)),
        import_(std::move(import)),
        reader_(this->name(), tensors_, scheme_, import_),
        config_(
            import_.whole_config().json().dump(-1, ' ', false, Json::error_handler_t::replace)) {}

  // `part` is what is wanted of the folder.
  Status place_tensors(Part part, const AddMetadata& more);

  std::string format() const override { return "Hugging Face folder"; }
  int64_t file_bytes() const override { return tensors_.file_bytes(); }
  Status check_intact() const override { return tensors_.check(); }
  void release(const TensorView& view) const override {
    if (view.valid()) tensors_.release({view.data, static_cast<size_t>(view.bytes())});
  }
  std::vector<SourceFile> sources() const override;

 private:
  bool is_of_predictor(std::string_view name) const {
    return split_layer(name).layer >= import_.layers();
  }
  std::string family_name(const SafetensorsTensor& tensor) const;
  Status place(const SafetensorsTensor& tensor, bool tied);
  Expected<DType> stored_type(const SafetensorsTensor& tensor, TensorChange change) const;
  Status place_plain(const SafetensorsTensor& tensor, TensorChange change, std::string gguf);
  Status place_heads(const SafetensorsTensor& tensor, const TensorRule& rule, std::string gguf,
                     int64_t layer);
  Status place_latent(const SafetensorsTensor& tensor, const TensorRule& rule, int64_t layer);
  Status place_halves(const SafetensorsTensor& tensor, const TensorRule& rule, int64_t layer);
  Status place_stack(const SafetensorsTensor& tensor, const TensorRule& rule, int64_t layer,
                     std::string_view suffix);
  Status place_expert(const SafetensorsTensor& tensor, std::string gguf, int64_t expert);
  Status add_draft_ids(const SafetensorsTensor& tensor);
  Status finish(const AddMetadata& more);
  Status check_layers();
  Status check_stacks() const;
  void add(std::string name, DType dtype, Shape shape, Origin origin);
  void add_factors(std::string_view gguf, int64_t count);
  Status refuse(StatusCode code, std::string_view tensor, std::string_view why) const {
    return {code, fmt::format("{}: tensor '{}' {}", name(), printable(tensor), why)};
  }

  std::string origin_of(std::string_view name) const override;
  std::string origin_of_key(std::string_view key) const override {
    return import_.origin_of_key(key);
  }
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override {
    const Origin& origin = origins_[static_cast<size_t>(&tensor - tensors().data())];
    if (origin.factors_of) return reader_.read_factors(tensor, origins_[*origin.factors_of]);
    return reader_.read(tensor, origin);
  }

  SafetensorsFolder tensors_;
  QuantizationScheme scheme_;
  HuggingFaceImport import_;
  FolderReader reader_;
  std::string config_;  // as it was read
  Part part_ = Part::kAll;
  std::map<std::string, const TensorRule*, std::less<>> rules_;
  std::deque<std::string> names_;
  std::unordered_set<std::string_view> placed_;
  std::map<std::string, size_t, std::less<>> stacks_;  // indices of infos_
  // "model.layers.{}.mlp.up_proj.weight" -> in how many layers it is
  std::map<std::string, int64_t, std::less<>> layers_with_;
  std::vector<TensorInfo> infos_;
  std::vector<Origin> origins_;
};

void HuggingFaceFile::add(std::string name, DType dtype, Shape shape, Origin origin) {
  TensorInfo info;
  info.name = names_.emplace_back(std::move(name));
  info.shape = shape;
  set_type(info, dtype);
  placed_.insert(info.name);
  infos_.push_back(info);
  origins_.push_back(std::move(origin));
}

// Of the tensor that was added last, which has the name `gguf`.
void HuggingFaceFile::add_factors(std::string_view gguf, int64_t count) {
  Origin origin;
  origin.factors_of = infos_.size() - 1;
  add(std::string(gguf.substr(0, gguf.rfind('.'))) + ".scale", DType::kF32, {count, 1, 1, 1},
      std::move(origin));
}

// What the family's rules call a tensor.
std::string HuggingFaceFile::family_name(const SafetensorsTensor& tensor) const {
  std::string name = import_.renamed(tensor.name);
  const bool packed = reader_.is_nvfp4(tensor) || reader_.is_int4(tensor);
  if (packed && name.ends_with(kPackedEnd)) name.resize(name.size() - kPackedEnd.size());
  return name;
}

Status HuggingFaceFile::place(const SafetensorsTensor& tensor, bool tied) {
  const std::string name = family_name(tensor);
  if (name.empty() || (part_ == Part::kPredictors && !is_of_predictor(name))) return {};
  if (name == "d2t") return add_draft_ids(tensor);
  if (scheme_.is_scale(name)) return scheme_.check_scale(tensors_, tensor);
  if (reader_.has_blocks(tensor.name)) return {};
  if (tied && name == "lm_head.weight") return {};
  // A rule may be for the name as a whole: one about heads, or one that says ".bias" itself.
  ExpertName at = split_expert(name);
  auto rule = rules_.find(at.stem);
  std::string_view suffix;
  const bool is_whole = rule != rules_.end() && (arranges_heads(rule->second->change) ||
                                                 rule->second->to.ends_with(".bias") ||
                                                 rule->second->to.ends_with(".scale"));
  if (!is_whole) {
    const size_t dot = name.rfind('.');
    if (dot != std::string::npos) suffix = std::string_view(name).substr(dot);
    at = split_expert(std::string_view(name).substr(0, dot));
    rule = rules_.find(at.stem);
    if (suffix != ".weight" && suffix != ".bias") rule = rules_.end();
  }
  const bool numbered = at.layer >= 0 || at.stem.find("{}") == std::string::npos;
  if (rule == rules_.end() || !numbered) {
    return refuse(StatusCode::kUnsupported, tensor.name,
                  fmt::format("has no place in a model of the family '{}' as it is supported here",
                              import_.architecture()));
  }
  if (at.layer >= import_.layers() + import_.predictors()) {
    return refuse(StatusCode::kInvalidData, tensor.name,
                  fmt::format("is of layer {}, and there are {}", at.layer, import_.layers()));
  }
  std::string gguf = with_layer(rule->second->to, at.layer).append(suffix);
  if (at.expert >= 0) return place_expert(tensor, std::move(gguf), at.expert);
  if (at.layer >= 0 && at.layer < import_.layers()) ++layers_with_[at.stem + std::string(suffix)];
  if (placed_.contains(gguf)) {
    return refuse(StatusCode::kInvalidData, tensor.name, "is there twice under two names");
  }
  const TensorChange change = rule->second->change;
  if (change == TensorChange::kLatentKeys) return place_latent(tensor, *rule->second, at.layer);
  if (change == TensorChange::kUpperRows) return place_halves(tensor, *rule->second, at.layer);
  if (is_stack(change)) return place_stack(tensor, *rule->second, at.layer, suffix);
  if (arranges_heads(change)) {
    return place_heads(tensor, *rule->second, std::move(gguf), at.layer);
  }
  return place_plain(tensor, change, std::move(gguf));
}

// A vector or a matrix that is one of the file's, too.
Status HuggingFaceFile::place_plain(const SafetensorsTensor& tensor, TensorChange change,
                                    std::string gguf) {
  if (tensor.elements() == 0 || tensor.shape.empty() || tensor.shape.size() > 2) {
    return refuse(StatusCode::kUnsupported, tensor.name,
                  fmt::format("has {} dimensions and {} elements; vectors and matrices are read",
                              tensor.shape.size(), tensor.elements()));
  }
  AERIE_ASSIGN_OR_RETURN(const DType stored, stored_type(tensor, change));
  if (tensor.shape.size() == 1) {
    if (change == TensorChange::kTranspose) change = TensorChange::kNone;
    add(std::move(gguf), DType::kF32, {tensor.shape[0], 1, 1, 1}, {&tensor, change});
    return {};
  }
  Shape shape = {reader_.shape_of(tensor)[1], tensor.shape[0], 1, 1};
  if (change == TensorChange::kTranspose) std::swap(shape[0], shape[1]);
  const bool to_float = change == TensorChange::kAddOne;
  add(gguf, to_float ? DType::kF32 : stored, shape, {&tensor, change});
  if (stored == DType::kNVFP4) add_factors(gguf, 1);
  return {};
}

// Of the heads of linear attention; a convolution's tensor has a dimension of 1 in its middle.
Status HuggingFaceFile::place_heads(const SafetensorsTensor& tensor, const TensorRule& rule,
                                    std::string gguf, int64_t layer) {
  std::vector<int64_t> shape = reader_.shape_of(tensor);
  const bool is_convolution = shape.size() == 3 && shape[1] == 1;
  if (is_convolution) shape.erase(shape.begin() + 1);
  const int64_t rows = shape.empty() || shape.size() > 2 || tensor.elements() == 0
                           ? -1
                           : arranged_rows(rule.change, import_.linear(), shape[0]);
  const bool fits = rule.change != TensorChange::kHeadColumns ||
                    (shape.size() == 2 && shape[1] == import_.linear().v_width());
  if (rows < 0 || !fits) {
    return refuse(StatusCode::kInvalidData, tensor.name,
                  fmt::format("has {} rows, which do not fit {} heads of {} and {} of {}",
                              tensor.shape.empty() ? 0 : tensor.shape[0], import_.linear().heads,
                              import_.linear().value_dim, import_.linear().key_heads,
                              import_.linear().key_dim));
  }
  AERIE_ASSIGN_OR_RETURN(const DType stored, stored_type(tensor, rule.change));
  if (shape.size() == 1) {
    add(std::move(gguf), DType::kF32, arranged_vector(rule.change, import_.linear(), rows),
        {&tensor, rule.change});
    return {};
  }
  const DType type = is_convolution ? DType::kF32 : stored;
  add(std::move(gguf), type, {shape[1], rows, 1, 1}, {&tensor, rule.change});
  if (rule.to_second.empty()) return {};
  constexpr TensorChange kSecond = TensorChange::kGroupedGates;
  add(with_layer(rule.to_second, layer) + ".weight", type,
      {shape[1], arranged_rows(kSecond, import_.linear(), shape[0]), 1, 1}, {&tensor, kSecond});
  return {};
}

Status HuggingFaceFile::place_latent(const SafetensorsTensor& tensor, const TensorRule& rule,
                                     int64_t layer) {
  const LatentAttention& latent = import_.latent();
  const std::vector<int64_t> wanted = {latent_rows(latent, import_.heads()), latent.rank};
  if (reader_.shape_of(tensor) != wanted) {
    return refuse(StatusCode::kInvalidData, tensor.name,
                  fmt::format("has the shape [{}] where the configuration asks for [{}]",
                              fmt::join(reader_.shape_of(tensor), ", "), fmt::join(wanted, ", ")));
  }
  AERIE_ASSIGN_OR_RETURN(const DType stored, stored_type(tensor, TensorChange::kTranspose));
  const auto add_part = [&](const std::string& to, TensorChange change) {
    add(with_layer(to, layer) + ".weight", stored, latent_shape(change, latent, import_.heads()),
        {&tensor, change});
  };
  add_part(rule.to, TensorChange::kLatentKeys);
  add_part(rule.to_second, TensorChange::kLatentValues);
  return {};
}

Status HuggingFaceFile::place_halves(const SafetensorsTensor& tensor, const TensorRule& rule,
                                     int64_t layer) {
  if (tensor.shape.size() != 2 || tensor.shape[0] % 2 != 0 || tensor.elements() == 0) {
    return refuse(StatusCode::kInvalidData, tensor.name,
                  fmt::format("has the shape [{}]; a matrix with an even number of rows is wanted",
                              fmt::join(tensor.shape, ", ")));
  }
  AERIE_ASSIGN_OR_RETURN(const DType stored, stored_type(tensor, rule.change));
  const Shape shape = {reader_.shape_of(tensor)[1], tensor.shape[0] / 2, 1, 1};
  add(with_layer(rule.to, layer) + ".weight", stored, shape, {&tensor, TensorChange::kUpperRows});
  add(with_layer(rule.to_second, layer) + ".weight", stored, shape,
      {&tensor, TensorChange::kLowerRows});
  return {};
}

Expected<DType> HuggingFaceFile::stored_type(const SafetensorsTensor& tensor,
                                             TensorChange change) const {
  if (reader_.is_nvfp4(tensor)) {
    if (change == TensorChange::kNone || change == TensorChange::kTurnQueries ||
        change == TensorChange::kTurnKeys) {
      AERIE_RETURN_IF_ERROR(Nvfp4Matrix::of(tensors_, tensor).status());
      return DType::kNVFP4;
    }
    return refuse(StatusCode::kUnsupported, tensor.name,
                  "is of NVFP4 and has to be rearranged, which is not supported");
  }
  // Blocks do not lie on their side, nor across heads.
  const auto after = [&](DType type) {
    const bool whole = change != TensorChange::kTranspose &&
                       keeps_blocks(change, import_.linear(), dtype_info(type).block_elements);
    return whole ? type : DType::kF32;
  };
  if (reader_.is_int4(tensor)) {
    AERIE_ASSIGN_OR_RETURN(const Int4Matrix matrix, Int4Matrix::of(tensors_, tensor));
    return after(matrix.type());
  }
  if (QuantizationScheme::needs_scales(tensor)) {
    AERIE_ASSIGN_OR_RETURN(const DType type, scheme_.type_of(tensors_, tensor));
    return after(type);
  }
  const std::optional<DType> stored = safetensors_type_info(tensor.type).dtype;
  if (stored) return *stored;
  return refuse(StatusCode::kUnsupported, tensor.name,
                fmt::format("is of type {}; F32, F16, BF16, and F8_E4M3 and I8 with scales are "
                            "read",
                            safetensors_type_info(tensor.type).name));
}

Status HuggingFaceFile::place_stack(const SafetensorsTensor& tensor, const TensorRule& rule,
                                    int64_t layer, std::string_view suffix) {
  const Expected<ExpertStack> stack =
      ExpertStack::of(tensor, reader_.scales_of(tensor), rule.change, import_.experts());
  if (!stack.ok()) return refuse(stack.status().code(), tensor.name, stack.status().message());
  if (stack->is_bias() != (suffix == ".bias")) {
    return refuse(StatusCode::kUnsupported, tensor.name,
                  fmt::format("has {} dimensions", tensor.shape.size()));
  }
  const auto add_part = [&](const std::string& to, TensorChange change) {
    add(with_layer(to, layer).append(suffix), stack->dtype(), stack->shape(), {&tensor, change});
  };
  add_part(rule.to, rule.change);
  if (!rule.to_second.empty()) add_part(rule.to_second, second_half(rule.change));
  return {};
}

Status HuggingFaceFile::place_expert(const SafetensorsTensor& tensor, std::string gguf,
                                     int64_t expert) {
  if (expert >= import_.experts()) {
    return refuse(StatusCode::kInvalidData, tensor.name,
                  fmt::format("is of expert {}, and there are {}", expert, import_.experts()));
  }
  if (tensor.shape.size() != 2 || tensor.elements() == 0) {
    return refuse(StatusCode::kUnsupported, tensor.name,
                  fmt::format("has {} dimensions and {} elements; an expert's is a matrix",
                              tensor.shape.size(), tensor.elements()));
  }
  AERIE_ASSIGN_OR_RETURN(const DType stored, stored_type(tensor, TensorChange::kNone));
  const Shape shape = {reader_.shape_of(tensor)[1], tensor.shape[0], import_.experts(), 1};
  auto stack = stacks_.find(gguf);
  if (stack == stacks_.end()) {
    stack = stacks_.emplace(gguf, infos_.size()).first;
    Origin origin;
    origin.stack.resize(static_cast<size_t>(import_.experts()));
    add(gguf, stored, shape, std::move(origin));
    if (stored == DType::kNVFP4) add_factors(gguf, import_.experts());
  }
  const TensorInfo& info = infos_[stack->second];
  if (info.shape != shape || info.dtype != stored) {
    return refuse(StatusCode::kInvalidData, tensor.name,
                  "is of another shape or type than that of the expert before it");
  }
  const SafetensorsTensor*& part = origins_[stack->second].stack[static_cast<size_t>(expert)];
  if (part != nullptr) {
    return refuse(StatusCode::kInvalidData, tensor.name, "is there twice under two names");
  }
  part = &tensor;
  return {};
}

Status HuggingFaceFile::check_stacks() const {
  for (const auto& [gguf, index] : stacks_) {
    const std::vector<const SafetensorsTensor*>& stack = origins_[index].stack;
    const auto missing = std::ranges::find(stack, nullptr);
    if (missing == stack.end()) continue;
    return not_found("{}: there is no tensor '{}'", name(),
                     printable(with_layer(origin_of(gguf), missing - stack.begin())));
  }
  return {};
}

Status HuggingFaceFile::add_draft_ids(const SafetensorsTensor& tensor) {
  if (tensor.elements() > kMostDraftIds) {
    return refuse(StatusCode::kInvalidData, tensor.name,
                  fmt::format("has {} ids; no vocabulary has as many", tensor.elements()));
  }
  Expected<std::vector<int64_t>> values = read_integers(tensor);
  if (!values.ok()) return values.status().with_context(name());
  std::vector<int32_t> ids;
  for (const int64_t value : *values) {
    if (value < INT32_MIN || value > INT32_MAX) {
      return refuse(StatusCode::kInvalidData, tensor.name,
                    fmt::format("holds {}, which is no token's id", value));
    }
    ids.push_back(static_cast<int32_t>(value));
  }
  import_.metadata().add_i32s(kDraftIdsKey, ids);
  if (!import_.config().has(kTargetVocab)) return {};
  AERIE_ASSIGN_OR_RETURN(const int64_t vocab, import_.config().integer(kTargetVocab));
  import_.metadata().add_i64(kDraftTargetKey, vocab);
  return {};
}

// Biases are not missed when the weights are loaded: a layer has those that are there.
Status HuggingFaceFile::check_layers() {
  for (const std::string& from : import_.required_biases()) layers_with_[from + ".bias"] += 0;
  for (const auto& [stem, count] : layers_with_) {
    if (count == import_.layers()) continue;
    // Some layers may have experts, and others a feed-forward; the same for kinds of attention.
    const size_t suffix = stem.rfind('.');
    const std::string_view from = std::string_view(stem).substr(0, suffix);
    const bool differ = (import_.experts() > 0 || import_.linear().channels() > 0) &&
                        !import_.says_what_lacks(from);
    if (differ && !stem.ends_with(".bias")) continue;
    const TensorRule& rule = *rules_.find(from)->second;
    for (int64_t layer = 0; layer < import_.layers(); ++layer) {
      if (import_.may_lack(from, layer)) continue;
      const std::string gguf = with_layer(rule.to, layer);
      if (placed_.contains(gguf + stem.substr(suffix))) continue;
      if (differ && !placed_.contains(gguf + ".weight")) continue;
      return not_found("{}: there is no tensor '{}'", name(),
                       printable(import_.before_suffix(with_layer(stem, layer))));
    }
  }
  return {};
}

Status HuggingFaceFile::place_tensors(Part part, const AddMetadata& more) {
  part_ = part;
  const JsonObject& config = import_.config();
  AERIE_ASSIGN_OR_RETURN(const bool tied, config.boolean(kTied, false));
  for (const TensorRule& rule : import_.rules()) rules_.emplace(rule.from, &rule);
  for (const SafetensorsTensor* tensor : tensors_.tensors()) {
    AERIE_RETURN_IF_ERROR(place(*tensor, tied));
  }
  AERIE_RETURN_IF_ERROR(check_stacks());
  if (part == Part::kPredictors) {
    // The embedding would say it.
    AERIE_ASSIGN_OR_RETURN(const int64_t vocab, config.integer_in(kVocab, 1, kMostVocab));
    import_.add_integer(kVocab, vocab, kVocab);
    return finish(more);
  }
  AERIE_RETURN_IF_ERROR(check_layers());
  if (config.has(kTied) && !tied && !placed_.contains("output.weight")) {
    return config.error(StatusCode::kNotFound, kTied,
                        "is false, and there is no tensor 'lm_head.weight'");
  }
  return finish(more);
}

// Adds what is not in the folder, once its tensors are placed.
Status HuggingFaceFile::finish(const AddMetadata& more) {
  for (size_t i = 0; i < import_.made().size(); ++i) {
    const auto& [name, values] = import_.made()[i];
    add(name, DType::kF32, {static_cast<int64_t>(values.size()), 1, 1, 1},
        {nullptr, TensorChange::kNone, i});
  }
  if (more) {
    const auto embedding = std::ranges::find_if(
        infos_, [](const TensorInfo& info) { return info.name == "token_embd.weight"; });
    const int64_t vocab = embedding == infos_.end() ? 0 : embedding->shape[1];
    AERIE_RETURN_IF_ERROR(more(vocab, import_.metadata()));
  }
  set_contents(import_.metadata().release(), std::move(infos_));
  return {};
}

std::vector<SourceFile> HuggingFaceFile::sources() const {
  std::vector<SourceFile> files = tensors_.sources();
  SourceFile& config = files.emplace_back();
  config.path = import_.whole_config().file();
  config.bytes = std::as_bytes(std::span(config_));
  return files;
}

std::string HuggingFaceFile::origin_of(std::string_view name) const {
  const size_t dot = name.rfind('.');
  const LayerName at = split_layer(name.substr(0, dot));
  // What stands behind the model's layers here has names of its own there; and rules are for names
  // with something behind a dot.
  const bool is_odd = dot == std::string_view::npos || at.layer >= import_.layers();
  const TensorInfo* info = is_odd ? find_tensor(name) : nullptr;
  if (info != nullptr) {
    const Origin& origin = origins_[static_cast<size_t>(info - tensors().data())];
    if (origin.tensor != nullptr) return origin.tensor->name;
  }
  for (const TensorRule& rule : import_.rules()) {
    if ((rule.to == at.stem || rule.to_second == at.stem) && dot != std::string_view::npos) {
      return import_.before_suffix(with_layer(rule.from, at.layer).append(name.substr(dot)));
    }
  }
  return std::string(name);
}

// A folder without it is often one of GGUF files.
Expected<Json> read_config(const std::string& folder, const std::string& path) {
  Expected<Json> json = read_json(path);
  if (json.status().code() != StatusCode::kNotFound) return json;
  std::string files;
  for (const std::string& name : names_in(folder)) {
    if (!name.ends_with(".gguf") || files.size() > 200) continue;
    files += (files.empty() ? "" : ", ") + name;
  }
  const std::string advice =
      files.empty()
          ? "which a Hugging Face folder has beside its safetensors files"
          : "but there are GGUF files, of which you may give one: " + printable(files, 300);
  return not_found("{}, {}", json.status().message(), advice);
}

Expected<const ModelFamily*> family_of(const JsonObject& config) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view type, config.string("model_type"));
  std::string known;
  for (const ModelFamily* family : model_families()) {
    for (const std::string_view candidate : family->model_types) {
      if (candidate == type) return family;
      if (!known.empty()) known += ", ";
      known += candidate;
    }
  }
  return config.error(StatusCode::kUnsupported, "model_type",
                      "is '{}', which is not supported; these are: {}", printable(type, 64), known);
}

// `has_predictors`: whether the folder has modules for multi-token prediction that the family
// reads; of Part::kModel not.
Expected<std::unique_ptr<HuggingFaceFile>> open_part(const std::string& path, Part part,
                                                     const AddMetadata& more,
                                                     bool& has_predictors) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder =
      fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path();
  const std::string config = (folder / "config.json").string();
  AERIE_ASSIGN_OR_RETURN(Json json, read_config(folder.string(), config));
  AERIE_ASSIGN_OR_RETURN(HuggingFaceImport folder_import,
                         HuggingFaceImport::create(std::move(json), config));
  AERIE_ASSIGN_OR_RETURN(const ModelFamily* family, family_of(folder_import.whole_config()));
  auto tensors =
      part == Part::kPredictors ? SafetensorsFolder::open_any(path) : SafetensorsFolder::open(path);
  if (tensors.ok() && part != Part::kModel) {
    const SafetensorsFolder* here = &*tensors;
    folder_import.set_tensors([here](std::string_view name) {
      return here->find(name) != nullptr ||
             here->find(std::string(name).append(kPackedEnd)) != nullptr;
    });
  }
  const Status imported = family->import(folder_import);
  folder_import.set_tensors(nullptr);
  has_predictors = folder_import.predictors() > 0;
  AERIE_RETURN_IF_ERROR(imported);
  const fs::path whole = fs::absolute(folder).lexically_normal();
  const fs::path base = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  folder_import.metadata().add_string("general.name", printable(base.string()));
  AERIE_RETURN_IF_ERROR(add_generation_config(folder.string(), folder_import.metadata()));
  AERIE_RETURN_IF_ERROR(
      add_pooling(folder.string(), folder_import.architecture(), folder_import.metadata()));
  AERIE_ASSIGN_OR_RETURN(QuantizationScheme scheme,
                         QuantizationScheme::read(folder_import.whole_config()));
  AERIE_RETURN_IF_ERROR(tensors.status());
  auto file = std::make_unique<HuggingFaceFile>(path, *std::move(tensors), scheme,
                                                std::move(folder_import));
  AERIE_RETURN_IF_ERROR(file->place_tensors(part, more));
  return file;
}

}  // namespace

Expected<std::unique_ptr<ModelFile>> open_hugging_face_folder(const std::string& path,
                                                              const AddMetadata& more) {
  bool has_predictors = false;
  auto all = open_part(path, Part::kAll, more, has_predictors);
  if (all.ok()) return std::unique_ptr<ModelFile>(*std::move(all));
  if (!has_predictors) return all.status();
  AERIE_ASSIGN_OR_RETURN(auto model, open_part(path, Part::kModel, more, has_predictors));
  log(LogLevel::kWarning, fmt::format("{}; the model is read without its module for multi-token "
                                      "prediction",
                                      all.status().message()));
  return std::unique_ptr<ModelFile>(std::move(model));
}

Expected<std::unique_ptr<ModelFile>> open_hugging_face_predictors(const std::string& path) {
  bool has_predictors = false;
  AERIE_ASSIGN_OR_RETURN(auto file, open_part(path, Part::kPredictors, nullptr, has_predictors));
  if (has_predictors) return std::unique_ptr<ModelFile>(std::move(file));
  return invalid_argument("{}: has no module for multi-token prediction that its family reads",
                          path);
}

Expected<std::unique_ptr<ModelFile>> open_model_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return open_hugging_face_folder(path);
  if (path.ends_with(".safetensors") || path.ends_with(".json")) {
    return invalid_argument("{} is a file of a Hugging Face folder; give the folder itself", path);
  }
  if (std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found) {
    return not_found(path.empty() ? "no model is named: give a GGUF file or a Hugging Face folder"
                                  : path + ": there is no such file or folder");
  }
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::open(path));
  return std::unique_ptr<ModelFile>(std::move(file));
}

}  // namespace aerie
