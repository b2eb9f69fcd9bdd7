// Modules for multi-token prediction, which come with a model (DeepSeek-V3, 2412.19437; MiMo,
// 2505.07608; Qwen3-Next and 3.5; GLM-4.5) or are trained for one (the package speculators).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "draft/heads/feature_network.h"
#include "draft/heads/head_machine.h"
#include "draft/heads/heads.h"
#include "kernels/kv_layout.h"
#include "model/device/load_device_model.h"

namespace aerie {

extern const Method kMtpMethod;

namespace {

// What implementations do not agree about, and no checkpoint says; none: what the layout's own do.
struct MtpOptions : HeadOptions {
  // The target's hidden state behind its final norm, not in front of it.
  std::optional<bool> feature_normed;
  // What a module hands on is behind the norm that comes before the LM head, not in front of it.
  std::optional<bool> handed_normed;
  // The projection takes [hidden state; embedding], not [embedding; hidden state].
  std::optional<bool> hidden_first;
  // The embedding in the row of position 0 is zero.
  std::optional<bool> zero_first;
};

// Sequences whose last row's hidden states are remembered, for heads of several modules.
constexpr int kRemembered = 512;

struct MtpPlan {
  int modules = 0;
  bool feature_normed = true;
  bool handed_normed = true;
  bool hidden_first = false;
  bool zero_first = false;
  bool adds_one = false;  // to the weights of norms
};

struct MtpModule {
  std::vector<float> embedding_norm, hidden_norm, output_norm;
  Linear project;
  TransformerLayer layer;
};

struct MtpWeights {
  HeadEmbedding embedding;
  std::vector<MtpModule> modules;
  OutputHead output;
};

class Mtp final : public MachineHead {
 public:
  static Expected<std::unique_ptr<FeatureHead>> create(const MtpPlan& plan,
                                                       const Blueprint& blueprint,
                                                       MtpWeights weights,
                                                       const HeadTarget& target);

  std::span<const int32_t> tap_layers() const override { return {&tap_, 1}; }
  int feature_width() const override { return static_cast<int>(width_); }
  int hidden() const override { return static_cast<int>(modules() * width_); }
  bool remembers() const override { return modules() > 1; }
  int vocab() const override { return weights_.output.vocab(); }
  std::span<const int32_t> target_ids() const override { return weights_.output.target_ids(); }
  const ModelConfig& cache_config() const override { return blueprint_.config; }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  Mtp(std::unique_ptr<HeadMachine> machine, const MtpPlan& plan, const Blueprint& blueprint,
      MtpWeights weights, const HeadTarget& target);
  Status allocate();
  int64_t modules() const { return std::ssize(weights_.modules); }
  HeadNorm norm(const std::vector<float>& weight) const { return {weight, blueprint_.norm_eps}; }
  void compute();
  HeadRows features_of(int64_t module);
  const float* above(size_t row, int64_t module) const;
  void run_module(int64_t module);
  void hand_on(int64_t module, bool wants_logits);
  const float* recall(int32_t slot, int64_t module) const;
  void remember();

