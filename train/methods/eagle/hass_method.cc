#include "train/methods/eagle/hass_method.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "train/methods/supervision.h"
#include "train/methods/training_methods.h"

namespace aerie::train {

extern const TrainingMethod kHassTraining;

namespace {

constexpr int kMostPasses = 16;
constexpr double kNoiseLength = 512.0;

class Hass final : public HeadMethod<EagleHead> {
 public:
  Hass(EagleHead head, const HassOptions& options)
      : HeadMethod(std::move(head)), options_(options) {}

  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) override;
  void set_progress(double share) override { progress_ = share; }
  Status write(const std::string& folder) const override { return head_.write(folder); }
  DraftSettings settings() const override {
    return DraftSettings::of(kHassTraining.drafter, options_.depth);
  }

 private:
  HassOptions options_;
  double progress_ = 0.0;
};

Expected<Figures> Hass::accumulate(const Batch& batch, double scale, at::Generator& generator,
                                   bool train) {
  const at::AutoGradMode gradients(train);
  Figures figures;
  const at::Tensor places = places_of(supervised_rows(batch, 0));
  figures.weight = static_cast<double>(places.size(0));
  EagleLoss loss = options_.loss;
  if (progress_ < options_.top_from) loss.top = 0.0;
  std::vector<at::Tensor> passes = {head_.true_features(batch)};
  if (train && options_.noise > 0.0) {
    const at::Tensor noise =
        feature_noise(batch.documents, passes[0].size(1), options_.noise, generator);
    passes[0] = passes[0] + noise.to(passes[0].device());
  }
  double sum = 0.0;
  for (int pass = 0; pass < options_.passes && places.size(0) > 0; ++pass) {
    const at::Tensor outputs = head_.forward(batch, passes);
    sum += head_.learn(batch, outputs, places, loss, scale, pass, figures);
    passes.push_back(next_features(batch, outputs, passes[0]));
  }
  figures.add("loss", sum);
  return figures;
}

MakeMethod declare_hass(SettingList& settings) {
  const auto o = std::make_shared<HassOptions>();
  add_eagle_settings(settings, o->head, o->noise, o->loss);
  settings.add("passes", o->passes, {1, 64}, "Passes over the same rows; 1: as EAGLE");
  settings.add("top-from", o->top_from, {0, 1},
               "Share of the training after which --top-weight counts");
  settings.add_depth(o->depth);
  return made_of(o, make_hass);
}

}  // namespace

void add_eagle_settings(SettingList& settings, EagleHeadOptions& head, double& noise,
                        EagleLoss& loss) {
  settings.add("!no-bias", head.bias, "The joining matrix has no bias, as for LLaMA-3");
  settings.add("store-embedding", head.store_embedding,
               "Store a copy of the target's embedding, for loaders that want one");
  settings.add_intermediate(head.intermediate);
  settings.add("noise", noise,
               "Half the range of uniform noise on features in a text of 512 tokens");
  settings.add("feature-weight", loss.feature, "Weighs the distance of features");
  settings.add("token-weight", loss.token, "Weighs the cross entropy of tokens");
  settings.add("top-weight", loss.top, "Weighs that of the target's likeliest tokens");
  settings.add("top-tokens", loss.top_tokens, "How many these are");
}

at::Tensor feature_noise(const Documents& documents, int64_t width, double noise,
                         at::Generator& generator) {
  at::Tensor values = at::rand({documents.rows(), width}, generator) * 2.0 - 1.0;
  for (int64_t d = 0; d < documents.count(); ++d) {
    const int64_t rows = documents.length(d);
    if (rows == 0) continue;
    values.narrow(0, documents.start(d), rows)
        .mul_(noise * kNoiseLength / static_cast<double>(rows));
  }
  return values;
}

at::Tensor next_features(const Batch& batch, const at::Tensor& outputs,
                         const at::Tensor& true_features) {
  at::Tensor next = true_features.detach().clone();
  for (int64_t d = 0; d < batch.documents.count(); ++d) {
    const int64_t begin = batch.documents.start(d), rows = batch.documents.length(d);
    if (rows < 2) continue;
    next.narrow(0, begin + 1, rows - 1).copy_(outputs.detach().narrow(0, begin, rows - 1));
  }
  return next;
}

Expected<std::unique_ptr<Method>> make_hass(Target& target, const HassOptions& options,
                                            at::Generator& generator) {
  if (options.passes < 1 || options.passes > kMostPasses) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} passes of a head over its own features: 1 to {} can be trained",
                              options.passes, kMostPasses));
  }
  if (!(options.noise >= 0.0) || options.loss.top_tokens < 1) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("noise of {} on features and a loss of the {} likeliest tokens: "
                              "noise is at least 0, tokens at least 1",
                              options.noise, options.loss.top_tokens));
  }
  AERIE_ASSIGN_OR_RETURN(EagleHead head, EagleHead::create(target, options.head, generator));
  return std::unique_ptr<Method>(std::make_unique<Hass>(std::move(head), options));
}

constinit const TrainingMethod kHassTraining = {
    .name = "hass",
    .what = "HASS: EAGLE's network, trained on its own features",
    .drafter = "eagle",
    .schedule = {.rate = 3e-5, .warmup = 0.0025, .decay = Decay::kLinear, .floor = 0.0},
    .clip_value = 0.5,
    .declare = declare_hass,
};

}  // namespace aerie::train
