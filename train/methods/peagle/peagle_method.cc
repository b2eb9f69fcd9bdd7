#include "train/methods/peagle/peagle_method.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "train/methods/eagle/continued_head.h"
#include "train/methods/peagle/peagle_step.h"
#include "train/methods/supervision.h"
#include "train/methods/training_methods.h"

namespace aerie::train {

extern const TrainingMethod kPEagleTraining;

namespace {

class PEagle final : public HeadMethod<Eagle3Head> {
 public:
  PEagle(const Eagle3Head& head, const PEagleOptions& options)
      : HeadMethod(head, head.options().tap_layers), options_(options) {}

  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) override;
  Status write(const std::string& folder) const override {
    return head_.write(folder, "peagle", static_cast<int>(options_.sampling.depths));
  }
  DraftSettings settings() const override {
    return DraftSettings::of(kPEagleTraining.drafter, options_.sampling.depths);
  }

 private:
  PEagleOptions options_;
};

Expected<Figures> PEagle::accumulate(const Batch& batch, double scale, at::Generator& generator,
                                     bool train) {
  const at::AutoGradMode gradients(train);
  const at::Tensor asked = supervised_rows(batch, 0).gt(0.5);
  const Chains chains = sample_chains(batch.documents, asked, options_.sampling, generator);
  Figures figures;
  figures.weight = asked.sum().item<double>();
  if (figures.weight == 0.0) return figures;
  const double elements = figures.weight + static_cast<double>(chains.rows());
  PEagleStep::Settings settings;
  settings.loss = options_.loss;
  settings.depths = options_.sampling.depths;
  settings.scale = scale * figures.weight / elements;
  settings.train = train;
  PEagleStep step(head_, batch, asked, settings);
  const int64_t rows = batch.documents.rows();
  int64_t segments = options_.segments;
  if (segments == 0) {
    segments = (rows + PEagleOptions::kSegmentRows - 1) / PEagleOptions::kSegmentRows;
  }
  if (segments == 1) {
    step.run_whole(chains);
  } else {
    step.run_in_parts(chains, cut_chains(chains, rows, segments));
  }
  const at::Tensor sums = step.sums().cpu();
  const auto values = sums.accessor<double, 2>();
  double loss = 0.0;
  for (int64_t d = 0; d < settings.depths; ++d) {
    loss += values[0][d];
    add_step(figures, d, values[0][d], values[1][d], values[2][d]);
  }
  figures.add("loss", loss * figures.weight / elements);
  return figures;
}

MakeMethod declare_peagle(SettingList& settings) {
  const auto o = std::make_shared<PEagleOptions>();
  o->head.add_taps_to(settings);
  settings.add_draft_vocab(o->head.vocabulary);
  settings.add("layers", o->head.layers, {1, 64}, "Layers of the head");
  settings.add("depth", o->sampling.depths, {1, 64}, "Tokens of a draft, all from one pass");
  settings.add("kept", o->sampling.kept, {0, 1},
               "Of the supervised tokens so many are asked at depth 1, this squared at 2, ...");
  settings.add("least-kept", o->sampling.least, {0, 1}, "At any depth no fewer than this share");
  settings.add("segments", o->segments, {0, 1 << 20},
               "Parts of a batch that are trained one after the other, which takes less memory; "
               "0: by its length");
  settings.add("mask-token", o->head.mask_token,
               "The token that stands for what is not known yet; -1: the last one");
  settings.add("train-embedding", o->head.train_embedding,
               "Train and store an embedding of its own");
  settings.add_loss(o->loss);
  settings.add_intermediate(o->head.intermediate);
  return [o](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    if (!inputs.continued.empty()) {
      auto depth = static_cast<int>(o->sampling.depths);
      AERIE_RETURN_IF_ERROR(read_shape(inputs.continued, o->head, depth));
      o->sampling.depths = depth;
    }
    return make_peagle(inputs.target, *o, inputs.generator);
  };
}

constexpr int kPEagleDepths[] = {2, 4, 8};

}  // namespace

Expected<std::unique_ptr<Method>> make_peagle(Target& target, const PEagleOptions& options,
                                              at::Generator& generator) {
  const DepthSampling& sampling = options.sampling;
  if (sampling.depths < 1 || options.head.layers < 1 || options.segments < 0 ||
      !(sampling.kept >= 0.0 && sampling.kept <= 1.0) ||
      !(sampling.least >= 0.0 && sampling.least <= 1.0)) {
    return Status(StatusCode::kInvalidArgument,
                  "P-EAGLE is trained with at least one depth and one layer, shares of rows "
                  "between 0 and 1, and segments of which there are 0 (as many as needed) or more");
  }
  Eagle3HeadOptions shape = options.head;
  shape.mask = true;
  if (shape.mask_token < 0) shape.mask_token = target.config().vocab - 1;
  AERIE_ASSIGN_OR_RETURN(const Eagle3Head head, Eagle3Head::create(target, shape, generator));
  return std::unique_ptr<Method>(std::make_unique<PEagle>(head, options));
}

constinit const TrainingMethod kPEagleTraining = {
    .name = "p-eagle",
    .what = "P-EAGLE: the same, all tokens of a draft in one pass",
    .drafter = "eagle3",
    .schedule = {.rate = 1e-4, .warmup = 0.015, .floor = 0.0},
    .clip_norm = 1.0,
    .declare = declare_peagle,
    .speedup_depths = kPEagleDepths,
};

}  // namespace aerie::train
