// Heads that draft a block of tokens in one pass, of rows that see one another: DFlash (Chen et al.
// 2026, 2602.06036), and DSpark (Cheng et al. 2026, 2607.05147), of which the tokens of a draft say
// something of those behind them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "draft/heads/block_config.h"
#include "draft/heads/feature_network.h"
#include "draft/heads/head_machine.h"
#include "draft/heads/heads.h"
#include "draft/heads/markov_head.h"

namespace aerie {

extern const Method kDflashMethod;
extern const Method kDsparkMethod;

namespace {

struct BlockWeights {
  HeadEmbedding embedding;
  std::vector<float> mask_embedding;  // of mask rows, in the place of their token's; empty: that
  Linear fc;                          // of the taps, side by side
  std::vector<float> context_norm;    // of what that gives
  std::vector<TransformerLayer> layers;
  std::vector<float> output_norm;
  OutputHead output;
  std::unique_ptr<MarkovHead> markov;  // null: tokens say nothing of one another
};

class BlockHead final : public MachineHead {
 public:
  static Expected<std::unique_ptr<FeatureHead>> create(BlockPlan plan, const Blueprint& blueprint,
                                                       BlockWeights weights,
                                                       const HeadTarget& target);

  std::span<const int32_t> tap_layers() const override { return plan_.taps; }
  int feature_width() const override { return static_cast<int>(all_taps_); }
  int hidden() const override { return follows() ? static_cast<int>(width_) : 0; }
  int vocab() const override { return weights_.output.vocab(); }
  std::span<const int32_t> target_ids() const override { return weights_.output.target_ids(); }
  const ModelConfig& cache_config() const override { return blueprint_.config; }
  int32_t mask_token() const override { return plan_.mask_token; }
  int max_depth() const override { return plan_.depths; }
  int block_depths() const override { return plan_.depths; }
  bool root_drafts() const override { return plan_.root_drafts; }
  bool follows() const override { return weights_.markov != nullptr; }
  float follow(std::span<const int32_t> before, std::span<const float> hidden,
               std::span<float> logits) override {
    return weights_.markov->follow(before, hidden, logits);
  }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  BlockHead(std::unique_ptr<HeadMachine> machine, BlockPlan plan, const Blueprint& blueprint,
            BlockWeights weights, int64_t all_taps)
      : MachineHead(std::move(machine)),
        plan_(std::move(plan)),
        blueprint_(blueprint),
        weights_(std::move(weights)),
        width_(blueprint_.config.hidden),
        all_taps_(all_taps) {}
  HeadNorm norm(const std::vector<float>& weight) const { return {weight, blueprint_.norm_eps}; }
  void embed(const BatchRow& row, float* out) const;
  void read();
  void draft();

  BlockPlan plan_;
  Blueprint blueprint_;
  BlockWeights weights_;
  int64_t width_, all_taps_;
  HeadRows fused_, context_, wanted_;
  HeadMachine::Inputs in_;  // of the pass under way
};

Expected<std::unique_ptr<FeatureHead>> BlockHead::create(BlockPlan plan, const Blueprint& blueprint,
                                                         BlockWeights weights,
                                                         const HeadTarget& target) {
  const int64_t width = blueprint.config.hidden;
  const int64_t taps = static_cast<int64_t>(plan.taps.size()) * target.config->hidden;
  HeadSizes sizes;
  sizes.blueprint = &blueprint;
  sizes.features = taps;
  sizes.embedded = width;
  sizes.widest = std::max(taps, width);
  sizes.handed = weights.markov != nullptr ? width : 0;
  sizes.vocab = weights.output.vocab();
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<HeadMachine> machine, HeadMachine::create(target, sizes));
  std::unique_ptr<BlockHead> head(
      new BlockHead(std::move(machine), std::move(plan), blueprint, std::move(weights), taps));
  AERIE_ASSIGN_OR_RETURN(head->fused_, head->machine().allocate(HeadWhich::kAll, width));
  AERIE_ASSIGN_OR_RETURN(head->context_, head->machine().allocate(HeadWhich::kAll, width));
  AERIE_ASSIGN_OR_RETURN(head->wanted_, head->machine().allocate(HeadWhich::kWanted, width));
  return std::unique_ptr<FeatureHead>(std::move(head));
}

void BlockHead::embed(const BatchRow& row, float* out) const {
  const bool is_mask = row.parent >= 0;
  if (is_mask && !weights_.mask_embedding.empty()) {
    std::ranges::copy(weights_.mask_embedding, out);
  } else {
    weights_.embedding.row(row.token, out);
  }
}

// What layers see of committed positions.
void BlockHead::read() {
  machine().linear(weights_.fc, {{in_.features}}, HeadWhich::kAll, fused_);
  machine().norm(norm(weights_.context_norm), fused_, HeadWhich::kAll, context_);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    machine().remember(weights_.layers[i], blueprint_.layers[i], static_cast<int>(i), {{context_}});
  }
}

