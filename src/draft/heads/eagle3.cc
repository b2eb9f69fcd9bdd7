// EAGLE-3 (Li et al. 2025, 2503.01840) in the formats of its own repository and of the package
// speculators, and P-EAGLE (2602.01469), which drafts all depths in one pass.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "draft/heads/heads.h"
#include "model/layer_runner.h"

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

class Eagle3 final : public FeatureHead {
 public:
  Eagle3(Eagle3Plan plan, Blueprint blueprint, Eagle3Weights weights, LayerRunner runner,
         HeadOps ops, const HeadTarget& target, int depths)
      : plan_(std::move(plan)),
        blueprint_(std::move(blueprint)),
        weights_(std::move(weights)),
        runner_(std::move(runner)),
        ops_(std::move(ops)),
        backend_(*target.backend),
        pool_(*target.pool),
        width_(static_cast<size_t>(blueprint_.config.hidden)),
        tap_width_(static_cast<size_t>(target.config->hidden)),
        depths_(depths) {
    const auto rows = static_cast<size_t>(target.max_rows);
    const auto wanted = static_cast<size_t>(target.max_logits);
    taps_.resize(rows * plan_.taps.size() * tap_width_);
    normed_taps_.resize(taps_.size());
    token_.resize(width_);
    features_.resize(rows * width_);
    embedded_.resize(rows * width_);
    wanted_.resize(wanted * width_);
    normed_.resize(wanted * width_);
    logits_.resize(wanted * static_cast<size_t>(weights_.output.vocab()));
  }

  std::span<const int32_t> tap_layers() const override { return plan_.taps; }
  int feature_width() const override { return static_cast<int>(plan_.taps.size() * tap_width_); }
  int hidden() const override { return static_cast<int>(width_); }
  int vocab() const override { return weights_.output.vocab(); }
  std::span<const int32_t> target_ids() const override { return weights_.output.target_ids(); }
  const ModelConfig& cache_config() const override { return blueprint_.config; }
  int mask_rows() const override { return std::max(0, depths_ - 1); }
  int32_t mask_token() const override { return weights_.mask_token; }
  const float* mask_features() const override { return weights_.mask.data(); }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  void gather(const std::vector<const float*>& rows, size_t width, float* out) const;
  void fuse(const HeadPass& pass);
  void begin(const HeadPass& pass);

  Eagle3Plan plan_;
  Blueprint blueprint_;
  Eagle3Weights weights_;
  LayerRunner runner_;
  HeadOps ops_;
  const kernels::Backend& backend_;
  ThreadPool& pool_;
  size_t width_, tap_width_;
  int depths_;
  std::vector<float> taps_, normed_taps_, token_, features_, embedded_, wanted_, normed_, logits_;
};

void Eagle3::gather(const std::vector<const float*>& rows, size_t width, float* out) const {
  for (const float* row : rows) out = std::copy_n(row, width, out);
}

// The rows' g, in features_.
void Eagle3::fuse(const HeadPass& pass) {
  const auto rows = static_cast<int64_t>(pass.features.size());
  if (pass.depth > 0) return gather(pass.features, width_, features_.data());
  const size_t all = plan_.taps.size() * tap_width_;
  gather(pass.features, all, taps_.data());
  if (!plan_.uses_taps) return ops_.target_norm(taps_.data(), rows, features_.data());
  const float* input = taps_.data();
  if (!weights_.input_norm.empty()) {
    ops_.rms_norm(weights_.input_norm, blueprint_.norm_eps, input, rows, normed_taps_.data());
    input = normed_taps_.data();
  } else if (!weights_.fc_norm.empty()) {
    for (size_t t = 0; t < weights_.fc_norm.size(); ++t) {
      ops_.rms_norm(weights_.fc_norm[t], blueprint_.norm_eps, input + t * tap_width_, rows,
                    normed_taps_.data() + t * tap_width_, static_cast<int64_t>(all),
                    static_cast<int64_t>(all));
    }
    input = normed_taps_.data();
  }
  ops_.linear(weights_.fc, input, rows, features_.data());
}

// The first layer's input and the stream that it is added to.
void Eagle3::begin(const HeadPass& pass) {
  const auto rows = static_cast<int64_t>(pass.features.size());
  const auto both = static_cast<int64_t>(2 * width_);
  const TransformerLayer& layer = weights_.layers[0];
  for (size_t r = 0; r < pass.features.size(); ++r) {
    weights_.embedding.row(pass.batch.rows[r].token, embedded_.data() + r * width_);
  }
  runner_.start(pass.batch);
  kernels::Activations& input = runner_.prepare_input(layer);
  ops_.rms_norm(layer.attention_norm.weight, blueprint_.norm_eps, embedded_.data(), rows,
                input.row(0), 0, both);
  ops_.rms_norm(weights_.hidden_norm, blueprint_.norm_eps, features_.data(), rows,
                input.row(0) + width_, 0, both);
  for (int64_t r = 0; r < rows; ++r) {
    const float* g = plan_.norm_before_residual
                         ? input.row(r) + width_
                         : features_.data() + static_cast<size_t>(r) * width_;
    std::copy_n(g, width_, runner_.stream() + static_cast<size_t>(r) * width_);
  }
  backend_.quantize(pool_, input);
}

HeadOutputs Eagle3::forward(const HeadPass& pass, KvCache& cache) {
  const ThreadPool::Round round(pool_);
  fuse(pass);
  begin(pass);
  runner_.attend(weights_.layers[0], blueprint_.layers[0], cache, 0);
  runner_.feed_forward(weights_.layers[0]);
  for (size_t i = 1; i < weights_.layers.size(); ++i) {
    runner_.run(weights_.layers[i], blueprint_.layers[i], cache, static_cast<int>(i));
  }
  const auto wanted =
      static_cast<size_t>(gather_wanted(pass, runner_.stream(), hidden(), wanted_.data()));
  const auto rows = static_cast<int64_t>(wanted);
  ops_.rms_norm(weights_.output_norm, blueprint_.norm_eps, wanted_.data(), rows, normed_.data());
  ops_.linear(weights_.output.linear(), normed_.data(), rows, logits_.data());
  HeadOutputs out;
  out.logits = std::span<const float>(logits_).first(wanted * static_cast<size_t>(vocab()));
  out.hidden = std::span<const float>(plan_.norm_output ? normed_ : wanted_).first(wanted * width_);
  return out;
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
  const int64_t width = blueprint.config.hidden;
  const int64_t all_taps = static_cast<int64_t>(plan.taps.size()) * target.config->hidden;
  AERIE_ASSIGN_OR_RETURN(LayerRunner runner, LayerRunner::create(blueprint, model, 2 * width));
  AERIE_ASSIGN_OR_RETURN(HeadOps ops,
                         HeadOps::create(target, std::max(target.max_rows, target.max_logits),
                                         std::max(all_taps, width)));
  return std::unique_ptr<FeatureHead>(
      std::make_unique<Eagle3>(std::move(plan), blueprint, std::move(weights), std::move(runner),
                               std::move(ops), target, options.parallel_depths));
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