  MtpPlan plan_;
  Blueprint blueprint_;
  MtpWeights weights_;
  int32_t tap_;
  int64_t width_;
  HeadRows normed_, wanted_;
  // The pass under way.
  HeadMachine::Inputs in_;
  const HeadPass* pass_ = nullptr;
  // Of several modules, which the processor alone has: what those but the last give for all rows,
  // and what one of them is given.
  std::vector<HeadRows> outputs_;
  HeadRows above_;
  // Where rows of committed positions go on: [kRemembered][all modules but the last][width] of the
  // rows in these slots.
  std::vector<int32_t> remembered_slots_;
  std::vector<float> remembered_;
  size_t next_remembered_ = 0;
};

Mtp::Mtp(std::unique_ptr<HeadMachine> machine, const MtpPlan& plan, const Blueprint& blueprint,
         MtpWeights weights, const HeadTarget& target)
    : MachineHead(std::move(machine)),
      plan_(plan),
      blueprint_(blueprint),
      weights_(std::move(weights)),
      tap_(target.config->layers),
      width_(blueprint_.config.hidden) {
  if (modules() == 1) return;
  remembered_slots_.assign(kRemembered, -1);
  remembered_.resize(kRemembered * static_cast<size_t>((modules() - 1) * width_));
}

Expected<std::unique_ptr<FeatureHead>> Mtp::create(const MtpPlan& plan, const Blueprint& blueprint,
                                                   MtpWeights weights, const HeadTarget& target) {
  const int64_t width = blueprint.config.hidden;
  HeadSizes sizes;
  sizes.blueprint = &blueprint;
  sizes.features = sizes.handed = std::ssize(weights.modules) * width;
  sizes.embedded = width;
  sizes.widest = 2 * width;
  sizes.vocab = weights.output.vocab();
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<HeadMachine> machine, HeadMachine::create(target, sizes));
  std::unique_ptr<Mtp> head(
      new Mtp(std::move(machine), plan, blueprint, std::move(weights), target));
  AERIE_RETURN_IF_ERROR(head->allocate());
  return std::unique_ptr<FeatureHead>(std::move(head));
}

Status Mtp::allocate() {
  AERIE_ASSIGN_OR_RETURN(normed_, machine().allocate(HeadWhich::kAll, width_));
  AERIE_ASSIGN_OR_RETURN(wanted_, machine().allocate(HeadWhich::kWanted, width_));
  if (modules() == 1) return {};
  AERIE_ASSIGN_OR_RETURN(above_, machine().allocate(HeadWhich::kAll, width_));
  for (int64_t i = 0; i + 1 < modules(); ++i) {
    AERIE_ASSIGN_OR_RETURN(outputs_.emplace_back(), machine().allocate(HeadWhich::kAll, width_));
  }
  return {};
}

// What a committed row's feature is, but for the first module's; null: there is none.
const float* Mtp::above(size_t row, int64_t module) const {
  const BatchRow& info = pass_->batch.rows[row];
  if (info.parent >= 0) {
    return outputs_[static_cast<size_t>(module - 1)].data + info.parent * width_;
  }
  if (info.position == 0) return nullptr;
  const BatchSequence& sequence = pass_->batch.sequences[static_cast<size_t>(info.sequence)];
  const int before = info.position - 1;
  const int32_t page = sequence.pages[static_cast<size_t>(before / kernels::kPagePositions)];
  return recall(page * kernels::kPagePositions + before % kernels::kPagePositions, module - 1);
}

const float* Mtp::recall(int32_t slot, int64_t module) const {
  const auto found = std::ranges::find(remembered_slots_, slot);
  if (found == remembered_slots_.end()) return nullptr;
  const int64_t place = found - remembered_slots_.begin();
  return remembered_.data() + (place * (modules() - 1) + module) * width_;
}

// The last rows of committed positions. A slot is asked for only while its row is such a one, so
// what was there before it cannot be taken for it.
void Mtp::remember() {
  const std::vector<BatchRow>& rows = pass_->batch.rows;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (r + 1 < rows.size() && rows[r + 1].parent == static_cast<int32_t>(r)) continue;
    auto place = std::ranges::find(remembered_slots_, rows[r].slot);
    if (place == remembered_slots_.end()) {
      place = remembered_slots_.begin() + static_cast<std::ptrdiff_t>(next_remembered_);
      next_remembered_ = (next_remembered_ + 1) % remembered_slots_.size();
    }
    *place = rows[r].slot;
    float* out =
        remembered_.data() + (place - remembered_slots_.begin()) * (modules() - 1) * width_;
    for (const HeadRows& module : outputs_) {
      out = std::copy_n(module.data + static_cast<int64_t>(r) * width_, width_, out);
    }
  }
}

