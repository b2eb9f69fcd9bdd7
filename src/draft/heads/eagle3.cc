// EAGLE-3 (Li et al. 2025, 2503.01840) in the formats of its own repository and of the package
// speculators, and P-EAGLE (2602.01469), which drafts all depths in one pass.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "draft/heads/head_machine.h"
#include "draft/heads/heads.h"

namespace aerie {

extern const Method kEagle3Method;

namespace {

struct Eagle3Options : HeadOptions {
  // Depths that are drafted in one pass, for a head with a mask; 0: one pass for each depth.
  int parallel_depths = 0;
  // Instead of what the configuration says.
  std::optional<bool> norm_before_residual;
};

constexpr const char* kMaskName = "mask_hidden";

// What the configuration says beside the shape of the layers.
struct Eagle3Plan {
  std::vector<int32_t> taps;
  bool uses_taps = true;  // else the target's final hidden state is a row's g
  bool norm_before_residual = false;
  bool norm_output = false;
};

struct Eagle3Weights {
  HeadEmbedding embedding;
  Linear fc;
  std::vector<float> input_norm;            // of all taps together; empty: none
  std::vector<std::vector<float>> fc_norm;  // of each tap; empty: none
  std::vector<float> hidden_norm;
  std::vector<TransformerLayer> layers;
  std::vector<float> output_norm;
  OutputHead output;
  std::vector<float> mask;  // features of a mask row; empty: none
  int32_t mask_token = 0;
};

class Eagle3 final : public MachineHead {
 public:
  static Expected<std::unique_ptr<FeatureHead>> create(Eagle3Plan plan, const Blueprint& blueprint,
                                                       Eagle3Weights weights,
                                                       const HeadTarget& target, int depths);

  std::span<const int32_t> tap_layers() const override { return plan_.taps; }
  int feature_width() const override { return static_cast<int>(all_taps()); }
  int hidden() const override { return static_cast<int>(width_); }
  int vocab() const override { return weights_.output.vocab(); }
  std::span<const int32_t> target_ids() const override { return weights_.output.target_ids(); }
  const ModelConfig& cache_config() const override { return blueprint_.config; }
  int mask_rows() const override { return std::max(0, depths_ - 1); }
  int32_t mask_token() const override { return weights_.mask_token; }
  const float* mask_features() const override { return weights_.mask.data(); }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  // What is computed for some rows.
  struct Rows {
    HeadMachine::Inputs in;
    bool of_nodes = false;
  };
  const HeadEmbedding* embedding() const override {
    return depths_ == 0 ? &weights_.embedding : nullptr;
  }
  Eagle3(std::unique_ptr<HeadMachine> machine, Eagle3Plan plan, const Blueprint& blueprint,
         Eagle3Weights weights, const HeadTarget& target, int depths)
      : MachineHead(std::move(machine)),
        plan_(std::move(plan)),
        blueprint_(blueprint),
        weights_(std::move(weights)),
        width_(blueprint_.config.hidden),
        tap_width_(target.config->hidden),
        depths_(depths) {}
  Status allocate();
  int64_t all_taps() const { return static_cast<int64_t>(plan_.taps.size()) * tap_width_; }
  HeadNorm norm(const std::vector<float>& weight) const { return {weight, blueprint_.norm_eps}; }
  void compute(const Rows& rows);
  HeadRows fuse();
  void run_first(HeadRows g);

