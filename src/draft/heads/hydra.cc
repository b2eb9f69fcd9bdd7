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
#include "draft/heads/heads.h"
#include "model/layer_runner.h"

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
  LayerRunner runner;
};

struct HydraWeights {
  HeadEmbedding embedding;
  std::vector<HydraHead> heads;
  std::optional<HydraPrefix> prefix;
};

class Hydra final : public FeatureHead {
 public:
  Hydra(const HydraPlan& plan, HydraWeights weights, HeadOps ops, HeadOps feature_ops,
        const HeadTarget& target)
      : plan_(plan),
        weights_(std::move(weights)),
        ops_(std::move(ops)),
        feature_ops_(std::move(feature_ops)),
        pool_(*target.pool),
        width_(static_cast<size_t>(target.config->hidden)),
        taps_({target.config->layers - plan.offset}) {
    const auto rows = static_cast<size_t>(target.max_logits);
    const auto all = static_cast<size_t>(weights_.prefix ? target.max_rows : target.max_logits);
    const auto heads = static_cast<size_t>(plan.heads);
    features_.resize(std::max(all, rows) * width_);
    h_.resize(rows * width_);
    x_.resize(rows * width_);
    scratch_.resize(rows * width_);
    if (plan.grounded) {
      input_.resize(rows * (heads + 1) * width_);
      handed_.resize(rows * static_cast<size_t>(hidden()));
    }
    const size_t outputs = plan.grounded ? rows : std::max(rows, heads);
    logits_.resize(outputs * static_cast<size_t>(vocab()));
  }

  std::span<const int32_t> tap_layers() const override { return taps_; }
  int feature_width() const override { return static_cast<int>(width_); }
  // What the last head that has any is given of its parent's input.
  int hidden() const override { return plan_.grounded ? plan_.heads * feature_width() : 0; }
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
  int64_t find_features(const HeadPass& pass, KvCache& cache);
  void run_prefix(const HeadPass& pass, KvCache& cache);
  int64_t extend(const HeadPass& pass);
  void finish(const HydraHead& head, int64_t rows, float* logits, int64_t stride);
  HeadOutputs draft_all(int64_t rows);

  HydraPlan plan_;
  HydraWeights weights_;
  HeadOps ops_, feature_ops_;
  ThreadPool& pool_;
  size_t width_;
  std::array<int32_t, 1> taps_;
  ModelConfig no_cache_;
  std::vector<float> features_, h_, input_, handed_, x_, scratch_, logits_;
};

// h of the committed rows that want logits, in h_. How many there are.
int64_t Hydra::find_features(const HeadPass& pass, KvCache& cache) {
  const auto width = static_cast<int64_t>(width_);
  if (weights_.prefix) {
    run_prefix(pass, cache);
    HydraPrefix& prefix = *weights_.prefix;
    const int64_t rows = gather_wanted(pass, prefix.runner.stream(), width, features_.data());
    ops_.rms_norm(prefix.norm, prefix.blueprint.norm_eps, features_.data(), rows, h_.data());
    return rows;
  }
  float* features = plan_.offset == 0 ? features_.data() : h_.data();
  const int64_t rows = gather_wanted_features(pass, width, features);
  if (plan_.offset == 0) ops_.target_norm(features, rows, h_.data());
  return rows;
}

void Hydra::run_prefix(const HeadPass& pass, KvCache& cache) {
  HydraPrefix& prefix = *weights_.prefix;
  prefix.runner.start(pass.batch);
  float* stream = prefix.runner.stream();
  float* features = plan_.offset == 0 ? features_.data() : stream;
  for (const float* row : pass.features) features = std::copy_n(row, width_, features);
  if (plan_.offset == 0) feature_ops_.target_norm(features_.data(), pass.batch.size(), stream);
  prefix.runner.run(prefix.layer, prefix.blueprint.layers[0], cache, 0);
}