HeadRows Mtp::features_of(int64_t module) {
  if (pass_->depth > 0) {
    // Beyond the last module's own depth that takes its own.
    const bool own = pass_->depth > module;
    return in_.features.columns((own ? module : module - 1) * width_, width_);
  }
  if (module > 0) {
    for (size_t r = 0; r < pass_->batch.rows.size(); ++r) {
      const float* from = above(r, module);
      float* out = above_.data + static_cast<int64_t>(r) * width_;
      from != nullptr ? std::copy_n(from, width_, out) : std::fill_n(out, width_, 0.0f);
    }
    return above_;
  }
  if (!plan_.feature_normed) return in_.features;
  machine().target_norm(in_.features, HeadWhich::kAll, normed_);
  return normed_;
}

// Leaves what the module's layer gives in the stream.
void Mtp::run_module(int64_t module) {
  const auto at = static_cast<size_t>(module);
  const MtpModule& weights = weights_.modules[at];
  const HeadPart embedded = {in_.embedded, norm(weights.embedding_norm)};
  const HeadPart hidden = {features_of(module), norm(weights.hidden_norm)};
  machine().linear(weights.project,
                   {plan_.hidden_first ? hidden : embedded, plan_.hidden_first ? embedded : hidden},
                   HeadWhich::kAll, machine().stream());
  machine().layer(weights.layer, blueprint_.layers[at], static_cast<int>(module));
}

// What the module's rows hand on, and their logits.
void Mtp::hand_on(int64_t module, bool wants_logits) {
  const HeadNorm normed = norm(weights_.modules[static_cast<size_t>(module)].output_norm);
  if (pass_->depth == 0 && module + 1 < modules()) {
    machine().norm(plan_.handed_normed ? normed : HeadNorm(), machine().stream(), HeadWhich::kAll,
                   outputs_[static_cast<size_t>(module)]);
  }
  const HeadRows handed = machine().handed().columns(module * width_, width_);
  const Linear& output = weights_.output.linear();
  if (plan_.handed_normed) {
    machine().gather(machine().stream(), wanted_);
    machine().norm(normed, wanted_, HeadWhich::kWanted, handed);
    if (wants_logits) machine().output(output, {{handed}});
  } else {
    machine().gather(machine().stream(), handed);
    if (wants_logits) machine().output(output, {{handed, normed}});
  }
}

void Mtp::compute() {
  const int64_t first = std::min<int64_t>(pass_->depth, modules() - 1);
  for (int64_t module = first; module < modules(); ++module) {
    run_module(module);
    hand_on(module, module == first);
  }
}

HeadOutputs Mtp::forward(const HeadPass& pass, KvCache& cache) {
  pass_ = &pass;
  in_ = machine().begin(pass, cache, pass.depth > 0 ? 1 : 0, pass.depth > 0 ? hidden() : width_,
                        [this](const BatchRow& row, float* out) {
                          if (plan_.zero_first && row.position == 0) {
                            std::fill_n(out, width_, 0.0f);
                          } else {
                            weights_.embedding.row(row.token, out);
                          }
                        });
  const HeadOutputs outputs = machine().run([this] { compute(); });
  if (pass.depth == 0 && modules() > 1) remember();
  return outputs;
}

using Names = std::vector<std::pair<std::string, std::string>>;

// The number behind `before` and in front of `after` in a name; -1: it has no such.
int64_t number_in(std::string_view name, std::string_view before, std::string_view after) {
  const size_t at = name.find(before);
  if (at == std::string_view::npos || !name.ends_with(after)) return -1;
  const char* begin = name.data() + at + before.size();
  const char* end = name.data() + name.size() - after.size();
  int64_t number = -1;
  const auto [stop, error] = std::from_chars(begin, std::max(begin, end), number);
  return error == std::errc() && stop == end && number >= 0 ? number : -1;
}

