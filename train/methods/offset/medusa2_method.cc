#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "train/methods/adapted_file.h"
#include "train/methods/offset/medusa_method.h"
#include "train/methods/training_methods.h"
#include "train/nn/llama_model.h"
#include "train/nn/losses.h"
#include "train/nn/ops.h"

namespace aerie::train {

extern const TrainingMethod kMedusa2Training;

namespace {

constexpr int64_t kLogits = int64_t{1} << 24;  // made at a time
constexpr int64_t kMostRank = 4096;
constexpr const char* kModel = "model.gguf";

// What is added to a matrix: scale * b a.
struct Adapter {
  std::string name;  // of the matrix
  at::Tensor matrix, a, b;
};

class Medusa2 final : public Method {
 public:
  static Expected<std::unique_ptr<Method>> make(Target& target, const Medusa2Options& options,
                                                at::Generator& generator);

  const MethodNeeds& needs() const override { return needs_; }
  Parameters& parameters() override { return parameters_; }
  double weight(const Batch& batch) const override { return heads_.offsets().weight(batch); }
  void set_progress(double share) override { progress_ = share; }
  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) override;
  Status write(const std::string& folder) const override;
  DraftSettings settings() const override {
    const int heads = heads_.options().heads;
    return {DraftSettings::of(kMedusa2Training.drafter, heads).speculate,
            fmt::format("{{}}/{}", kModel)};
  }

 private:
  Medusa2(Target& target, const Medusa2Options& options, MedusaHeads heads)
      : target_(target), options_(options), heads_(std::move(heads)) {
    needs_.last = true;
  }
  Status adapt(at::Generator& generator);
  at::Tensor adapted(const Adapter& adapter) const {
    return adapter.matrix +
           at::mm(adapter.b, adapter.a) * (options_.alpha / static_cast<double>(options_.rank));
  }
  at::Tensor states(const Batch& batch) const;
  // Of the target as it was.
  at::Tensor former_logits(const Batch& batch, const at::Tensor& rows) const {
    const at::NoGradGuard no_grad;
    return target_logits(target_, batch.last.index_select(0, rows), norm_, output_);
  }
  double accumulate_target(const Batch& batch, const at::Tensor& states, double scale,
                           bool train) const;

