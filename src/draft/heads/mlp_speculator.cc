// MLPSpeculator (Wertheimer et al. 2024, 2404.19124): a recurrence over the drafted tokens that
// starts from the target's hidden state, with matrices of their own for each step.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "draft/heads/feature_network.h"
#include "draft/heads/head_machine.h"
#include "draft/heads/heads.h"

namespace aerie {

extern const Method kMlpSpeculatorMethod;

namespace {

constexpr double kEps = 1e-6;
constexpr int64_t kMostInner = 1 << 20;

struct MlpSpeculatorPlan {
  int steps = 0;
  int64_t width = 0;  // of the target's hidden state
  int64_t inner = 0;
  bool tied = false;
  bool scales_input = false;

  // Whose tensors a step uses. Of the projections the first alone reads the target's.
  int own(int step) const { return tied ? 0 : step; }
  int own_projection(int step) const { return tied ? std::min(step, 1) : step; }
};

struct MlpSpeculatorWeights {
  // Those of tied steps are there once.
  std::vector<Linear> projections;
  std::vector<TensorData> embeddings;
  std::vector<Norm> norms;
  std::vector<OutputHead> outputs;
};

class MlpSpeculator final : public MachineHead {
 public:
  static Expected<std::unique_ptr<FeatureHead>> create(const MlpSpeculatorPlan& plan,
                                                       MlpSpeculatorWeights weights,
                                                       const HeadTarget& target);

  std::span<const int32_t> tap_layers() const override { return taps_; }
  int feature_width() const override { return static_cast<int>(plan_.width); }
  int hidden() const override { return static_cast<int>(plan_.inner); }
  int vocab() const override { return weights_.outputs[0].vocab(); }
  std::span<const int32_t> target_ids() const override { return weights_.outputs[0].target_ids(); }
  const ModelConfig& cache_config() const override { return no_cache_; }
  int max_depth() const override { return plan_.steps; }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  MlpSpeculator(std::unique_ptr<HeadMachine> machine, const MlpSpeculatorPlan& plan,
                MlpSpeculatorWeights weights, const HeadTarget& target);
  HeadRows before();
  void compute();