  Eagle3Plan plan_;
  Blueprint blueprint_;
  Eagle3Weights weights_;
  int64_t width_, tap_width_;
  int depths_;
  HeadRows fused_, normed_, wanted_;
  std::vector<HeadPart> tap_parts_;  // of taps that are normed, scratch
  Rows rows_;                        // under way
};

Expected<std::unique_ptr<FeatureHead>> Eagle3::create(Eagle3Plan plan, const Blueprint& blueprint,
                                                      Eagle3Weights weights,
                                                      const HeadTarget& target, int depths) {
  const int64_t width = blueprint.config.hidden;
  const int64_t taps = static_cast<int64_t>(plan.taps.size()) * target.config->hidden;
  HeadSizes sizes;
  sizes.blueprint = &blueprint;
  sizes.features = std::max(taps, width);
  sizes.embedded = width;
  sizes.widest = std::max(taps, 2 * width);
  sizes.handed = width;
  sizes.vocab = weights.output.vocab();
  sizes.takes_levels = depths == 0;
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<HeadMachine> machine, HeadMachine::create(target, sizes));
  std::unique_ptr<Eagle3> head(new Eagle3(std::move(machine), std::move(plan), blueprint,
                                          std::move(weights), target, depths));
  AERIE_RETURN_IF_ERROR(head->allocate());
  return std::unique_ptr<FeatureHead>(std::move(head));
}

Status Eagle3::allocate() {
  tap_parts_.resize(weights_.fc_norm.size());
  AERIE_ASSIGN_OR_RETURN(fused_, machine().allocate(HeadWhich::kAll, width_));
  if (plan_.norm_before_residual) {
    AERIE_ASSIGN_OR_RETURN(normed_, machine().allocate(HeadWhich::kAll, width_));
  }
  AERIE_ASSIGN_OR_RETURN(wanted_, machine().allocate(HeadWhich::kWanted, width_));
  return {};
}

// The rows' g.
HeadRows Eagle3::fuse() {
  if (rows_.of_nodes) return rows_.in.features;
  if (!plan_.uses_taps) {
    machine().target_norm(rows_.in.features, HeadWhich::kAll, fused_);
    return fused_;
  }
  if (weights_.fc_norm.empty()) {
    machine().linear(weights_.fc, {{rows_.in.features, norm(weights_.input_norm)}}, HeadWhich::kAll,
                     fused_);
    return fused_;
  }
  for (size_t t = 0; t < weights_.fc_norm.size(); ++t) {
    const auto at = static_cast<int64_t>(t) * tap_width_;
    tap_parts_[t] = {rows_.in.features.columns(at, tap_width_), norm(weights_.fc_norm[t])};
  }
  machine().linear(weights_.fc, std::span<const HeadPart>(tap_parts_), HeadWhich::kAll, fused_);
  return fused_;
}

// The first layer, and the stream that it is added to.
void Eagle3::run_first(HeadRows g) {
  const TransformerLayer& layer = weights_.layers[0];
  const HeadPart embedded = {rows_.in.embedded, norm(layer.attention_norm.weight)};
  HeadPart hidden = {g, norm(weights_.hidden_norm)};
  if (plan_.norm_before_residual) {
    machine().norm(hidden.norm, g, HeadWhich::kAll, normed_);
    hidden = {normed_};
  }
  machine().copy(hidden.rows, HeadWhich::kAll, machine().stream());
  machine().layer(layer, blueprint_.layers[0], 0, {embedded, hidden});
}

void Eagle3::compute(const Rows& rows) {
  rows_ = rows;
  run_first(fuse());
  for (size_t i = 1; i < weights_.layers.size(); ++i) {
    machine().layer(weights_.layers[i], blueprint_.layers[i], static_cast<int>(i));
  }
  const HeadRows handed = machine().handed();
  machine().gather(machine().stream(), plan_.norm_output ? wanted_ : handed);
  if (!plan_.norm_output) {
    machine().output(weights_.output.linear(), {{handed, norm(weights_.output_norm)}});
    return;
  }
  machine().norm(norm(weights_.output_norm), wanted_, HeadWhich::kWanted, handed);
  machine().output(weights_.output.linear(), {{handed}});
}

HeadOutputs Eagle3::forward(const HeadPass& pass, KvCache& cache) {
  Rows rows;
  rows.of_nodes = pass.depth > 0;
  rows.in = machine().begin(
      pass, cache, rows.of_nodes ? 1 : 0, rows.of_nodes ? width_ : all_taps(),
      [this](const BatchRow& row, float* out) { weights_.embedding.row(row.token, out); });
  return machine().run_levels([this, &rows] { compute(rows); },
                              [this](const HeadMachine::Inputs& level) {
                                compute({level, true});
                              });
}

bool is_speculators(const JsonObject& config) {
  return config.has("speculators_model_type");
}

Status check_taps(const HeadFile& file, std::span<const int32_t> taps, int layers) {
  for (const int32_t tap : taps) {
    if (tap >= 0 && tap <= layers) continue;
    return invalid_argument(
        "{}: taps layer {}, and the target has layers 0 to {}: this head is of another model (or "
        "give tap_layers)",
        file.name(), tap, layers - 1);
  }
  return {};
}

// "eagle_aux_hidden_state_layer_ids" are the layers that the taps enter where vLLM and speculators
// write them, at the top; in "eagle_config", where SGLang and NVIDIA do, those that they leave.
Expected<std::vector<int32_t>> read_taps(const JsonObject& config, int layers) {
  constexpr std::string_view kKey = "eagle_aux_hidden_state_layer_ids";
  std::vector<int64_t> ids;
  int64_t added = 0;
  if (config.has(kKey)) {
    AERIE_ASSIGN_OR_RETURN(ids, config.integers(kKey));
  } else if (config.has("eagle_config")) {
    AERIE_ASSIGN_OR_RETURN(const JsonObject eagle, config.object("eagle_config"));
    if (eagle.has(kKey)) {
      AERIE_ASSIGN_OR_RETURN(ids, eagle.integers(kKey));
    }
    added = 1;
  }
  if (ids.empty()) {
    ids = {2, layers / 2, layers - 3};
    added = 0;
  }
  std::vector<int32_t> taps;
  taps.reserve(ids.size());
  for (const int64_t id : ids) {
    taps.push_back(static_cast<int32_t>(std::clamp<int64_t>(id + added, -1, layers + 1)));
  }
  return taps;
}

Expected<Eagle3Plan> read_plan(const HeadFile& file, const HeadTarget& target,
                               const Eagle3Options& options) {
  const JsonObject config = file.config_object();
  const int layers = target.config->layers;
  Eagle3Plan plan;
  if (config.has("eagle_config")) {
    AERIE_ASSIGN_OR_RETURN(const JsonObject eagle, config.object("eagle_config"));
    AERIE_ASSIGN_OR_RETURN(plan.uses_taps, eagle.boolean("use_aux_hidden_state", true));
  }
  if (!plan.uses_taps) {
    plan.taps = {layers};
  } else if (!options.tap_layers.empty()) {
    plan.taps = options.tap_layers;
  } else {
    AERIE_ASSIGN_OR_RETURN(plan.taps, read_taps(config, layers));
  }
  AERIE_RETURN_IF_ERROR(check_taps(file, plan.taps, layers));
  AERIE_ASSIGN_OR_RETURN(plan.norm_before_residual, config.boolean("norm_before_residual", false));
  if (options.norm_before_residual) plan.norm_before_residual = *options.norm_before_residual;
  // SpecForge has a key of this name that means something else.
  if (is_speculators(config)) {
    AERIE_ASSIGN_OR_RETURN(plan.norm_output, config.boolean("norm_output", false));
  }
  return plan;
}

// A number, or its digits in a string; -1: there is none.
Expected<int64_t> read_mask_token(const JsonObject& config) {
  if (config.has("dflash_config")) {
    AERIE_ASSIGN_OR_RETURN(const JsonObject inner, config.object("dflash_config"));
    if (inner.has("mask_token_id")) return inner.integer("mask_token_id");
  }
  for (const std::string_view key : {"mask_token_id", "pard_token", "ptd_token_id"}) {
    const Json* value = config.find(key);
    if (value == nullptr) continue;
    if (!value->is_string()) return config.integer(key);
    AERIE_ASSIGN_OR_RETURN(const std::string_view text, config.string(key));
    int64_t id = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error == std::errc() && end == text.data() + text.size()) return id;
    return config.error(StatusCode::kInvalidData, key, "is not a number");
  }
  return int64_t{-1};
}

