#include "train/methods/peagle/peagle_method.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <utility>

#include "train/methods/peagle/peagle_step.h"
#include "train/methods/supervision.h"

namespace aerie::train {
namespace {

class PEagle final : public Method {
 public:
  PEagle(Eagle3Head head, const PEagleOptions& options)
      : head_(std::move(head)), options_(options) {
    needs_.tap_layers = head_.options().tap_layers;
    needs_.last = true;
  }

  const MethodNeeds& needs() const override { return needs_; }
  Parameters& parameters() override { return head_.parameters(); }
  double weight(const Batch& batch) const override {
    return supervised_rows(batch, 0).sum().item<double>();
  }
  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) override;
  Status write(const std::string& folder) const override {
    return head_.write(folder, "peagle", static_cast<int>(options_.sampling.depths));
  }
  DraftSettings settings() const override {
    return {fmt::format("eagle3:model={{}},num_speculative_tokens={}", options_.sampling.depths)};
  }

 private:
  Eagle3Head head_;
  PEagleOptions options_;
  MethodNeeds needs_;
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
    figures.add(fmt::format("loss_{}", d), values[0][d]);
    figures.add(fmt::format("hits_{}", d), values[1][d]);
    figures.add(fmt::format("rows_{}", d), values[2][d]);
  }
  figures.add("loss", loss * figures.weight / elements);
  return figures;
}

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
  AERIE_ASSIGN_OR_RETURN(Eagle3Head head, Eagle3Head::create(target, shape, generator));
  return std::unique_ptr<Method>(std::make_unique<PEagle>(std::move(head), options));
}

}  // namespace aerie::train