  Target& target_;
  Medusa2Options options_;
  MedusaHeads heads_;
  MethodNeeds needs_;
  double progress_ = 0.0;
  Parameters frozen_, parameters_;
  LlamaModel model_;
  std::vector<Adapter> adapters_;  // in the order of LlamaModel::with_matrices()
  at::Tensor norm_, output_;       // the target's
};

Expected<std::unique_ptr<Method>> Medusa2::make(Target& target, const Medusa2Options& options,
                                                at::Generator& generator) {
  AERIE_ASSIGN_OR_RETURN(MedusaHeads heads, MedusaHeads::create(target, options.heads));
  std::unique_ptr<Medusa2> made(new Medusa2(target, options, std::move(heads)));
  for (const Parameter& parameter : made->heads_.parameters().list()) {
    made->parameters_.add(parameter.name, parameter.value, options.heads_rate);
  }
  AERIE_RETURN_IF_ERROR(made->adapt(generator));
  return std::unique_ptr<Method>(std::move(made));
}

Status Medusa2::adapt(at::Generator& generator) {
  LlamaCut whole;
  for (int64_t i = 0; i < target_.config().layers; ++i) whole.layers.push_back(i);
  AERIE_ASSIGN_OR_RETURN(model_, LlamaModel::cut(frozen_, target_, whole));
  for (const Parameter& parameter : frozen_.list()) parameter.value.set_requires_grad(false);
  AERIE_ASSIGN_OR_RETURN(norm_, target_.final_norm());
  AERIE_ASSIGN_OR_RETURN(output_, target_.output());
  model_.with_matrices([&](const std::string& name, const at::Tensor& matrix) {
    const int64_t outputs = matrix.size(0), inputs = matrix.size(1);
    const at::Tensor a = random_matrix(options_.rank, inputs, generator).to(matrix.device());
    adapters_.push_back({name, matrix, parameters_.add(fmt::format("adapter.{}.a", name), a),
                         parameters_.add(fmt::format("adapter.{}.b", name),
                                         at::zeros({outputs, options_.rank}, matrix.options()))});
    return matrix;
  });
  return {};
}

// As OffsetHeads::states(), of the target as it is now.
at::Tensor Medusa2::states(const Batch& batch) const {
  size_t next = 0;
  const LlamaModel now = model_.with_matrices(
      [&](const std::string&, const at::Tensor&) { return adapted(adapters_[next++]); });
  const std::vector<at::Tensor> streams =
      now.forward(batch.tokens, batch.positions, batch.documents);
  return rms_norm(streams.back(), norm_, target_.norm_eps());
}

// The target's own loss, summed over the rows whose next token it generated.
double Medusa2::accumulate_target(const Batch& batch, const at::Tensor& states, double scale,
                                  bool train) const {
  const at::Tensor places = (batch.shifted(batch.mask, 1) > 0).nonzero().squeeze(1);
  const int64_t step = std::max<int64_t>(1, kLogits / output_.size(0));
  double sum = 0.0;
  for (int64_t first = 0; first < places.numel(); first += step) {
    const at::Tensor rows = places.narrow(0, first, std::min(step, places.numel() - first));
    const at::Tensor logits = at::linear(states.index_select(0, rows), output_);
    const at::Tensor loss =
        options_.distill
            ? divergence(Divergence::kForwardKl, former_logits(batch, rows), logits).sum()
            : at::cross_entropy_loss(logits, batch.tokens.index_select(0, rows + 1), {},
                                     at::Reduction::Sum);
    sum += loss.item<double>();
    if (train) (loss * scale).backward();
  }
  return sum;
}

Expected<Figures> Medusa2::accumulate(const Batch& batch, double scale, at::Generator& /*none*/,
                                      bool train) {
  if (progress_ < options_.heads_alone) {
    return heads_.accumulate(batch, heads_.offsets().states(batch), scale, train);
  }
  const at::AutoGradMode gradients(train);
  const at::Tensor whole = states(batch);
  // The gradients of all losses meet here, so that they pass the target once.
  const at::Tensor seen = whole.detach().set_requires_grad(train);
  AERIE_ASSIGN_OR_RETURN(Figures figures,
                         heads_.accumulate(batch, seen, scale * options_.heads_weight, train));
  const double own = accumulate_target(batch, seen, scale, train);
  for (auto& [name, sum] : figures.sums) {
    if (name == "loss") sum = sum * options_.heads_weight + own;
  }
  figures.add("target", own);
  if (train && seen.grad().defined()) whole.backward(seen.grad());
  return figures;
}

Status Medusa2::write(const std::string& folder) const {
  const at::NoGradGuard no_grad;
  AdaptedWeights matrices;
  for (const Adapter& adapter : adapters_) matrices[adapter.name] = adapted(adapter);
  AERIE_RETURN_IF_ERROR(
      write_adapted_model(target_, matrices, fmt::format("{}/{}", folder, kModel)));
  return heads_.write(folder);
}

Status wrong(const std::string& what) {
  return {StatusCode::kInvalidArgument, what};
}

Status check(const Medusa2Options& options) {
  if (options.rank < 1 || options.rank > kMostRank) {
    return wrong(
        fmt::format("adapters of rank {}: they can have 1 to {}", options.rank, kMostRank));
  }
  const std::pair<const char*, double> positive[] = {{"alpha", options.alpha},
                                                     {"heads_weight", options.heads_weight},
                                                     {"heads_rate", options.heads_rate}};
  for (const auto& [name, value] : positive) {
    if (!(value > 0.0) || !std::isfinite(value)) {
      return wrong(fmt::format("{} is {}: it must be above 0", name, value));
    }
  }
  if (!(options.heads_alone >= 0.0 && options.heads_alone <= 1.0)) {
    return wrong(fmt::format("heads_alone is {}: it is a share of the training, 0 to 1",
                             options.heads_alone));
  }
  return {};
}

MakeMethod declare_medusa2(SettingList& settings) {
  struct Given {
    Medusa2Options options;
    bool labels = false;
  };
  const auto given = std::make_shared<Given>();
  Medusa2Options& o = given->options;
  o.heads.add_to(settings);
  settings.add("heads-weight", o.heads_weight, "Weighs the heads' losses");
  settings.add("heads-rate", o.heads_rate, "Their learning rate, in those of the target");
  settings.add("heads-alone", o.heads_alone, {0, 1},
               "The first share of the training is Medusa-1's");
  settings.add("lora-rank", o.rank, "Of the target's adapters (LoRA)");
  settings.add("lora-alpha", o.alpha, "Their scale");
  settings.add("labels", given->labels, "Hold the target to the text, not to what it was");
  return [given](const MethodInputs& inputs) {
    given->options.distill = !given->labels;
    return make_medusa2(inputs.target, given->options, inputs.generator);
  };
}

}  // namespace

Expected<std::unique_ptr<Method>> make_medusa2(Target& target, const Medusa2Options& options,
                                               at::Generator& generator) {
  AERIE_RETURN_IF_ERROR(check(options));
  return Medusa2::make(target, options, generator);
}

// The paper's second stage; rates are given for the target.
constinit const TrainingMethod kMedusa2Training = {
    .name = "medusa2",
    .what = "Medusa's heads together with a new target",
    .drafter = "medusa",
    .schedule = {.rate = 1.25e-4, .warmup = 0.05, .decay = Decay::kConstant, .floor = 0.0},
    .declare = declare_medusa2,
};

}  // namespace aerie::train