Status load_mask(WeightLoader& loader, const HeadFile& file, const HeadTarget& target,
                 int64_t feature_width, Eagle3Weights& weights) {
  AERIE_ASSIGN_OR_RETURN(const int64_t token, read_mask_token(file.config_object()));
  if (token < 0 || token >= target.config->vocab) {
    return invalid_argument(
        "{}: the token of its mask is {}, which is none of the target's {}; it stands under "
        "mask_token_id, pard_token or ptd_token_id in config.json",
        file.name(), token, target.config->vocab);
  }
  weights.mask_token = static_cast<int32_t>(token);
  AERIE_ASSIGN_OR_RETURN(weights.mask, loader.vector(kMaskName, feature_width));
  return {};
}

Expected<Eagle3Weights> load_weights(HeadFile& file, const HeadTarget& target,
                                     const Eagle3Options& options, const Eagle3Plan& plan,
                                     const Blueprint& blueprint, const ModelOptions& model) {
  WeightLoader loader(file, model);
  Eagle3Weights w;
  const int64_t width = blueprint.config.hidden;
  const int64_t tap_width = target.config->hidden;
  const auto taps = static_cast<int64_t>(plan.taps.size());
  AERIE_ASSIGN_OR_RETURN(w.embedding,
                         HeadEmbedding::load(loader, file, "embed_tokens.weight", width, target));
  if (plan.uses_taps) {
    const TensorInfo* fc = file.find_tensor("fc.weight");
    if (fc != nullptr) {
      AERIE_RETURN_IF_ERROR(require_equal(
          file, "the length of what it is given (fc.weight)", fc->shape[0],
          fmt::format("{} taps of the target, {} each,", taps, tap_width), taps * tap_width));
    }
    const MatrixPart part = {&w.fc.weight, "fc.weight", taps * tap_width, width, 0, width};
    AERIE_RETURN_IF_ERROR(loader.load({&part, 1}));
    AERIE_ASSIGN_OR_RETURN(w.fc.bias, loader.vector_if_any("fc.bias", width));
    AERIE_ASSIGN_OR_RETURN(w.input_norm,
                           loader.vector_if_any("input_norm.weight", taps * tap_width));
    for (int64_t t = 0; t < taps && loader.has("fc_norm.0.weight"); ++t) {
      AERIE_ASSIGN_OR_RETURN(std::vector<float> norm,
                             loader.vector(fmt::format("fc_norm.{}.weight", t), tap_width));
      w.fc_norm.push_back(std::move(norm));
    }
  } else {
    AERIE_RETURN_IF_ERROR(require_equal(file, "its hidden size", width, "the target's", tap_width));
  }
  AERIE_ASSIGN_OR_RETURN(w.hidden_norm, loader.vector("layers.0.hidden_norm.weight", width));
  for (int i = 0; i < blueprint.config.layers; ++i) {
    LayerShape shape;
    if (i == 0) shape.attention_input = 2 * width;
    AERIE_ASSIGN_OR_RETURN(TransformerLayer layer, load_layer(loader, blueprint, i, shape));
    w.layers.push_back(std::move(layer));
  }
  AERIE_ASSIGN_OR_RETURN(w.output_norm, loader.vector("norm.weight", width));
  AERIE_ASSIGN_OR_RETURN(w.output,
                         OutputHead::load(loader, file, "lm_head.weight", width, target, options));
  if (options.parallel_depths > 0) {
    AERIE_RETURN_IF_ERROR(load_mask(loader, file, target, taps * tap_width, w));
  } else {
    loader.ignore(kMaskName);
  }
  ignore_rope_tensors(loader, blueprint);
  AERIE_RETURN_IF_ERROR(loader.check_all_used("EAGLE-3"));
  return w;
}

