#include "train/methods/mtp_method.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "train/methods/row_chunks.h"
#include "train/methods/supervision.h"
#include "train/methods/training_methods.h"

namespace aerie::train {

extern const TrainingMethod kMtpTraining;

namespace {

constexpr int kMostSteps = 64;

class Mtp final : public HeadMethod<MtpModule> {
 public:
  Mtp(MtpModule module, const MtpOptions& options)
      : HeadMethod(std::move(module)), options_(options) {
    double sum = 0.0;
    for (int step = 0; step < options_.steps; ++step) {
      weights_.push_back(std::pow(options_.step_decay, step));
      sum += weights_.back();
    }
    for (double& weight : weights_) weight /= sum;
  }

  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) override;
  Status write(const std::string& folder) const override { return head_.write(folder); }
  DraftSettings settings() const override;

 private:
  at::Tensor learn(const Batch& batch, const at::Tensor& stream, const at::Tensor& rows, int step,
                   double scale, Figures& figures) const;

  MtpOptions options_;
  std::vector<double> weights_;  // of the steps
};

// Adds the figures of a step and the gradients of what comes behind its stream; returns the
// stream's.
at::Tensor Mtp::learn(const Batch& batch, const at::Tensor& stream, const at::Tensor& rows,
                      int step, double scale, Figures& figures) const {
  const at::Tensor last = batch.last.index_select(0, rows + (step + 1));
  const at::Tensor tokens = batch.tokens.index_select(0, rows + (step + 2));
  double sum = 0.0, hits = 0.0;
  const auto loss_of = [&](const at::Tensor& part, int64_t begin) {
    const at::Tensor next = tokens.narrow(0, begin, part.size(0));
    const at::Tensor logits = head_.logits(part);
    at::Tensor loss;
    if (options_.loss) {
      const at::Tensor wanted = head_.wanted_logits(last.narrow(0, begin, part.size(0)));
      loss = divergence(*options_.loss, wanted, logits).sum();
    } else {
      loss = -logits.log_softmax(-1).gather(-1, next.unsqueeze(1)).sum();
    }
    sum += loss.item<double>();
    hits += logits.argmax(-1).eq(next).sum().item<double>();
    return loss;
  };
  const double weight = weights_[static_cast<size_t>(step)];
  const at::Tensor gradient = loss_in_chunks(stream, scale * weight, loss_of);
  add_step(figures, step, sum, hits, static_cast<double>(rows.size(0)));
  figures.add("loss", sum * weight);
  return gradient;
}

Expected<Figures> Mtp::accumulate(const Batch& batch, double scale, at::Generator& generator,
                                  bool train) {
  (void)generator;
  const at::AutoGradMode gradients(train);
  Figures figures;
  MtpModule::State state = head_.begin(batch);
  at::Tensor behind;  // a scalar with the gradients of what comes behind the streams
  for (int step = 0; step < options_.steps; ++step) {
    const at::Tensor asked = supervised_rows(batch, step);
    if (step > 0) {
      // No other row sees what a row does in later steps, so those that are not asked can rest.
      MtpModule::narrow(state, places_of(asked.index_select(0, state.rows)));
    }
    if (state.rows.size(0) == 0) break;
    at::Tensor stream = head_.step(batch, state);
    if (step == 0) {
      const at::Tensor places = places_of(asked);
      figures.weight = static_cast<double>(places.size(0));
      if (places.size(0) == 0) break;
      MtpModule::narrow(state, places);
      stream = stream.index_select(0, places);
    }
    Figures of_step;
    const at::Tensor gradient = learn(batch, stream, state.rows, step, scale, of_step);
    figures.merge(of_step);
    if (!gradient.defined()) continue;
    const at::Tensor product = (stream * gradient).sum();
    behind = behind.defined() ? behind + product : product;
  }
  if (behind.defined()) behind.backward();
  return figures;
}

DraftSettings Mtp::settings() const {
  DraftSettings settings = DraftSettings::of(kMtpTraining.drafter, options_.depth);
  if (!options_.module.feature_normed) settings.speculate += ",feature_normed=false";
  if (!options_.module.handed_normed) settings.speculate += ",handed_normed=false";
  return settings;
}

MakeMethod declare_mtp(SettingList& settings) {
  const auto o = std::make_shared<MtpOptions>();
  MtpModuleOptions& module = o->module;
  settings.add("unroll", o->steps, {1, 64}, "Tokens that each row drafts");
  settings.add("step-decay", o->step_decay, {0, 1}, "Step j weighs so much to the power of j");
  settings.add_loss(o->loss);
  settings.add("!feature-before-norm", module.feature_normed,
               "Read the target's state in front of its final norm");
  settings.add("!hand-on-before-norm", module.handed_normed,
               "Hand on what is in front of the module's norm");
  settings.add("store-tables", module.store_tables,
               "Store copies of the target's embedding and head, for loaders that want them");
  settings.add_intermediate(module.intermediate);
  settings.add_depth(o->depth);
  return made_of(o, make_mtp);
}

}  // namespace

Expected<std::unique_ptr<Method>> make_mtp(Target& target, const MtpOptions& options,
                                           at::Generator& generator) {
  if (options.steps < 1 || options.steps > kMostSteps || !(options.step_decay > 0.0)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} steps of which each weighs {} times the one before: 1 to {} "
                              "steps and a factor above 0 can be trained",
                              options.steps, options.step_decay, kMostSteps));
  }
  AERIE_ASSIGN_OR_RETURN(MtpModule module, MtpModule::create(target, options.module, generator));
  return std::unique_ptr<Method>(std::make_unique<Mtp>(std::move(module), options));
}

constinit const TrainingMethod kMtpTraining = {
    .name = "mtp",
    .what = "A module for multi-token prediction, unrolled",
    .drafter = "mtp",
    .schedule = {.rate = 1e-4, .warmup = 0.02, .floor = 0.1},
    .clip_norm = 1.0,
    .declare = declare_mtp,
};

}  // namespace aerie::train