void BlockHead::draft() {
  machine().copy(in_.embedded, HeadWhich::kAll, machine().stream());
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    machine().layer(weights_.layers[i], blueprint_.layers[i], static_cast<int>(i));
  }
  machine().gather(machine().stream(), wanted_);
  if (!follows()) {
    machine().output(weights_.output.linear(), {{wanted_, norm(weights_.output_norm)}});
    return;
  }
  machine().norm(norm(weights_.output_norm), wanted_, HeadWhich::kWanted, machine().handed());
  machine().output(weights_.output.linear(), {{machine().handed()}});
}

HeadOutputs BlockHead::forward(const HeadPass& pass, KvCache& cache) {
  if (pass.block) {
    in_ = machine().begin(pass, cache, 1, 0,
                          [this](const BatchRow& row, float* out) { embed(row, out); });
    return machine().run([this] { draft(); });
  }
  in_ = machine().begin(pass, cache, 0, all_taps_, [](const BatchRow&, float*) {});
  return machine().run([this] { read(); });
}

// Of the file's own table, or of the target.
int64_t embedded_tokens(const HeadFile& file, const HeadTarget& target) {
  const TensorInfo* own = file.find_tensor(kEmbeddingName);
  return own != nullptr ? own->shape[1] : target.config->vocab;
}

// What follows tokens is the processor's, wherever the block is computed.
Expected<std::unique_ptr<MarkovHead>> load_markov(WeightLoader& loader, HeadFile& file,
                                                  const HeadTarget& target,
                                                  const HeadOptions& options, int vocab,
                                                  int64_t width) {
  if (target.device == nullptr) {
    return MarkovHead::load(loader, file, target, options, vocab, width);
  }
  HeadTarget here = target;
  here.backend = &target.device->host;
  here.device = nullptr;
  const ModelOptions options_here = here.model_options();
  WeightLoader own(file, options_here);
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.name.starts_with("markov_head.") || tensor.name.starts_with("confidence_head.")) {
      loader.ignore(std::string(tensor.name));
    }
  }
  return MarkovHead::load(own, file, here, options, vocab, width);
}

