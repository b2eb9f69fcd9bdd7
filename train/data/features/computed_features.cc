// Features by running the model.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tensor/dtype.h"
#include "train/data/features/features.h"
#include "train/data/running_target.h"

namespace aerie::train {
namespace {

class ComputedFeatures final : public FeatureSource {
 public:
  static Expected<std::unique_ptr<FeatureSource>> make(std::unique_ptr<RunningTarget> target,
                                                       std::vector<int32_t> tap_layers);

  std::span<const int32_t> tap_layers() const override { return batch_.tap_layers; }
  int hidden() const override { return target_->config().hidden; }
  Status read(const Sample& sample, std::span<float> out) override;

 private:
  explicit ComputedFeatures(std::unique_ptr<RunningTarget> target) : target_(std::move(target)) {}
  Status make_batch(std::span<const int32_t> tokens, int first);

  std::unique_ptr<RunningTarget> target_;
  KvCache::Id sequence_ = -1;
  ForwardBatch batch_;
};

Expected<std::unique_ptr<FeatureSource>> ComputedFeatures::make(
    std::unique_ptr<RunningTarget> target, std::vector<int32_t> tap_layers) {
  if (tap_layers.empty()) {
    return Status(StatusCode::kInvalidArgument, "there are no layers to take features of");
  }
  for (const int32_t layer : tap_layers) {
    AERIE_RETURN_IF_ERROR(check_tap(layer, target->config()));
  }
  std::unique_ptr<ComputedFeatures> features(new ComputedFeatures(std::move(target)));
  AERIE_ASSIGN_OR_RETURN(features->sequence_, features->target_->parts().cache->open());
  // Layers above the highest tap are of no use here. A pass has at least one.
  features->batch_.end_layer = std::max(1, *std::ranges::max_element(tap_layers));
  features->batch_.tap_layers = std::move(tap_layers);
  return std::unique_ptr<FeatureSource>(std::move(features));
}

// A chain behind what is committed.
Status ComputedFeatures::make_batch(std::span<const int32_t> tokens, int first) {
  KvCache& cache = *target_->parts().cache;
  const auto rows = static_cast<int>(tokens.size());
  AERIE_RETURN_IF_ERROR(cache.reserve(sequence_, rows, rows));
  batch_.sequences.assign(1, {cache.pages(sequence_), first, sequence_, rows});
  batch_.rows.clear();
  for (int i = 0; i < static_cast<int>(tokens.size()); ++i) {
    BatchRow& row = batch_.rows.emplace_back();
    row.token = tokens[static_cast<size_t>(i)];
    row.position = first + i;
    row.slot = cache.slot(sequence_, i);
    row.parent = i - 1;
    row.wants_taps = true;
  }
  return check_batch(batch_, target_->config(), target_->parts().model_options);
}

Status ComputedFeatures::read(const Sample& sample, std::span<float> out) {
  const size_t tokens = sample.tokens.size();
  const size_t width = batch_.tap_layers.size() * static_cast<size_t>(hidden());
  if (static_cast<int64_t>(tokens) > target_->options().context || out.size() != tokens * width) {
    return {StatusCode::kInvalidArgument,
            fmt::format("features of sample {}: its {} tokens of {} values are {} values for {}; "
                        "at most {} tokens can be",
                        sample.id, tokens, width, tokens * width, out.size(),
                        target_->options().context)};
  }
  KvCache& cache = *target_->parts().cache;
  cache.truncate(sequence_, 0);
  for (size_t first = 0; first < tokens;) {
    const size_t rows =
        std::min(tokens - first, static_cast<size_t>(target_->parts().model_options.max_rows));
    AERIE_RETURN_IF_ERROR(
        make_batch(std::span(sample.tokens).subspan(first, rows), static_cast<int>(first))
            .with_context("features of sample " + sample.id));
    const ForwardOutputs outputs = target_->parts().model->forward(batch_, cache);
    AERIE_RETURN_IF_ERROR(outputs.status);
    cache.commit_first(sequence_, static_cast<int>(rows));
    std::ranges::copy(outputs.taps, out.begin() + static_cast<int64_t>(first * width));
    first += rows;
  }
  return {};
}

}  // namespace

Status FeatureSource::read_bfloats(const Sample& sample, std::span<uint16_t> out) {
  std::vector<float> floats(out.size());
  AERIE_RETURN_IF_ERROR(read(sample, floats));
  std::ranges::transform(floats, out.begin(), f32_to_bf16);
  return {};
}

Status check_tap(int32_t layer, const ModelConfig& config) {
  if (layer >= 0 && layer <= config.layers) return {};
  return {
      StatusCode::kInvalidArgument,
      fmt::format("features of layer {}: {} has those that enter layers 0 to {}, and {} for the "
                  "stream behind the last",
                  layer, config.name.empty() ? "the model" : config.name, config.layers - 1,
                  config.layers)};
}

Expected<std::unique_ptr<FeatureSource>> compute_features(const std::string& model,
                                                          std::vector<int32_t> tap_layers,
                                                          int threads, int max_tokens,
                                                          const std::string& device) {
  RunningTargetOptions options;
  options.model = model;
  options.threads = threads;
  options.device = device;
  options.context = max_tokens;
  options.max_taps = static_cast<int>(tap_layers.size());
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<RunningTarget> target, RunningTarget::open(options));
  return ComputedFeatures::make(std::move(target), std::move(tap_layers));
}

}  // namespace aerie::train
