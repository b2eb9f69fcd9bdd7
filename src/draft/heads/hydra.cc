// Hydra's heads (Ankner et al. 2024, 2402.05109): as Medusa's, but each sees the tokens that were
// drafted before its own.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "draft/heads/feature_network.h"
#include "draft/heads/head_machine.h"
#include "draft/heads/heads.h"

namespace aerie {

extern const Method kHydraMethod;

namespace {

constexpr int kMostHydraBlocks = 64;

struct HydraPlan {
  int heads = 0;
  int blocks = 0;  // of a head, the one that narrows counted
  bool grounded = true;
  int offset = 0;       // layers between the features and the end of the target
  bool spaced = false;  // whether numbers in names count a dropout before each block and output
};

struct HydraHead {
  std::optional<Linear> narrow, around;  // of a grounded head's first block
  std::vector<Linear> blocks;
  OutputHead output;
};

// Of Hydra++: the layer that makes features of features.
struct HydraPrefix {
  Blueprint blueprint;
  TransformerLayer layer;
  std::vector<float> norm;
};

struct HydraWeights {
  HeadEmbedding embedding;
  std::vector<HydraHead> heads;
  std::optional<HydraPrefix> prefix;
};

class Hydra final : public MachineHead {
 public:
  static Expected<std::unique_ptr<FeatureHead>> create(const HydraPlan& plan, HydraWeights weights,
                                                       const HeadTarget& target);

  std::span<const int32_t> tap_layers() const override { return taps_; }
  int feature_width() const override { return static_cast<int>(width_); }
  int hidden() const override { return handed_width(plan_, static_cast<int>(width_)); }
  int vocab() const override { return weights_.heads[0].output.vocab(); }
  std::span<const int32_t> target_ids() const override {
    return weights_.heads[0].output.target_ids();
  }
  const ModelConfig& cache_config() const override {
    return weights_.prefix ? weights_.prefix->blueprint.config : no_cache_;
  }
  int max_depth() const override { return plan_.heads; }
  int outputs_of_root() const override { return plan_.grounded ? 1 : plan_.heads; }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  Hydra(std::unique_ptr<HeadMachine> machine, const HydraPlan& plan, HydraWeights weights,
        const HeadTarget& target)
      : MachineHead(std::move(machine)),
        plan_(plan),
        weights_(std::move(weights)),
        width_(target.config->hidden),
        taps_({target.config->layers - plan.offset}) {}
  // What the last head that has any is given of its parent's input.
  static int handed_width(const HydraPlan& plan, int width) {
    return plan.grounded ? plan.heads * width : 0;
  }
  Status allocate();
  void compute();
  void find_features();
  void run_prefix();
  void draft_all();
  void hand_on(HeadRows above, HeadRows token);
  void finish(const HydraHead& head, int place);