// Whether the checkpoint has what drafting all depths in one pass takes (a mask), and was trained
// for nothing else.
bool drafts_in_parallel(const HeadFile& file) {
  return file.find_tensor(kMaskName) != nullptr;
}

// g = fc([taps]) of the target's rows, the row's feature of drafted ones;
// a = [input_layernorm(embedding of the next token); hidden_norm(g)];
// h = (g, or hidden_norm(g) if norm_before_residual) + attention(a), then a feed-forward, then
// ordinary layers, if there are more; logits = lm_head(norm(h)). Handed on: h, or norm(h) if
// norm_output.
//
// Taps: what enters the layers that the configuration names, by default 2, half of the layers and
// the third from the end. kInvalidArgument, naming what differs, for a head of another model;
// kUnsupported for a tensor that has no place.
Expected<std::unique_ptr<FeatureHead>> load_eagle3_head(HeadFile& file, const HeadTarget& target,
                                                        const Eagle3Options& options) {
  AERIE_RETURN_IF_ERROR(file.rename_prefix("midlayer.", "layers.0."));
  if (options.parallel_depths > 0 && !drafts_in_parallel(file)) {
    return invalid_argument(
        "{}: has no {}, so it was not trained to draft all depths in one pass: leave out "
        "parallel_drafting",
        file.name(), kMaskName);
  }
  AERIE_ASSIGN_OR_RETURN(const Blueprint blueprint, head_blueprint(file, target));
  AERIE_ASSIGN_OR_RETURN(Eagle3Plan plan, read_plan(file, target, options));
  const ModelOptions model = target.model_options();
  AERIE_ASSIGN_OR_RETURN(Eagle3Weights weights,
                         load_weights(file, target, options, plan, blueprint, model));
  return Eagle3::create(std::move(plan), blueprint, std::move(weights), target,
                        options.parallel_depths);
}

constexpr MethodKey kParallel = switch_key(
    "parallel_drafting", "all depths in one pass (P-EAGLE); as the head was trained unless given");
constexpr MethodKey kNormBeforeResidual =
    switch_key("norm_before_residual", "as config.json has it unless given");
constexpr auto kEagle3Keys =
    joined(kHeadKeys,
           std::array{
               kParallel,
               MethodKey{kTapLayersKey, MethodKey::Kind::kText, 0, 0, 0, false,
                         "layers whose input is tapped, such as 2+16+29, not those of config.json"},
               kNormBeforeResidual,
           });

Expected<std::unique_ptr<FeatureHead>> load_eagle3(HeadFile& file, const HeadTarget& target,
                                                   const HeadSettings& settings) {
  Eagle3Options options;
  static_cast<HeadOptions&>(options) = settings;
  options.norm_before_residual = settings.said(kNormBeforeResidual.name);
  if (settings.said(kParallel.name).value_or(drafts_in_parallel(file))) {
    options.parallel_depths = settings.depth;
  }
  return load_eagle3_head(file, target, options);
}

}  // namespace

constinit const Method kEagle3Method =
    head_method("eagle3", "an EAGLE-3 or P-EAGLE head", load_eagle3, kEagle3Keys);

}  // namespace aerie