// The modules whose tensors are called "<prefix>N<after>": their numbers, in order.
std::vector<int64_t> numbered(const HeadFile& file, std::string_view prefix,
                              std::string_view after) {
  std::vector<int64_t> numbers;
  for (const TensorInfo& tensor : file.tensors()) {
    if (!tensor.name.starts_with(prefix)) continue;
    const int64_t number = number_in(tensor.name, prefix, after);
    if (number >= 0) numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

// A layout's modules and the prefixes that make DeepSeek's names of its own, with the modules
// counted from 0 ("layers.0.enorm"), more special ones first.
struct Layout {
  MtpPlan plan;
  Names renames;
};

bool find_deepseek(const HeadFile& file, Layout& layout) {
  for (const char* prefix : {"model.layers.", "layers."}) {
    const std::vector<int64_t> modules = numbered(file, prefix, ".eh_proj.weight");
    if (modules.empty()) continue;
    layout.plan.modules = static_cast<int>(modules.size());
    layout.plan.zero_first = true;
    for (size_t k = 0; k < modules.size(); ++k) {
      layout.renames.emplace_back(fmt::format("{}{}.", prefix, modules[k]),
                                  fmt::format("layers.{}.", k));
    }
    return true;
  }
  return false;
}

bool find_mimo(const HeadFile& file, Layout& layout) {
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"token_layernorm.", "enorm."},
      {"hidden_layernorm.", "hnorm."},
      {"input_proj.", "eh_proj."},
      {"final_layernorm.", "shared_head.norm."}};
  const bool packaged = file.config_object().has("speculators_model_type");
  for (const std::string prefix : {"model.mtp_layers.", "mtp_layers."}) {
    const std::vector<int64_t> modules = numbered(file, prefix, ".input_proj.weight");
    if (modules.empty()) continue;
    layout.plan.modules = static_cast<int>(modules.size());
    layout.plan.feature_normed = false;
    layout.plan.hidden_first = layout.plan.zero_first = !packaged;
    for (size_t k = 0; k < modules.size(); ++k) {
      const std::string from = fmt::format("{}{}.", prefix, modules[k]);
      const std::string to = fmt::format("layers.{}.", k);
      for (const auto& [part, name] : kParts) layout.renames.emplace_back(from + part, to + name);
      layout.renames.emplace_back(from, to);
    }
    return true;
  }
  return false;
}

bool find_qwen(const HeadFile& file, Layout& layout) {
  if (file.find_tensor("mtp.fc.weight") == nullptr) return false;
  layout.plan.modules =
      static_cast<int>(numbered(file, "mtp.layers.", ".post_attention_layernorm.weight").size());
  layout.plan.adds_one = true;
  layout.renames = {{"mtp.pre_fc_norm_embedding.", "layers.0.enorm."},
                    {"mtp.pre_fc_norm_hidden.", "layers.0.hnorm."},
                    {"mtp.fc.", "layers.0.eh_proj."},
                    {"mtp.norm.", "layers.0.shared_head.norm."},
                    {"mtp.layers.", "layers."}};
  return layout.plan.modules > 0;
}

// As layers behind a model's, in its GGUF file or by its family's rules: norms are as they
// multiply. Modules may share all but the layer.
bool find_layers(const HeadFile& file, Layout& layout) {
  if (!file.is_of_model()) return false;
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"shared_head_norm.", "shared_head.norm."},
      {"shared_head_head.", "shared_head.head."},
      {"", ""}};
  const Blueprint blueprint = *file.blueprint();
  layout.plan.modules = blueprint.config.layers;
  layout.plan.handed_normed = blueprint.predictors_hand_normed;
  layout.plan.zero_first = blueprint.predictors_zero_first;
  for (int k = 0; k < layout.plan.modules; ++k) {
    for (const auto& [part, name] : kParts) {
      layout.renames.emplace_back(fmt::format("blk.{}.nextn.{}", k, part),
                                  fmt::format("layers.{}.{}", k, name));
    }
  }
  return true;
}

// What the configuration calls the model whose layer the module has.
Expected<std::string> layer_type(const HeadFile& file) {
  const JsonObject config = file.config_object();
  JsonObject shape = config;
  for (const char* key : {"transformer_layer_config", "text_config"}) {
    if (!config.has(key)) continue;
    AERIE_ASSIGN_OR_RETURN(shape, config.object(key));
    break;
  }
  AERIE_ASSIGN_OR_RETURN(const std::string_view type, shape.string("model_type", ""));
  return std::string(type);
}