  HydraPlan plan_;
  HydraWeights weights_;
  int64_t width_;
  std::array<int32_t, 1> taps_;
  ModelConfig no_cache_;
  HeadRows features_, h_, token_, x_, scratch_;
  // The pass under way.
  HeadMachine::Inputs in_;
  int depth_ = 0;
};

Expected<std::unique_ptr<FeatureHead>> Hydra::create(const HydraPlan& plan, HydraWeights weights,
                                                     const HeadTarget& target) {
  const int64_t width = target.config->hidden;
  HeadSizes sizes;
  if (weights.prefix) sizes.blueprint = &weights.prefix->blueprint;
  sizes.features = plan.grounded ? plan.heads * width : width;
  sizes.embedded = plan.grounded ? width : 0;
  sizes.widest = plan.grounded ? (plan.heads + 1) * width : width;
  sizes.handed = handed_width(plan, target.config->hidden);
  sizes.vocab = weights.heads[0].output.vocab();
  sizes.outputs = plan.grounded ? 1 : plan.heads;
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<HeadMachine> machine, HeadMachine::create(target, sizes));
  std::unique_ptr<Hydra> head(new Hydra(std::move(machine), plan, std::move(weights), target));
  AERIE_RETURN_IF_ERROR(head->allocate());
  return std::unique_ptr<FeatureHead>(std::move(head));
}

Status Hydra::allocate() {
  for (HeadRows* rows : {&features_, &h_, &token_, &x_, &scratch_}) {
    AERIE_ASSIGN_OR_RETURN(*rows, machine().allocate(HeadWhich::kWanted, width_));
  }
  return {};
}

// h of the committed rows that want logits, in h_.
void Hydra::find_features() {
  if (weights_.prefix) {
    run_prefix();
    const HydraPrefix& prefix = *weights_.prefix;
    machine().gather(machine().stream(), features_);
    machine().norm({prefix.norm, prefix.blueprint.norm_eps}, features_, HeadWhich::kWanted, h_);
  } else if (plan_.offset == 0) {
    machine().gather(in_.features, features_);
    machine().target_norm(features_, HeadWhich::kWanted, h_);
  } else {
    machine().gather(in_.features, h_);
  }
}

void Hydra::run_prefix() {
  if (plan_.offset == 0) {
    machine().target_norm(in_.features, HeadWhich::kAll, machine().stream());
  } else {
    machine().copy(in_.features, HeadWhich::kAll, machine().stream());
  }
  machine().layer(weights_.prefix->layer, weights_.prefix->blueprint.layers[0], 0);
}

// The beginning of what the heads below are given, as far as there are any.
void Hydra::hand_on(HeadRows above, HeadRows token) {
  const HeadRows handed = machine().handed();
  machine().copy(above, HeadWhich::kWanted, handed.columns(0, above.width));
  if (above.width + width_ > handed.width) return;
  machine().copy(token, HeadWhich::kWanted, handed.columns(above.width, width_));
}

// From x_ on.
void Hydra::finish(const HydraHead& head, int place) {
  machine().residual_blocks(head.blocks, x_, HeadWhich::kWanted, scratch_);
  machine().output(head.output.linear(), {{x_}}, place);
}

void Hydra::draft_all() {
  for (size_t i = 0; i < weights_.heads.size(); ++i) {
    machine().copy(h_, HeadWhich::kWanted, x_);
    finish(weights_.heads[i], static_cast<int>(i));
  }
}

void Hydra::compute() {
  if (depth_ == 0) find_features();
  if (!plan_.grounded) return draft_all();
  // Nodes all want logits.
  HeadRows above = in_.features, token = in_.embedded;
  if (depth_ == 0) {
    machine().gather(in_.embedded, token_);
    above = h_;
    token = token_;
  }
  hand_on(above, token);
  const HydraHead& head = weights_.heads[static_cast<size_t>(depth_)];
  machine().linear(*head.around, {{above}, {token}}, HeadWhich::kWanted, x_);
  machine().linear(*head.narrow, {{above}, {token}}, HeadWhich::kWanted, scratch_);
  machine().activate(kernels::Activation::kSilu, scratch_, HeadWhich::kWanted, x_, true);
  finish(head, 0);
}

HeadOutputs Hydra::forward(const HeadPass& pass, KvCache& cache) {
  assert(pass.depth < plan_.heads);
  depth_ = pass.depth;
  in_ = machine().begin(
      pass, cache, depth_, (depth_ + 1) * width_,
      [this](const BatchRow& row, float* out) { weights_.embedding.row(row.token, out); });
  return machine().run([this] { compute(); });
}

std::string block_name(const HydraPlan& plan, int head, int block) {
  return fmt::format("hydra_mlp.{}.{}", head, plan.spaced ? 2 * block + 1 : block);
}

std::string output_name(const HydraPlan& plan, int head) {
  return fmt::format("hydra_lm_head.{}{}.weight", head, plan.spaced ? ".1" : "");
}

// What the tensors say, and whether the configuration says more.
Expected<HydraPlan> read_plan(const HeadFile& file, const HeadTarget& target, int depth) {
  const JsonObject config = file.config_object();
  const auto has = [&](const std::string& name) { return file.find_tensor(name) != nullptr; };
  HydraPlan plan;
  plan.spaced = !has("hydra_mlp.0.0.linear.weight");
  while (plan.blocks < kMostHydraBlocks &&
         has(block_name(plan, 0, plan.blocks) + ".linear.weight")) {
    ++plan.blocks;
  }
  while (plan.heads <= kMostHeadDepth && has(output_name(plan, plan.heads))) ++plan.heads;
  if (plan.blocks == 0 || plan.heads == 0 || plan.heads > kMostHeadDepth) {
    return invalid_data(
        "{}: has {} heads (hydra_lm_head) of {} blocks (hydra_mlp); 1 to {} heads of at least 1 "
        "are read",
        file.name(), plan.heads, plan.blocks, kMostHeadDepth);
  }
  const std::pair<std::string_view, int> counts[] = {{"hydra_num_heads", plan.heads},
                                                     {"hydra_num_layers", plan.blocks}};
  for (const auto& [key, found] : counts) {
    AERIE_ASSIGN_OR_RETURN(const int64_t said, config.integer(key, found));
    if (said == found) continue;
    return config.error(StatusCode::kInvalidData, key, "is {}, and there are {}", said, found);
  }
  const bool narrows = has(block_name(plan, 0, 0) + ".res_connection.weight");
  AERIE_ASSIGN_OR_RETURN(plan.grounded, config.boolean("grounded_heads", narrows));
  if (config.has("hidden_state_offset")) {
    AERIE_ASSIGN_OR_RETURN(const int64_t offset,
                           config.integer_in("hidden_state_offset", 0, target.config->layers));
    plan.offset = static_cast<int>(offset);
  }
  if (depth > 0) plan.heads = std::min(plan.heads, depth);
  return plan;
}

Expected<bool> has_prefix(const HeadFile& file) {
  const JsonObject config = file.config_object();
  constexpr std::string_view kKey = "hydra_head_arch";
  AERIE_ASSIGN_OR_RETURN(const std::string_view arch, config.string(kKey, "mlp"));
  if (arch == "mlp") return false;
  if (arch == "prefix-mlp") return true;
  return config.error(StatusCode::kUnsupported, kKey, "is '{}'; mlp and prefix-mlp are supported",
                      arch);
}

// The layer is built like the target's own.
Expected<Blueprint> prefix_blueprint(const HeadFile& file, const HeadTarget& target) {
  Blueprint blueprint = *target.parts.blueprint;
  if (blueprint.norm != NormKind::kRms || blueprint.post_norms || !blueprint.gated ||
      blueprint.learned_positions || blueprint.residual_scale != 1.0 ||
      blueprint.config.experts > 0) {
    return not_supported("{}: its prefix layer is a layer of a Llama, and the target is a '{}'",
                         file.name(), target.config->family);
  }
  blueprint.config.layers = 1;
  blueprint.config.windows.clear();
  blueprint.layers.resize(1);
  blueprint.rope_style = kernels::RopeStyle::kHalves;
  blueprint.query_key_norm = QueryKeyNorm::kNone;
  blueprint.biases = Biases::kAny;
  blueprint.fused_qkv = blueprint.fused_gate_up = false;
  return blueprint;
}

Expected<HydraPrefix> load_prefix(WeightLoader& loader, const HeadFile& file,
                                  const HeadTarget& target) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, prefix_blueprint(file, target));
  AERIE_ASSIGN_OR_RETURN(TransformerLayer layer, load_layer(loader, blueprint, 0));
  AERIE_ASSIGN_OR_RETURN(std::vector<float> norm, loader.vector("prefix_embeding_layer.norm.weight",
                                                                blueprint.config.hidden));
  // A Llama's, which serve nothing here: it is given features, not tokens.
  loader.ignore("prefix_embeding_layer.embed_tokens.weight");
  loader.ignore("layers.0.self_attn.rotary_emb.inv_freq");
  ignore_rope_tensors(loader, blueprint);
  return HydraPrefix{std::move(blueprint), std::move(layer), std::move(norm)};
}

