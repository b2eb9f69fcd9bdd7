#include "train/batches/training_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>

#include "format/checksum.h"
#include "train/data/info.h"

namespace aerie::train {
namespace {

bool teaches(const Sample& sample, int64_t max_length) {
  const auto end = sample.mask.begin() + static_cast<int64_t>(std::min(
                                             sample.mask.size(), static_cast<size_t>(max_length)));
  return std::find(sample.mask.begin(), end, 1) != end;
}

// Each folder's own source, found by the sample.
class FolderFeatures final : public FeatureSource {
 public:
  FolderFeatures(std::vector<int32_t> layers) : layers_(std::move(layers)) {}

  std::span<const int32_t> tap_layers() const override { return layers_; }
  int hidden() const override { return sources_.front()->hidden(); }
  Status read(const Sample& sample, std::span<float> out) override {
    return of_sample_.at(&sample)->read(sample, out);
  }
  Status read_bfloats(const Sample& sample, std::span<uint16_t> out) override {
    return of_sample_.at(&sample)->read_bfloats(sample, out);
  }

  FeatureSource* add(std::unique_ptr<FeatureSource> source) {
    return sources_.emplace_back(std::move(source)).get();
  }
  void assign(const Sample& sample, FeatureSource* source) { of_sample_[&sample] = source; }

 private:
  std::vector<int32_t> layers_;
  std::vector<std::unique_ptr<FeatureSource>> sources_;
  std::unordered_map<const Sample*, FeatureSource*> of_sample_;
};

}  // namespace

Expected<std::unique_ptr<TrainingData>> TrainingData::open(const DataOptions& options) {
  if (options.folders.empty()) {
    return Status(StatusCode::kInvalidArgument, "--data: give a folder of `aerie train data`");
  }
  std::unique_ptr<TrainingData> data(new TrainingData(options));
  AERIE_ASSIGN_OR_RETURN(const std::string fingerprint, model_fingerprint(options.model));
  for (const std::string& folder : options.folders) {
    AERIE_RETURN_IF_ERROR(data->add(folder, fingerprint));
  }
  for (const Dataset& dataset : data->datasets_) {
    const DatasetSplit parts =
        split(dataset, options.held_out < 0.0 ? dataset.info.held_out : options.held_out);
    const auto take = [&](const std::vector<size_t>& places, std::vector<const Sample*>& out) {
      for (const size_t place : places) {
        const Sample& sample = dataset.samples[place];
        if (teaches(sample, options.max_length)) out.push_back(&sample);
      }
    };
    take(parts.training, data->set_.training);
    take(parts.validation, data->set_.validation);
  }
  return data;
}

Status TrainingData::add(const std::string& folder, const std::string& fingerprint) {
  AERIE_ASSIGN_OR_RETURN(Dataset dataset, read_dataset(folder));
  if (!dataset.info.fingerprint.empty() && dataset.info.fingerprint != fingerprint) {
    return {StatusCode::kInvalidArgument,
            fmt::format("--data {}: the samples are of the model '{}', not of {}: a drafter learns "
                        "from its own target",
                        folder, dataset.info.model, options_.model)};
  }
  datasets_.push_back(std::move(dataset));
  return {};
}

std::string TrainingData::fingerprint() const {
  uint64_t sum = 0;
  for (const auto* samples : {&set_.training, &set_.validation}) {
    sum = sum * 0x9E3779B97F4A7C15u + samples->size();
    for (const Sample* sample : *samples) {
      // Order counts: each sample's sum is mixed into what came before.
      sum = sum * 0x9E3779B97F4A7C15u + checksum(std::as_bytes(std::span(sample->tokens)));
      sum = sum * 0x9E3779B97F4A7C15u + checksum(std::as_bytes(std::span(sample->mask)));
    }
  }
  return fmt::format("{:016x}", sum);
}

std::vector<int64_t> TrainingData::token_counts(int vocab) const {
  std::vector<int64_t> counts(static_cast<size_t>(vocab), 0);
  for (const Dataset& dataset : datasets_) {
    const std::vector<int64_t> own = train::token_counts(dataset, vocab);
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += own[i];
  }
  return counts;
}

Status TrainingData::open_features(const MethodNeeds& needs, int layers) {
  const std::vector<int32_t> taps = feature_layers(needs, layers);
  if (taps.empty()) return {};
  const bool computes = options_.features != DataOptions::Features::kStored;
  auto all = std::make_unique<FolderFeatures>(taps);
  std::vector<const Sample*> rest;  // without stored ones
  for (size_t i = 0; i < datasets_.size(); ++i) {
    FeatureSource* stored = nullptr;
    if (options_.features != DataOptions::Features::kComputed) {
      auto opened = stored_features(options_.folders[i], taps);
      const bool none = opened.status().code() == StatusCode::kNotFound;
      if (!opened.ok() && !(none && computes)) return opened.status();
      if (opened.ok()) stored = all->add(*std::move(opened));
    }
    for (const Sample& sample : datasets_[i].samples) {
      if (stored != nullptr && (!computes || stored->has(sample))) {
        all->assign(sample, stored);
      } else {
        rest.push_back(&sample);
      }
    }
  }
  if (!rest.empty()) {
    size_t longest = 2;
    for (const Sample* sample : rest) longest = std::max(longest, sample->tokens.size());
    AERIE_ASSIGN_OR_RETURN(auto source,
                           compute_features(options_.model, taps, options_.feature_threads,
                                            static_cast<int>(longest)));
    FeatureSource* const computed = all->add(std::move(source));
    for (const Sample* sample : rest) all->assign(*sample, computed);
  }
  features_ = std::move(all);
  set_.features = features_.get();
  return {};
}

std::vector<std::vector<int32_t>> TrainingData::held_out_prompts(int count) const {
  std::vector<std::vector<int32_t>> all;
  for (const Sample* sample : set_.validation) {
    const auto first = std::find(sample->mask.begin(), sample->mask.end(), 1);
    all.emplace_back(sample->tokens.begin(),
                     sample->tokens.begin() + (first - sample->mask.begin()));
  }
  std::erase_if(all, [](const auto& prompt) { return prompt.empty(); });
  // Several samples of one prompt stand beside each other.
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<std::vector<int32_t>> spread;
  const size_t wanted = std::min(all.size(), static_cast<size_t>(count));
  for (size_t i = 0; i < wanted; ++i) spread.push_back(all[i * all.size() / wanted]);
  return spread;
}

}  // namespace aerie::train