Expected<MtpPlan> read_plan(HeadFile& file, const MtpOptions& options) {
  Layout layout;
  if (!find_layers(file, layout) && !find_deepseek(file, layout) && !find_mimo(file, layout) &&
      !find_qwen(file, layout)) {
    return invalid_argument(
        "{}: has no module for multi-token prediction (tensors like model.layers.N.eh_proj.weight, "
        "mtp_layers.N.input_proj.weight or mtp.fc.weight)",
        file.name());
  }
  if (layout.plan.modules > kMostHeadDepth) {
    return not_supported("{}: has {} modules for multi-token prediction; up to {} are read",
                         file.name(), layout.plan.modules, kMostHeadDepth);
  }
  for (const auto& [from, to] : layout.renames) {
    AERIE_RETURN_IF_ERROR(file.rename_prefix(from, to));
  }
  AERIE_ASSIGN_OR_RETURN(const std::string type, layer_type(file));
  MtpPlan plan = layout.plan;
  const bool is_qwen = type.starts_with("qwen3_next") || type.starts_with("qwen3_5");
  if (is_qwen && !file.is_of_model()) plan.adds_one = true;
  if (type.starts_with("glm4")) plan.handed_normed = false;
  plan.feature_normed = options.feature_normed.value_or(plan.feature_normed);
  plan.handed_normed = options.handed_normed.value_or(plan.handed_normed);
  plan.hidden_first = options.hidden_first.value_or(plan.hidden_first);
  plan.zero_first = options.zero_first.value_or(plan.zero_first);
  return plan;
}

bool is_of_module(std::string_view name) {
  return name.starts_with("layers.") || name.starts_with("blk.") || name.starts_with("mtp.");
}

// Layers that the model code has not.
Status check_layers(const HeadFile& file) {
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {".self_attn.kv_a_proj_with_mqa.", "latent attention (MLA)"},
      {".self_attn.kv_b_proj.", "latent attention (MLA)"},
      {".mlp.experts.", "a mixture of experts"},
      {".mlp.shared_expert", "a mixture of experts"},
      {".linear_attn.", "linear attention"},
      {".attn_qkv.", "linear attention"},
      {".ssm_", "linear attention"}};
  for (const TensorInfo& tensor : file.tensors()) {
    if (!is_of_module(tensor.name)) continue;
    for (const auto& [part, what] : kOthers) {
      if (tensor.name.find(part) == std::string_view::npos) continue;
      return not_supported(
          "{}: the layer of its module has {} (tensor '{}'), which is not supported in its layout; "
          "layers with ordinary attention and feed-forward are",
          file.name(), what, file.origin_of(tensor.name));
    }
  }
  return {};
}

// As many layers as modules, none with a window of the model's.
Expected<Blueprint> read_blueprint(const HeadFile& file, const HeadTarget& target,
                                   const MtpPlan& plan) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, file.blueprint());
  if (file.is_of_model()) {
    slide_windows(blueprint, target);
    return blueprint;
  }
  blueprint.config.layers = plan.modules;
  blueprint.layers.assign(static_cast<size_t>(plan.modules), LayerPlan());
  slide_windows(blueprint, target);
  const TensorInfo* queries = file.find_tensor("blk.0.attn_q.weight");
  blueprint.attention_gate =
      queries != nullptr && queries->shape[1] == 2 * blueprint.config.q_width();
  return blueprint;
}

class ModuleLoader {
 public:
  ModuleLoader(WeightLoader& loader, const Blueprint& blueprint, const MtpPlan& plan)
      : loader_(loader), blueprint_(blueprint), plan_(plan) {}