Expected<HydraHead> load_head(WeightLoader& loader, HeadFile& file, const HydraPlan& plan,
                              int index, const HeadTarget& target, const HeadOptions& options) {
  const int64_t width = target.config->hidden;
  HydraHead head;
  int block = 0;
  if (plan.grounded) {
    const std::string name = block_name(plan, index, block++);
    const int64_t input = (index + 2) * width;
    AERIE_ASSIGN_OR_RETURN(head.narrow, load_linear(loader, name + ".linear", input, width));
    AERIE_ASSIGN_OR_RETURN(head.around,
                           load_linear(loader, name + ".res_connection", input, width));
  }
  for (; block < plan.blocks; ++block) {
    const std::string name = block_name(plan, index, block) + ".linear";
    AERIE_ASSIGN_OR_RETURN(Linear linear, load_linear(loader, name, width, width));
    head.blocks.push_back(std::move(linear));
  }
  AERIE_ASSIGN_OR_RETURN(head.output, OutputHead::load(loader, file, output_name(plan, index),
                                                       width, target, options));
  return head;
}

// Those that are not drafted with.
void ignore_heads(WeightLoader& loader, const HydraPlan& plan) {
  for (int i = plan.heads; i < kMostHeadDepth; ++i) {
    for (int j = 0; j < plan.blocks; ++j) {
      for (const char* part :
           {"linear.weight", "linear.bias", "res_connection.weight", "res_connection.bias"}) {
        loader.ignore(fmt::format("{}.{}", block_name(plan, i, j), part));
      }
    }
    const std::string name = output_name(plan, i);
    loader.ignore(name);
    loader.ignore(name.substr(0, name.rfind('.')) + ".bias");
  }
}

