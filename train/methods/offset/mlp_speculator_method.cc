#include "train/methods/offset/mlp_speculator_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "format/json.h"
#include "train/methods/offset/recurrent_method.h"
#include "train/methods/training_methods.h"
#include "train/nn/llama_layer.h"
#include "train/nn/ops.h"
#include "train/run/checkpoint_files.h"

namespace aerie::train {

extern const TrainingMethod kMlpSpeculatorTraining;

namespace {

constexpr double kEps = 1e-6;
constexpr int64_t kMostInner = 1 << 20;

// What a step has of its own. Of tied ones all have the same tensors, but for the first projection.
struct Step {
  at::Tensor projection, embedding, norm, shift, output;
};

class MlpSpeculator final : public RecurrentMethod {
 public:
  MlpSpeculator(const Target& target, const MlpSpeculatorOptions& options, OffsetHeads offsets,
                at::Tensor embedding, at::Generator& generator);

  Status write(const std::string& folder) const override;
  DraftSettings settings() const override {
    return DraftSettings::of(kMlpSpeculatorTraining.drafter, options_.steps);
  }

 private:
  at::Tensor forward(const at::Tensor& states, const at::Tensor& tokens) const override;
  void add_step(int index, const at::Tensor& embedding, at::Generator& generator);

  MlpSpeculatorOptions options_;
  int vocab_;  // the target's
  int64_t hidden_, inner_;
  std::vector<Step> steps_;
};

MlpSpeculator::MlpSpeculator(const Target& target, const MlpSpeculatorOptions& options,
                             OffsetHeads offsets, at::Tensor embedding, at::Generator& generator)
    : RecurrentMethod(std::move(offsets)),
      options_(options),
      vocab_(target.config().vocab),
      hidden_(target.config().hidden),
      inner_(options.inner == 0 ? hidden_ : options.inner) {
  for (int i = 0; i < options_.steps; ++i) add_step(i, embedding, generator);
}

void MlpSpeculator::add_step(int index, const at::Tensor& embedding, at::Generator& generator) {
  const at::Tensor& rows = offsets().target_rows();
  const bool is_as_wide = inner_ == hidden_;
  Step& step = steps_.emplace_back();
  if (options_.tied && index > 0) step = steps_[static_cast<size_t>(index) - 1];
  if (!options_.tied || index < 2) {
    step.projection =
        parameters().add(fmt::format("proj.{}.weight", index),
                         at::eye(inner_, index == 0 ? hidden_ : inner_, rows.options()));
  }
  if (options_.tied && index > 0) return;
  const auto random = [&](int64_t count) {
    return random_matrix(count, inner_, generator).to(rows.device());
  };
  const double size = 1.0 / std::sqrt(static_cast<double>(inner_));
  step.embedding = parameters().add(
      fmt::format("emb.{}.weight", index),
      is_as_wide ? embedding * (size / embedding.square().mean().sqrt().clamp_min(1e-6))
                 : random(vocab_));
  step.norm =
      parameters().add(fmt::format("ln.{}.weight", index), at::ones({inner_}, rows.options()));
  step.shift =
      parameters().add(fmt::format("ln.{}.bias", index), at::zeros({inner_}, rows.options()));
  step.output = parameters().add(fmt::format("head.{}.weight", index),
                                 is_as_wide ? rows.clone() : random(rows.size(0)));
}

at::Tensor MlpSpeculator::forward(const at::Tensor& states, const at::Tensor& tokens) const {
  const double alpha = std::pow(0.5, 0.5 / options_.steps);
  const double token_weight =
      std::sqrt((1.0 - alpha * alpha) * static_cast<double>(inner_) / 2.0) / alpha;
  at::Tensor s = states;
  if (options_.scales_input) {
    s = rms_norm(s, at::full({hidden_}, std::sqrt(0.5), s.options()), kEps);
  }
  for (int64_t i = 0; i < tokens.size(0); ++i) {
    const Step& step = steps_[static_cast<size_t>(i)];
    s = at::linear(s, step.projection) + token_weight * step.embedding.index_select(0, tokens[i]);
    s = at::gelu(rms_norm(s, step.norm, kEps) + step.shift);
  }
  const Step& last = steps_[static_cast<size_t>(tokens.size(0)) - 1];
  return at::linear(s, last.output);
}

Status MlpSpeculator::write(const std::string& folder) const {
  Json config = Json::object();
  config["model_type"] = "mlp_speculator";
  config["vocab_size"] = vocab_;
  config["emb_dim"] = hidden_;
  config["inner_dim"] = inner_;
  config["n_predict"] = options_.steps;
  config["tie_weights"] = options_.tied;
  config["scale_input"] = options_.scales_input;
  return write_checkpoint(folder, stored_parameters(stored(), options_.bf16), config);
}

MakeMethod declare_mlp_speculator(SettingList& settings) {
  const auto o = std::make_shared<MlpSpeculatorOptions>();
  settings.add_depth(o->steps);
  settings.add("inner", o->inner, {0, static_cast<double>(kMostInner)},
               "Width of its state; 0: the target's hidden size");
  settings.add("tie", o->tied, "One embedding, norm and output matrix for all steps");
  settings.add("scale-input", o->scales_input, "Norm the target's state once more");
  settings.add("store-bf16", o->bf16, "Store matrices as BF16");
  settings.add_draft_vocab(o->vocabulary);
  add_offset_loss(settings, o->loss);
  return made_of(o, make_mlp_speculator);
}

}  // namespace

Expected<std::unique_ptr<Method>> make_mlp_speculator(Target& target,
                                                      const MlpSpeculatorOptions& options,
                                                      at::Generator& generator) {
  if (options.inner < 0 || options.inner > kMostInner) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("an inner width of {}: it must be 0 to {}", options.inner, kMostInner));
  }
  AERIE_ASSIGN_OR_RETURN(OffsetHeads heads,
                         recurrent_offsets(target, {.heads = options.steps,
                                                    .vocabulary = options.vocabulary,
                                                    .loss = options.loss}));
  AERIE_ASSIGN_OR_RETURN(at::Tensor embedding, target.embedding());
  return std::unique_ptr<Method>(std::make_unique<MlpSpeculator>(target, options, std::move(heads),
                                                                 std::move(embedding), generator));
}

constinit const TrainingMethod kMlpSpeculatorTraining = {
    .name = "mlp-speculator",
    .what = "MLPSpeculator: a state and matrices of its own for each depth",
    .drafter = "mlp_speculator",
    .schedule = {.rate = 1e-3, .warmup = 0.02, .floor = 0.1},
    .adamw = {.weight_decay = 0.1},
    .declare = declare_mlp_speculator,
};

}  // namespace aerie::train