  Expected<MtpModule> load(int index) {
    const int64_t width = blueprint_.config.hidden;
    // Qwen's modules share all but the layer.
    const std::string own = fmt::format("layers.{}.", index);
    const std::string prefix = loader_.has(own + "eh_proj.weight") ? own : "layers.0.";
    MtpModule module;
    AERIE_ASSIGN_OR_RETURN(module.embedding_norm, norm(prefix + "enorm.weight"));
    AERIE_ASSIGN_OR_RETURN(module.hidden_norm, norm(prefix + "hnorm.weight"));
    AERIE_ASSIGN_OR_RETURN(module.output_norm, norm(prefix + "shared_head.norm.weight"));
    AERIE_ASSIGN_OR_RETURN(module.project,
                           load_linear(loader_, prefix + "eh_proj", 2 * width, width));
    AERIE_ASSIGN_OR_RETURN(module.layer, load_layer(loader_, blueprint_, index));
    for (std::vector<float>* weight :
         {&module.layer.attention_norm.weight, &module.layer.ffn_norm.weight,
          &module.layer.query_norm, &module.layer.key_norm}) {
      add_one(*weight);
    }
    // They equal the first one's.
    if (index > 0) {
      loader_.ignore(own + "embed_tokens.weight");
      loader_.ignore(own + "shared_head.head.weight");
    }
    return module;
  }

 private:
  Expected<std::vector<float>> norm(const std::string& name) {
    AERIE_ASSIGN_OR_RETURN(std::vector<float> weight,
                           loader_.vector(name, blueprint_.config.hidden));
    add_one(weight);
    return weight;
  }
  void add_one(std::vector<float>& weight) const {
    if (!plan_.adds_one) return;
    for (float& value : weight) value += 1.0f;
  }

  WeightLoader& loader_;
  const Blueprint& blueprint_;
  const MtpPlan& plan_;
};

Expected<MtpWeights> load_weights(HeadFile& file, const HeadTarget& target,
                                  const MtpOptions& options, const MtpPlan& plan,
                                  const Blueprint& blueprint) {
  const ModelOptions model = target.model_options();
  WeightLoader loader(file, model);
  const int64_t width = blueprint.config.hidden;
  MtpWeights w;
  AERIE_ASSIGN_OR_RETURN(
      w.embedding,
      HeadEmbedding::load(loader, file, "layers.0.embed_tokens.weight", width, target));
  for (int k = 0; k < plan.modules; ++k) {
    AERIE_ASSIGN_OR_RETURN(MtpModule module, ModuleLoader(loader, blueprint, plan).load(k));
    w.modules.push_back(std::move(module));
  }
  AERIE_ASSIGN_OR_RETURN(
      w.output,
      OutputHead::load(loader, file, "layers.0.shared_head.head.weight", width, target, options));
  for (const TensorInfo& tensor : file.tensors()) {
    if (!is_of_module(tensor.name)) loader.ignore(std::string(tensor.name));
  }
  AERIE_RETURN_IF_ERROR(loader.check_all_used("multi-token prediction"));
  return w;
}