Expected<HydraWeights> load_weights(HeadFile& file, const HeadTarget& target,
                                    const HeadOptions& options, const HydraPlan& plan,
                                    const ModelOptions& model) {
  const int64_t width = target.config->hidden;
  const TensorInfo* first = file.find_tensor(block_name(plan, 0, 0) + ".linear.weight");
  AERIE_RETURN_IF_ERROR(
      require_equal(file, "its hidden size", first->shape[1], "the target's", width));
  WeightLoader loader(file, model);
  HydraWeights w;
  constexpr const char* kEmbedding = "input_embed_fn.weight";
  if (plan.grounded) {
    AERIE_ASSIGN_OR_RETURN(w.embedding,
                           HeadEmbedding::load(loader, file, kEmbedding, width, target));
  } else {
    loader.ignore(kEmbedding);
  }
  AERIE_ASSIGN_OR_RETURN(const bool prefixed, has_prefix(file));
  if (prefixed) {
    AERIE_ASSIGN_OR_RETURN(w.prefix, load_prefix(loader, file, target));
  }
  for (int i = 0; i < plan.heads; ++i) {
    AERIE_ASSIGN_OR_RETURN(HydraHead head, load_head(loader, file, plan, i, target, options));
    if (i > 0) AERIE_RETURN_IF_ERROR(head.output.require_same(w.heads[0].output, file));
    w.heads.push_back(std::move(head));
  }
  ignore_heads(loader, plan);
  AERIE_RETURN_IF_ERROR(loader.check_all_used("Hydra"));
  return w;
}

// Head i: x = [h; e(root); e(first drafted token); ...; e(i-th)], then a block
// res_connection(x) + silu(linear(x)) that narrows it, then blocks x + silu(linear(x)), then the
// head's own output matrix. Heads that are not grounded see h alone, lack the first block and draft
// all depths in one pass. h is what the target computes before the root: its final norm of the
// stream after its last layer, or the stream hidden_state_offset layers before that. With the
// architecture prefix-mlp (Hydra++) h is further the output of a Llama layer of its own over the h
// of all positions, normed.
//
// How many heads and blocks there are is counted in the tensors. kInvalidArgument, naming what
// differs, for heads of another model; kInvalidData for tensors that do not fit together;
// kUnsupported for another architecture, for a tensor that has no place, and for Hydra++ on a
// target whose layers are not Llama's.
Expected<std::unique_ptr<FeatureHead>> load_hydra(HeadFile& file, const HeadTarget& target,
                                                  const HeadSettings& options) {
  AERIE_RETURN_IF_ERROR(file.rename_prefix("prefix_embeding_layer.layers.", "layers."));
  AERIE_ASSIGN_OR_RETURN(const HydraPlan plan, read_plan(file, target, options.depth));
  const ModelOptions model = target.model_options();
  AERIE_ASSIGN_OR_RETURN(HydraWeights weights, load_weights(file, target, options, plan, model));
  return Hydra::create(plan, std::move(weights), target);
}

}  // namespace

constinit const Method kHydraMethod =
    head_method("hydra", "Hydra's or Hydra++'s heads", load_hydra);

}  // namespace aerie