// The input of the head of this depth, in input_; of committed rows h_ is there. Its width.
int64_t Hydra::extend(const HeadPass& pass) {
  const size_t above = (static_cast<size_t>(pass.depth) + 1) * width_;
  const auto handed = static_cast<size_t>(hidden());
  const float* h = h_.data();
  float* input = input_.data();
  float* out = handed_.data();
  for (size_t r = 0; r < pass.batch.rows.size(); ++r) {
    const BatchRow& row = pass.batch.rows[r];
    if (!row.wants_logits) continue;
    std::copy_n(pass.depth == 0 ? h : pass.features[r], above, input);
    weights_.embedding.row(row.token, input + above);
    std::copy_n(input, std::min(handed, above + width_), out);
    h += width_;
    input += above + width_;
    out += handed;
  }
  return static_cast<int64_t>(above + width_);
}

// From x_ on.
void Hydra::finish(const HydraHead& head, int64_t rows, float* logits, int64_t stride) {
  ops_.residual_blocks(head.blocks, x_.data(), rows, scratch_.data());
  ops_.linear(head.output.linear(), x_.data(), rows, logits, stride);
}

HeadOutputs Hydra::draft_all(int64_t rows) {
  const int64_t all = int64_t{plan_.heads} * vocab();
  float* logits = logits_.data();
  for (const HydraHead& head : weights_.heads) {
    std::copy_n(h_.data(), static_cast<size_t>(rows) * width_, x_.data());
    finish(head, rows, logits, all);
    logits += vocab();
  }
  return {std::span<const float>(logits_).first(static_cast<size_t>(rows * all)), {}};
}

HeadOutputs Hydra::forward(const HeadPass& pass, KvCache& cache) {
  assert(pass.depth < plan_.heads);
  const ThreadPool::Round round(pool_);
  int64_t rows = pass.batch.size();
  if (pass.depth == 0) rows = find_features(pass, cache);
  if (!plan_.grounded) return draft_all(rows);
  extend(pass);
  const HydraHead& head = weights_.heads[static_cast<size_t>(pass.depth)];
  const auto width = static_cast<int64_t>(width_);
  ops_.linear(*head.around, input_.data(), rows, x_.data());
  ops_.linear(*head.narrow, input_.data(), rows, scratch_.data());
  ops_.activate(kernels::Activation::kSilu, scratch_.data(), rows, width, x_.data(), true);
  finish(head, rows, logits_.data(), 0);
  HeadOutputs out;
  out.logits = std::span<const float>(logits_).first(static_cast<size_t>(rows * vocab()));
  out.hidden = std::span<const float>(handed_).first(static_cast<size_t>(rows * hidden()));
  return out;
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
                                  const HeadTarget& target, const ModelOptions& model) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, prefix_blueprint(file, target));
  AERIE_ASSIGN_OR_RETURN(TransformerLayer layer, load_layer(loader, blueprint, 0));
  AERIE_ASSIGN_OR_RETURN(std::vector<float> norm, loader.vector("prefix_embeding_layer.norm.weight",
                                                                blueprint.config.hidden));
  // A Llama's, which serve nothing here: it is given features, not tokens.
  loader.ignore("prefix_embeding_layer.embed_tokens.weight");
  loader.ignore("layers.0.self_attn.rotary_emb.inv_freq");
  ignore_rope_tensors(loader, blueprint);
  AERIE_ASSIGN_OR_RETURN(LayerRunner runner, LayerRunner::create(blueprint, model));
  return HydraPrefix{std::move(blueprint), std::move(layer), std::move(norm), std::move(runner)};
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
    AERIE_ASSIGN_OR_RETURN(w.prefix, load_prefix(loader, file, target, model));
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
  const int64_t width = target.config->hidden;
  const int rows = weights.prefix ? target.max_rows : target.max_logits;
  AERIE_ASSIGN_OR_RETURN(HeadOps feature_ops, HeadOps::create(target, rows, width));
  AERIE_ASSIGN_OR_RETURN(HeadOps ops,
                         HeadOps::create(target, target.max_logits, (plan.heads + 1) * width));
  return std::unique_ptr<FeatureHead>(std::make_unique<Hydra>(
      plan, std::move(weights), std::move(ops), std::move(feature_ops), target));
}

}  // namespace

constinit const Method kHydraMethod =
    head_method("hydra", "Hydra's or Hydra++'s heads", load_hydra);

}  // namespace aerie