  MlpSpeculatorPlan plan_;
  MlpSpeculatorWeights weights_;
  std::array<int32_t, 1> taps_;
  ModelConfig no_cache_;
  float token_weight_ = 0.0f;
  std::vector<float> input_scale_;
  HeadRows normed_, scaled_, state_, mixed_;
  // The pass under way.
  HeadMachine::Inputs in_;
  int depth_ = 0;
};

MlpSpeculator::MlpSpeculator(std::unique_ptr<HeadMachine> machine, const MlpSpeculatorPlan& plan,
                             MlpSpeculatorWeights weights, const HeadTarget& target)
    : MachineHead(std::move(machine)),
      plan_(plan),
      weights_(std::move(weights)),
      taps_({target.config->layers}) {
  const double alpha = std::pow(0.5, 0.5 / plan.steps);
  token_weight_ = static_cast<float>(
      std::sqrt((1.0 - alpha * alpha) * static_cast<double>(plan.inner) / 2.0) / alpha);
  input_scale_.assign(static_cast<size_t>(plan.width), std::numbers::sqrt2_v<float> / 2.0f);
}

Expected<std::unique_ptr<FeatureHead>> MlpSpeculator::create(const MlpSpeculatorPlan& plan,
                                                             MlpSpeculatorWeights weights,
                                                             const HeadTarget& target) {
  HeadSizes sizes;
  sizes.features = sizes.widest = std::max(plan.width, plan.inner);
  sizes.embedded = sizes.handed = plan.inner;
  sizes.vocab = weights.outputs[0].vocab();
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<HeadMachine> machine, HeadMachine::create(target, sizes));
  std::unique_ptr<MlpSpeculator> head(
      new MlpSpeculator(std::move(machine), plan, std::move(weights), target));
  const std::pair<HeadRows*, int64_t> all[] = {{&head->normed_, plan.width},
                                               {&head->scaled_, plan.width},
                                               {&head->state_, plan.inner},
                                               {&head->mixed_, plan.inner}};
  for (const auto& [rows, width] : all) {
    AERIE_ASSIGN_OR_RETURN(*rows, head->machine().allocate(HeadWhich::kWanted, width));
  }
  return std::unique_ptr<FeatureHead>(std::move(head));
}

// The state that the rows of this depth start from.
HeadRows MlpSpeculator::before() {
  if (depth_ > 0) return in_.features;
  machine().target_norm(in_.features, HeadWhich::kWanted, normed_);
  if (!plan_.scales_input) return normed_;
  machine().norm({input_scale_, kEps}, normed_, HeadWhich::kWanted, scaled_);
  return scaled_;
}

void MlpSpeculator::compute() {
  const auto at = static_cast<size_t>(plan_.own(depth_));
  const auto projection = static_cast<size_t>(plan_.own_projection(depth_));
  const HeadRows state = machine().handed();
  machine().linear(weights_.projections[projection], {{before()}}, HeadWhich::kWanted, state_);
  machine().add(in_.embedded, token_weight_, HeadWhich::kWanted, state_);
  const Norm& norm = weights_.norms[at];
  machine().norm({norm.weight, kEps}, state_, HeadWhich::kWanted, mixed_);
  machine().shift(norm.bias, HeadWhich::kWanted, mixed_);
  machine().activate(kernels::Activation::kGelu, mixed_, HeadWhich::kWanted, state);
  machine().output(weights_.outputs[at].linear(), {{state}});
}

HeadOutputs MlpSpeculator::forward(const HeadPass& pass, KvCache& cache) {
  // Without a cache of its own a head is given no rows but those that draft.
  assert(std::ranges::all_of(pass.batch.rows, &BatchRow::wants_logits));
  assert(pass.depth < plan_.steps);
  depth_ = pass.depth;
  in_ = machine().begin(pass, cache, depth_, depth_ == 0 ? plan_.width : plan_.inner,
                        [this](const BatchRow& row, float* out) {
                          const auto at = static_cast<size_t>(plan_.own(depth_));
                          const TensorView& table = weights_.embeddings[at].view;
                          dequantize(table.dtype, table.row(row.token), table.row_length(), out);
                        });
  return machine().run([this] { compute(); });
}

Expected<MlpSpeculatorPlan> read_plan(const HeadFile& file, const HeadTarget& target) {
  const JsonObject config = file.config_object();
  MlpSpeculatorPlan plan;
  AERIE_ASSIGN_OR_RETURN(const int64_t steps, config.integer_in("n_predict", 1, kMostHeadDepth));
  plan.steps = static_cast<int>(steps);
  AERIE_ASSIGN_OR_RETURN(plan.width, config.integer("emb_dim"));
  AERIE_RETURN_IF_ERROR(require_equal(file, "emb_dim", plan.width, "the target's hidden size",
                                      target.config->hidden));
  if (config.has("inner_dim")) {
    AERIE_ASSIGN_OR_RETURN(plan.inner, config.integer_in("inner_dim", 0, kMostInner));
  }
  if (plan.inner == 0) plan.inner = plan.width;
  AERIE_ASSIGN_OR_RETURN(const int64_t vocab, config.integer("vocab_size", target.config->vocab));
  AERIE_RETURN_IF_ERROR(
      require_equal(file, "vocab_size", vocab, "the target's vocabulary", target.config->vocab));
  AERIE_ASSIGN_OR_RETURN(plan.tied, config.boolean("tie_weights", false));
  AERIE_ASSIGN_OR_RETURN(plan.scales_input, config.boolean("scale_input", false));
  return plan;
}

Expected<MlpSpeculatorWeights> load_weights(HeadFile& file, const HeadTarget& target,
                                            const HeadOptions& options,
                                            const MlpSpeculatorPlan& plan,
                                            const ModelOptions& model) {
  WeightLoader loader(file, model);
  MlpSpeculatorWeights w;
  for (int i = 0; i <= plan.own_projection(plan.steps - 1); ++i) {
    const int64_t from = i == 0 ? plan.width : plan.inner;
    AERIE_ASSIGN_OR_RETURN(Linear projection,
                           load_linear(loader, fmt::format("proj.{}", i), from, plan.inner));
    w.projections.push_back(std::move(projection));
  }
  for (int i = 0; i <= plan.own(plan.steps - 1); ++i) {
    AERIE_ASSIGN_OR_RETURN(TensorData table, loader.table(fmt::format("emb.{}.weight", i),
                                                          plan.inner, target.config->vocab));
    w.embeddings.push_back(std::move(table));
    Norm norm;
    AERIE_ASSIGN_OR_RETURN(norm.weight, loader.vector(fmt::format("ln.{}.weight", i), plan.inner));
    AERIE_ASSIGN_OR_RETURN(norm.bias, loader.vector(fmt::format("ln.{}.bias", i), plan.inner));
    w.norms.push_back(std::move(norm));
    const std::string name = fmt::format("head.{}.weight", i);
    AERIE_RETURN_IF_ERROR(file.tensor_info(name).status());
    AERIE_ASSIGN_OR_RETURN(OutputHead output,
                           OutputHead::load(loader, file, name, plan.inner, target, options));
    if (i > 0) AERIE_RETURN_IF_ERROR(output.require_same(w.outputs[0], file));
    w.outputs.push_back(std::move(output));
  }
  // A file may have each name of what is tied.
  for (int i = 1; plan.tied && i < plan.steps; ++i) {
    for (const char* part : {"emb.{}.weight", "head.{}.weight", "ln.{}.weight", "ln.{}.bias"}) {
      loader.ignore(fmt::format(fmt::runtime(part), i));
    }
    if (i > 1) loader.ignore(fmt::format("proj.{}.weight", i));
  }
  AERIE_RETURN_IF_ERROR(loader.check_all_used("MLPSpeculator"));
  return w;
}

// Step i: s = gelu(norm_i(proj_i s + weight * emb_i(token))), logits = head_i(s), where s before
// the first step is the target's hidden state after its final norm, normed once more if the
// configuration says scale_input. n_predict steps, which is how deep a draft can be.
//
// kInvalidArgument, naming what differs, for a head of another model; kInvalidData for a
// configuration out of range or tensors that do not fit it; kUnsupported for a tensor that has no
// place.
Expected<std::unique_ptr<FeatureHead>> load_mlp_speculator(HeadFile& file, const HeadTarget& target,
                                                           const HeadSettings& options) {
  AERIE_RETURN_IF_ERROR(file.rename_prefix("speculator.", ""));
  AERIE_ASSIGN_OR_RETURN(const MlpSpeculatorPlan plan, read_plan(file, target));
  const ModelOptions model = target.model_options();
  AERIE_ASSIGN_OR_RETURN(MlpSpeculatorWeights weights,
                         load_weights(file, target, options, plan, model));
  return MlpSpeculator::create(plan, std::move(weights), target);
}

}  // namespace

constinit const Method kMlpSpeculatorMethod =
    head_method("mlp_speculator", "an MLP speculator", load_mlp_speculator);

}  // namespace aerie
