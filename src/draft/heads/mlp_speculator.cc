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

class MlpSpeculator final : public FeatureHead {
 public:
  MlpSpeculator(const MlpSpeculatorPlan& plan, MlpSpeculatorWeights weights, HeadOps ops,
                const HeadTarget& target)
      : plan_(plan),
        weights_(std::move(weights)),
        ops_(std::move(ops)),
        pool_(*target.pool),
        taps_({target.config->layers}) {
    const auto rows = static_cast<size_t>(target.max_logits);
    const auto widest = static_cast<size_t>(std::max(plan.width, plan.inner));
    const double alpha = std::pow(0.5, 0.5 / plan.steps);
    token_weight_ = static_cast<float>(
        std::sqrt((1.0 - alpha * alpha) * static_cast<double>(plan.inner) / 2.0) / alpha);
    input_.resize(rows * widest);
    normed_.resize(rows * widest);
    state_.resize(rows * static_cast<size_t>(plan.inner));
    token_.resize(static_cast<size_t>(plan.inner));
    logits_.resize(rows * static_cast<size_t>(vocab()));
    input_scale_.assign(static_cast<size_t>(plan.width), std::numbers::sqrt2_v<float> / 2.0f);
  }

  std::span<const int32_t> tap_layers() const override { return taps_; }
  int feature_width() const override { return static_cast<int>(plan_.width); }
  int hidden() const override { return static_cast<int>(plan_.inner); }
  int vocab() const override { return weights_.outputs[0].vocab(); }
  std::span<const int32_t> target_ids() const override { return weights_.outputs[0].target_ids(); }
  const ModelConfig& cache_config() const override { return no_cache_; }
  int max_depth() const override { return plan_.steps; }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  const float* begin(const HeadPass& pass, int64_t rows);
  void mix_tokens(const HeadPass& pass, const TensorView& table);

  MlpSpeculatorPlan plan_;
  MlpSpeculatorWeights weights_;
  HeadOps ops_;
  ThreadPool& pool_;
  std::array<int32_t, 1> taps_;
  ModelConfig no_cache_;
  float token_weight_ = 0.0f;
  std::vector<float> input_scale_;
  std::vector<float> input_, normed_, state_, token_, logits_;
};

// The state that the rows of this depth start from.
const float* MlpSpeculator::begin(const HeadPass& pass, int64_t rows) {
  if (pass.depth > 0) {
    gather_wanted_features(pass, plan_.inner, input_.data());
    return input_.data();
  }
  gather_wanted_features(pass, plan_.width, input_.data());
  ops_.target_norm(input_.data(), rows, normed_.data());
  if (!plan_.scales_input) return normed_.data();
  ops_.rms_norm(input_scale_, kEps, normed_.data(), rows, input_.data());
  return input_.data();
}

void MlpSpeculator::mix_tokens(const HeadPass& pass, const TensorView& table) {
  float* state = state_.data();
  for (const BatchRow& row : pass.batch.rows) {
    dequantize(table.dtype, table.row(row.token), table.row_length(), token_.data());
    for (const float value : token_) *state++ += token_weight_ * value;
  }
}

HeadOutputs MlpSpeculator::forward(const HeadPass& pass, KvCache& /*cache*/) {
  // Without a cache of its own a head is given no rows but those that draft.
  assert(std::ranges::all_of(pass.batch.rows, &BatchRow::wants_logits));
  assert(pass.depth < plan_.steps);
  const ThreadPool::Round round(pool_);
  const int64_t rows = pass.batch.size();
  const auto at = static_cast<size_t>(plan_.own(pass.depth));
  const auto projection = static_cast<size_t>(plan_.own_projection(pass.depth));
  ops_.linear(weights_.projections[projection], begin(pass, rows), rows, state_.data());
  mix_tokens(pass, weights_.embeddings[at].view);
  const Norm& norm = weights_.norms[at];
  ops_.rms_norm(norm.weight, kEps, state_.data(), rows, normed_.data());
  for (int64_t i = 0; i < rows * plan_.inner; ++i) {
    normed_[static_cast<size_t>(i)] += norm.bias[static_cast<size_t>(i % plan_.inner)];
  }
  ops_.activate(kernels::Activation::kGelu, normed_.data(), rows, plan_.inner, state_.data());
  ops_.linear(weights_.outputs[at].linear(), state_.data(), rows, logits_.data());
  HeadOutputs out;
  out.logits = std::span<const float>(logits_).first(static_cast<size_t>(rows * vocab()));
  out.hidden = std::span<const float>(state_).first(static_cast<size_t>(rows * plan_.inner));
  return out;
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
  AERIE_ASSIGN_OR_RETURN(
      HeadOps ops, HeadOps::create(target, target.max_logits, std::max(plan.width, plan.inner)));
  return std::unique_ptr<FeatureHead>(
      std::make_unique<MlpSpeculator>(plan, std::move(weights), std::move(ops), target));
}

}  // namespace

constinit const Method kMlpSpeculatorMethod =
    head_method("mlp_speculator", "an MLP speculator", load_mlp_speculator);

}  // namespace aerie
