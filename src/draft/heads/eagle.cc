// EAGLE (Li et al. 2024, 2401.15077), whose heads EAGLE-2 (2406.16858) drafts with too, and HASS
// (2408.15766), which trains the same network in another way.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "draft/heads/heads.h"
#include "model/layer_runner.h"

namespace aerie {

extern const Method kEagleMethod;

namespace {

struct EagleWeights {
  HeadEmbedding embedding;
  Linear fc;
  std::vector<TransformerLayer> layers;
  std::vector<float> output_norm;  // empty: none
  OutputHead output;
};

class Eagle final : public FeatureHead {
 public:
  Eagle(Blueprint blueprint, EagleWeights weights, LayerRunner runner, HeadOps ops,
        const HeadTarget& target)
      : blueprint_(std::move(blueprint)),
        weights_(std::move(weights)),
        runner_(std::move(runner)),
        ops_(std::move(ops)),
        backend_(*target.backend),
        pool_(*target.pool),
        tap_(target.config->layers),
        width_(static_cast<size_t>(blueprint_.config.hidden)) {
    const auto rows = static_cast<size_t>(target.max_rows);
    const auto wanted = static_cast<size_t>(target.max_logits);
    features_.resize(rows * width_);
    normed_features_.resize(features_.size());
    input_.resize(2 * features_.size());
    out_.resize(wanted * width_);
    if (!weights_.output_norm.empty()) normed_.resize(out_.size());
    logits_.resize(wanted * static_cast<size_t>(weights_.output.vocab()));
  }

  std::span<const int32_t> tap_layers() const override { return {&tap_, 1}; }
  int feature_width() const override { return static_cast<int>(width_); }
  int hidden() const override { return static_cast<int>(width_); }
  int vocab() const override { return weights_.output.vocab(); }
  std::span<const int32_t> target_ids() const override { return weights_.output.target_ids(); }
  const ModelConfig& cache_config() const override { return blueprint_.config; }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  const float* features(const HeadPass& pass);
  void run_first(KvCache& cache);