// z = eh_proj([enorm(embedding of the next token); hnorm(f)]), f the target's hidden state or what
// the row above handed on; out = a decoder layer of z; logits = head(shared_head.norm(out)).
//
// Layouts and what is usual with them:
//   DeepSeek    layers.N.{enorm, hnorm, eh_proj, shared_head.norm} and the layer's own tensors, N
//               behind the model's layers; both norms, zero_first. GLM: hands on in front of it.
//   MiMo        model.mtp_layers.N.{token_layernorm, hidden_layernorm, input_proj,
//               final_layernorm}; the feature in front of the norm, hidden_first, zero_first.
//   speculators mtp_layers.N. and the same; the feature in front of the norm.
//   Qwen        mtp.{pre_fc_norm_embedding, pre_fc_norm_hidden, fc, norm}, mtp.layers.N.
//   GGUF        blk.N.nextn.{enorm, hnorm, eh_proj, shared_head_norm} and the layer's own tensors,
//               N behind the model's layers (HeadFile::is_of_model(), as which those of Qwen's
//               hybrids and of models with latent attention come).
// Norms of Qwen3-Next and 3.5 multiply with 1 + w, and their attention is gated if the matrix of
// queries is twice as high. The file may be the target's own: what else it holds is passed over.
//
// Of several modules the n-th drafts the n-th token, the last all further ones; each reads all
// rows, with the features that the one before it made of the row before. The first rows of a
// sequence have none such: zeros stand for them.
//
// kInvalidArgument, naming what differs, for a head of another model, for one without a module, and
// if the options name layers to tap; kUnsupported for layers with latent attention or
// experts in other files than HeadFile::is_of_model(), and for a module's tensor that has no place.
Expected<std::unique_ptr<FeatureHead>> load_mtp_head(HeadFile& file, const HeadTarget& target,
                                                     const MtpOptions& options) {
  if (!options.tap_layers.empty()) {
    return invalid_argument(
        "{}: a module for multi-token prediction reads the target's final hidden state and no "
        "other: leave out tap_layers",
        file.name());
  }
  AERIE_ASSIGN_OR_RETURN(const MtpPlan plan, read_plan(file, options));
  AERIE_RETURN_IF_ERROR(check_layers(file));
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_blueprint(file, target, plan));
  const int64_t width = blueprint.config.hidden;
  AERIE_RETURN_IF_ERROR(
      require_equal(file, "its hidden size", width, "the target's", target.config->hidden));
  if (target.device != nullptr && plan.modules > 1) {
    return not_supported("there is no device code for {} modules yet, only for one", plan.modules);
  }
  if (target.device != nullptr) {
    AERIE_RETURN_IF_ERROR(check_device_types(file, blueprint, target.device->device));
  }
  AERIE_ASSIGN_OR_RETURN(MtpWeights weights, load_weights(file, target, options, plan, blueprint));
  return Mtp::create(plan, blueprint, std::move(weights), target);
}

constexpr MethodKey kFeatureNormed =
    switch_key("feature_normed", "it takes the target's hidden state behind the final norm");
constexpr MethodKey kHandedNormed =
    switch_key("handed_normed", "it hands on what is behind its own norm");
constexpr MethodKey kHiddenFirst =
    switch_key("hidden_first", "it takes the hidden state before the embedding");
constexpr MethodKey kZeroFirst = switch_key("zero_first", "position 0 has no embedding");
// The modules usually come with the model.
constexpr auto kMtpKeys = joined(
    head_keys("what has the modules, a folder or a GGUF file; the target unless given", false),
    std::array{kFeatureNormed, kHandedNormed, kHiddenFirst, kZeroFirst});

Expected<std::unique_ptr<FeatureHead>> load_mtp(HeadFile& file, const HeadTarget& target,
                                                const HeadSettings& settings) {
  MtpOptions options;
  static_cast<HeadOptions&>(options) = settings;
  options.feature_normed = settings.said(kFeatureNormed.name);
  options.handed_normed = settings.said(kHandedNormed.name);
  options.hidden_first = settings.said(kHiddenFirst.name);
  options.zero_first = settings.said(kZeroFirst.name);
  return load_mtp_head(file, target, options);
}

Expected<std::unique_ptr<Drafter>> make_mtp(const MethodConfig& config, DraftHost& host) {
  const bool own = config.text(kModelKey).empty();
  const std::string& path = own ? host.target().file->name() : config.text(kModelKey);
  std::error_code ignored;
  const bool may_have_some =
      has_predictors(*host.target().file) || std::filesystem::is_directory(path, ignored);
  if (own && !may_have_some) {
    return invalid_argument(
        "method {}: {} has no modules for it (blk.N.nextn.*, behind the model's layers): give "
        "model=FOLDER or model=FILE.gguf",
        kMtpMethod.name, path);
  }
  return make_head_drafter(config, host, {.path = path});
}

}  // namespace

constinit const Method kMtpMethod = [] {
  Method method =
      head_method("mtp", "a model's modules for multi-token prediction", load_mtp, kMtpKeys);
  method.make = make_mtp;
  method.comes_with = has_predictors;
  return method;
}();

}  // namespace aerie