Expected<BlockWeights> load_block_weights(HeadFile& file, const HeadTarget& target,
                                          const HeadOptions& options, const BlockPlan& plan,
                                          const Blueprint& blueprint, const ModelOptions& model) {
  WeightLoader loader(file, model);
  BlockWeights w;
  const int64_t width = blueprint.config.hidden;
  const auto taps = static_cast<int64_t>(plan.taps.size());
  const int64_t all_taps = taps * target.config->hidden;
  AERIE_ASSIGN_OR_RETURN(w.embedding,
                         HeadEmbedding::load(loader, file, kEmbeddingName, width, target));
  AERIE_ASSIGN_OR_RETURN(w.mask_embedding, loader.vector_if_any("mask_embedding", width));
  if (const TensorInfo* fc = file.find_tensor("fc.weight"); fc != nullptr) {
    AERIE_RETURN_IF_ERROR(require_equal(
        file, "the length of what it is given (fc.weight)", fc->shape[0],
        fmt::format("{} taps of the target, {} each,", taps, target.config->hidden), all_taps));
  }
  AERIE_ASSIGN_OR_RETURN(w.fc, load_linear(loader, "fc", all_taps, width));
  AERIE_ASSIGN_OR_RETURN(w.context_norm, loader.vector("hidden_norm.weight", width));
  for (int i = 0; i < blueprint.config.layers; ++i) {
    AERIE_ASSIGN_OR_RETURN(TransformerLayer layer, load_layer(loader, blueprint, i));
    w.layers.push_back(std::move(layer));
  }
  AERIE_ASSIGN_OR_RETURN(w.output_norm, loader.vector("norm.weight", width));
  AERIE_ASSIGN_OR_RETURN(w.output,
                         OutputHead::load(loader, file, "lm_head.weight", width, target, options));
  AERIE_ASSIGN_OR_RETURN(w.markov,
                         load_markov(loader, file, target, options, w.output.vocab(), width));
  // What training compares with.
  loader.ignore("verifier_norm.weight");
  loader.ignore("verifier_lm_head.weight");
  ignore_rope_tensors(loader, blueprint);
  AERIE_RETURN_IF_ERROR(loader.check_all_used("DFlash or DSpark"));
  return w;
}

// c = hidden_norm(fc [taps]) of the target's rows, of which each layer makes keys and values in its
// own way; h = embeddings of the root's token and of masks, behind it, through layers that see all
// of c and, where they have no order, all of the block; logits = lm_head(norm(h)), and of DSpark
// what MarkovHead adds.
//
// kInvalidArgument, naming what differs, for a head of another model; kUnsupported for what has no
// place.
Expected<std::unique_ptr<FeatureHead>> load_dspark(HeadFile& file, const HeadTarget& target,
                                                   const HeadSettings& settings) {
  AERIE_RETURN_IF_ERROR(file.rename_prefix("model.", ""));
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, head_blueprint(file, target));
  AERIE_ASSIGN_OR_RETURN(BlockPlan plan,
                         read_block_plan(file, *target.config, settings.tap_layers));
  AERIE_RETURN_IF_ERROR(read_block_order(file, blueprint));
  plan.depths = std::min(settings.depth, plan.depths);
  if (plan.mask_token >= embedded_tokens(file, target)) {
    return invalid_argument("{}: the token of its masks is {}, and there are embeddings of {}",
                            file.name(), plan.mask_token, embedded_tokens(file, target));
  }
  AERIE_ASSIGN_OR_RETURN(
      BlockWeights weights,
      load_block_weights(file, target, settings, plan, blueprint, target.model_options()));
  return BlockHead::create(std::move(plan), blueprint, std::move(weights), target);
}

Expected<std::unique_ptr<FeatureHead>> load_dflash(HeadFile& file, const HeadTarget& target,
                                                   const HeadSettings& settings) {
  for (const char* name : {kMarkovName, kConfidenceName}) {
    if (file.find_tensor(name) == nullptr) continue;
    return invalid_argument("{}: has '{}', so it is a DSpark head: draft with it by method dspark",
                            file.name(), name);
  }
  return load_dspark(file, target, settings);
}

constexpr auto kBlockKeys =
    joined(kHeadKeys, std::array{MethodKey{kTapLayersKey, MethodKey::Kind::kText, 0, 0, 0, false,
                                           "layers whose input is tapped, such as 2+16+29, not "
                                           "those of config.json"}});

}  // namespace

constinit const Method kDflashMethod =
    head_method("dflash", "a DFlash head, which drafts a block at once", load_dflash, kBlockKeys);
constinit const Method kDsparkMethod = head_method(
    "dspark", "a DSpark head: the same, and its tokens hang together", load_dspark, kBlockKeys);

}  // namespace aerie