  Blueprint blueprint_;
  EagleWeights weights_;
  LayerRunner runner_;
  HeadOps ops_;
  const kernels::Backend& backend_;
  ThreadPool& pool_;
  int32_t tap_;
  size_t width_;
  int64_t rows_ = 0;  // of the pass
  std::vector<float> features_, normed_features_, input_, out_, normed_, logits_;
};

// The rows' f. What is handed on is what f was predicted to be, its norm included.
const float* Eagle::features(const HeadPass& pass) {
  float* out = features_.data();
  for (const float* row : pass.features) out = std::copy_n(row, width_, out);
  if (pass.depth > 0) return features_.data();
  ops_.target_norm(features_.data(), rows_, normed_features_.data());
  return normed_features_.data();
}

void Eagle::run_first(KvCache& cache) {
  const TransformerLayer& layer = weights_.layers[0];
  if (!layer.attention_norm.weight.empty()) {
    return runner_.run(layer, blueprint_.layers[0], cache, 0);
  }
  kernels::Activations& input = runner_.prepare_input(layer);
  std::copy_n(runner_.stream(), static_cast<size_t>(rows_) * width_, input.row(0));
  backend_.quantize(pool_, input);
  runner_.attend(layer, blueprint_.layers[0], cache, 0);
  runner_.feed_forward(layer);
}

HeadOutputs Eagle::forward(const HeadPass& pass, KvCache& cache) {
  const ThreadPool::Round round(pool_);
  rows_ = pass.batch.size();
  const float* f = features(pass);
  for (size_t r = 0; r < pass.batch.rows.size(); ++r) {
    float* row = input_.data() + 2 * r * width_;
    weights_.embedding.row(pass.batch.rows[r].token, row);
    std::copy_n(f + r * width_, width_, row + width_);
  }
  runner_.start(pass.batch);
  ops_.linear(weights_.fc, input_.data(), rows_, runner_.stream());
  run_first(cache);
  for (size_t i = 1; i < weights_.layers.size(); ++i) {
    runner_.run(weights_.layers[i], blueprint_.layers[i], cache, static_cast<int>(i));
  }
  const int wanted = gather_wanted(pass, runner_.stream(), hidden(), out_.data());
  const float* result = out_.data();
  if (!weights_.output_norm.empty()) {
    ops_.rms_norm(weights_.output_norm, blueprint_.norm_eps, result, wanted, normed_.data());
    result = normed_.data();
  }
  ops_.linear(weights_.output.linear(), result, wanted, logits_.data());
  const auto count = static_cast<size_t>(wanted);
  return {.logits = std::span<const float>(logits_).first(count * static_cast<size_t>(vocab())),
          .hidden = {result, count * width_}};
}

Status rename(HeadFile& file) {
  constexpr std::pair<const char*, const char*> kPrefixes[] = {{"model.", ""},
                                                               // The package speculators.
                                                               {"fusion_fc.", "fc."},
                                                               {"transformer.", "layers.0."}};
  for (const auto& [from, to] : kPrefixes) {
    AERIE_RETURN_IF_ERROR(file.rename_prefix(from, to));
  }
  return {};
}

// A bias that the configuration announces must be there; one that it is silent about may be.
Status check_bias(const HeadFile& file) {
  const JsonObject config = file.config_object();
  AERIE_ASSIGN_OR_RETURN(const bool bias, config.boolean("bias", false));
  AERIE_ASSIGN_OR_RETURN(const bool fusion_bias, config.boolean("fusion_bias", false));
  return bias || fusion_bias ? file.tensor_info("fc.bias").status() : Status();
}

Expected<EagleWeights> load_weights(HeadFile& file, const HeadTarget& target,
                                    const HeadOptions& options, const Blueprint& blueprint,
                                    const ModelOptions& model) {
  WeightLoader loader(file, model);
  EagleWeights w;
  const int64_t width = blueprint.config.hidden;
  AERIE_ASSIGN_OR_RETURN(w.embedding,
                         HeadEmbedding::load(loader, file, "embed_tokens.weight", width, target));
  AERIE_RETURN_IF_ERROR(check_bias(file));
  AERIE_ASSIGN_OR_RETURN(w.fc, load_linear(loader, "fc", 2 * width, width));
  for (int i = 0; i < blueprint.config.layers; ++i) {
    LayerShape shape;
    shape.attention_norm = i > 0 || loader.has("blk.0.attn_norm.weight");
    AERIE_ASSIGN_OR_RETURN(TransformerLayer layer, load_layer(loader, blueprint, i, shape));
    w.layers.push_back(std::move(layer));
  }
  AERIE_ASSIGN_OR_RETURN(w.output_norm, loader.vector_if_any("norm.weight", width));
  AERIE_ASSIGN_OR_RETURN(w.output,
                         OutputHead::load(loader, file, "lm_head.weight", width, target, options));
  ignore_rope_tensors(loader, blueprint);
  AERIE_RETURN_IF_ERROR(loader.check_all_used("EAGLE"));
  return w;
}

// z = fc([embedding of the next token; f]), f the target's hidden state behind its final norm, or
// what the row above handed on; out = ordinary layers of z, of which the first has no norm in front
// of its attention; logits = the target's LM head of out, and out is handed on.
//
// Where a checkpoint has these tensors, they are used: a bias of fc, an embedding, an LM head
// (`lm_head`), a norm in front of the first layer and one of out (`norm`; NeMo writes both). Names
// may begin with "model.", and be those of the package speculators.
//
// kInvalidArgument, naming what differs, for a head of another model, and if the options name
// layers to tap; kUnsupported for a tensor that has no place.
Expected<std::unique_ptr<FeatureHead>> load_eagle(HeadFile& file, const HeadTarget& target,
                                                  const HeadSettings& options) {
  if (!options.tap_layers.empty()) {
    return invalid_argument(
        "{}: an EAGLE head reads the target's final hidden state and no other: leave out "
        "tap_layers",
        file.name());
  }
  AERIE_RETURN_IF_ERROR(rename(file));
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, head_blueprint(file, target));
  const int64_t width = blueprint.config.hidden;
  AERIE_RETURN_IF_ERROR(
      require_equal(file, "its hidden size", width, "the target's", target.config->hidden));
  AERIE_ASSIGN_OR_RETURN(const bool qkv_bias, file.config_object().boolean("qkv_bias", false));
  if (qkv_bias) blueprint.biases = Biases::kInput;
  const ModelOptions model = target.model_options();
  AERIE_ASSIGN_OR_RETURN(EagleWeights weights,
                         load_weights(file, target, options, blueprint, model));
  AERIE_ASSIGN_OR_RETURN(LayerRunner runner, LayerRunner::create(blueprint, model));
  AERIE_ASSIGN_OR_RETURN(
      HeadOps ops,
      HeadOps::create(target, std::max(target.max_rows, target.max_logits), 2 * width));
  return std::unique_ptr<FeatureHead>(std::make_unique<Eagle>(
      blueprint, std::move(weights), std::move(runner), std::move(ops), target));
}

}  // namespace

constinit const Method kEagleMethod =
    head_method("eagle", "an EAGLE-1, EAGLE-2 or HASS head", load_eagle);

}  // namespace aerie
