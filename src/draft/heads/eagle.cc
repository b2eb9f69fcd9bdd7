// EAGLE (Li et al. 2024, 2401.15077), whose heads EAGLE-2 (2406.16858) drafts with too, and HASS
// (2408.15766), which trains the same network in another way.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "draft/heads/head_machine.h"
#include "draft/heads/heads.h"

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

class Eagle final : public MachineHead {
 public:
  static Expected<std::unique_ptr<FeatureHead>> create(const Blueprint& blueprint,
                                                       EagleWeights weights,
                                                       const HeadTarget& target);

  std::span<const int32_t> tap_layers() const override { return {&tap_, 1}; }
  int feature_width() const override { return static_cast<int>(width_); }
  int hidden() const override { return static_cast<int>(width_); }
  int vocab() const override { return weights_.output.vocab(); }
  std::span<const int32_t> target_ids() const override { return weights_.output.target_ids(); }
  const ModelConfig& cache_config() const override { return blueprint_.config; }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  // What is computed for some rows.
  struct Rows {
    HeadMachine::Inputs in;
    bool of_nodes = false;
  };
  const HeadEmbedding* embedding() const override { return &weights_.embedding; }
  Eagle(std::unique_ptr<HeadMachine> machine, const Blueprint& blueprint, EagleWeights weights,
        const HeadTarget& target)
      : MachineHead(std::move(machine)),
        blueprint_(blueprint),
        weights_(std::move(weights)),
        tap_(target.config->layers),
        width_(blueprint_.config.hidden) {}
  HeadRows features();
  void run_first();
  void compute(const Rows& rows);

  Blueprint blueprint_;
  EagleWeights weights_;
  int32_t tap_;
  int64_t width_;
  HeadRows normed_, wanted_;
  Rows rows_;  // under way
};

Expected<std::unique_ptr<FeatureHead>> Eagle::create(const Blueprint& blueprint,
                                                     EagleWeights weights,
                                                     const HeadTarget& target) {
  const int64_t width = blueprint.config.hidden;
  HeadSizes sizes;
  sizes.blueprint = &blueprint;
  sizes.features = sizes.embedded = sizes.handed = width;
  sizes.widest = 2 * width;
  sizes.vocab = weights.output.vocab();
  sizes.takes_levels = true;
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<HeadMachine> machine, HeadMachine::create(target, sizes));
  AERIE_ASSIGN_OR_RETURN(const HeadRows normed, machine->allocate(HeadWhich::kAll, width));
  AERIE_ASSIGN_OR_RETURN(const HeadRows wanted, machine->allocate(HeadWhich::kWanted, width));
  std::unique_ptr<Eagle> head(new Eagle(std::move(machine), blueprint, std::move(weights), target));
  head->normed_ = normed;
  head->wanted_ = wanted;
  return std::unique_ptr<FeatureHead>(std::move(head));
}

// The rows' f. What is handed on is what f was predicted to be, its norm included.
HeadRows Eagle::features() {
  if (rows_.of_nodes) return rows_.in.features;
  machine().target_norm(rows_.in.features, HeadWhich::kAll, normed_);
  return normed_;
}

void Eagle::run_first() {
  const TransformerLayer& layer = weights_.layers[0];
  if (!layer.attention_norm.weight.empty()) {
    return machine().layer(layer, blueprint_.layers[0], 0);
  }
  machine().layer(layer, blueprint_.layers[0], 0, {{machine().stream()}});
}

void Eagle::compute(const Rows& rows) {
  rows_ = rows;
  machine().linear(weights_.fc, {{rows_.in.embedded}, {features()}}, HeadWhich::kAll,
                   machine().stream());
  run_first();
  for (size_t i = 1; i < weights_.layers.size(); ++i) {
    machine().layer(weights_.layers[i], blueprint_.layers[i], static_cast<int>(i));
  }
  const HeadRows handed = machine().handed();
  if (weights_.output_norm.empty()) {
    machine().gather(machine().stream(), handed);
  } else {
    machine().gather(machine().stream(), wanted_);
    machine().norm({weights_.output_norm, blueprint_.norm_eps}, wanted_, HeadWhich::kWanted,
                   handed);
  }
  machine().output(weights_.output.linear(), {{handed}});
}

HeadOutputs Eagle::forward(const HeadPass& pass, KvCache& cache) {
  Rows rows;
  rows.of_nodes = pass.depth > 0;
  rows.in = machine().begin(
      pass, cache, rows.of_nodes ? 1 : 0, width_,
      [this](const BatchRow& row, float* out) { weights_.embedding.row(row.token, out); });
  return machine().run_levels([this, &rows] { compute(rows); },
                              [this](const HeadMachine::Inputs& level) {
                                compute({level, true});
                              });
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
  return Eagle::create(blueprint, std::move(weights), target);
}

}  // namespace

constinit const Method kEagleMethod =
    head_method("eagle", "an EAGLE-1, EAGLE-2 or HASS head", load_eagle);

}  // namespace aerie
