// Features from files.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/samples/feature_file.h"
#include "tensor/dtype.h"
#include "train/data/features/features.h"
#include "train/data/info.h"

namespace aerie::train {
namespace {

class StoredFeatures final : public FeatureSource {
 public:
  StoredFeatures(FeatureFiles files, std::vector<int32_t> tap_layers, std::vector<size_t> places)
      : files_(std::move(files)), tap_layers_(std::move(tap_layers)), places_(std::move(places)) {}

  std::span<const int32_t> tap_layers() const override { return tap_layers_; }
  int hidden() const override { return files_.kind.hidden; }
  bool has(const Sample& sample) const override { return files_.tensors.contains(sample.id); }
  Status read(const Sample& sample, std::span<float> out) override;
  Status read_bfloats(const Sample& sample, std::span<uint16_t> out) override;

 private:
  Expected<FeatureFiles::Place> find(const Sample& sample, size_t values) const;
  // Calls each(bytes, hidden) with what is wanted of each token, layer by layer.
  template <typename Each>
  Status for_each(const Sample& sample, size_t values, const Each& each) const;

  FeatureFiles files_;
  std::vector<int32_t> tap_layers_;
  std::vector<size_t> places_;  // of these, among the layers that are stored
};

Expected<FeatureFiles::Place> StoredFeatures::find(const Sample& sample, size_t values) const {
  const auto found = files_.tensors.find(sample.id);
  if (found == files_.tensors.end()) {
    return Status(StatusCode::kNotFound,
                  fmt::format("there are no stored features of sample {}: add them with `aerie "
                              "train data --features`",
                              sample.id));
  }
  const SafetensorsTensor& tensor = *found->second.tensor;
  const size_t tokens = sample.tokens.size();
  if (tensor.shape[0] != static_cast<int64_t>(tokens) ||
      values != tokens * places_.size() * static_cast<size_t>(files_.kind.hidden)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("sample {} has {} tokens, of which {} values are wanted; stored are "
                              "features of {} tokens",
                              sample.id, tokens, values, tensor.shape[0]));
  }
  return found->second;
}

template <typename Each>
Status StoredFeatures::for_each(const Sample& sample, size_t values, const Each& each) const {
  AERIE_ASSIGN_OR_RETURN(const FeatureFiles::Place place_of, find(sample, values));
  const std::byte* const data = place_of.tensor->data.data();
  const auto hidden = static_cast<size_t>(files_.kind.hidden);
  const size_t stored = files_.kind.tap_layers.size();
  for (size_t t = 0; t < sample.tokens.size(); ++t) {
    for (const size_t place : places_) {
      each(data + (t * stored + place) * hidden * sizeof(uint16_t), hidden);
    }
  }
  return files_.files[place_of.file].check();
}

Status StoredFeatures::read(const Sample& sample, std::span<float> out) {
  float* to = out.data();
  return for_each(sample, out.size(), [&to](const std::byte* from, size_t hidden) {
    for (size_t h = 0; h < hidden; ++h) {
      uint16_t bits = 0;
      std::memcpy(&bits, from + h * sizeof(bits), sizeof(bits));
      *to++ = bf16_to_f32(bits);
    }
  });
}

Status StoredFeatures::read_bfloats(const Sample& sample, std::span<uint16_t> out) {
  uint16_t* to = out.data();
  return for_each(sample, out.size(), [&to](const std::byte* from, size_t hidden) {
    std::memcpy(to, from, hidden * sizeof(uint16_t));
    to += hidden;
  });
}

}  // namespace

Expected<std::unique_ptr<FeatureSource>> stored_features(const std::string& folder,
                                                         std::vector<int32_t> tap_layers) {
  AERIE_ASSIGN_OR_RETURN(const DataInfo info, read_info(folder));
  AERIE_ASSIGN_OR_RETURN(FeatureFiles files, FeatureFiles::open(folder));
  if (files.files.empty()) {
    return Status(StatusCode::kNotFound,
                  folder +
                      ": there are no features-*.safetensors; `aerie train data --features` "
                      "makes them");
  }
  if (files.kind.fingerprint != info.fingerprint) {
    return Status(StatusCode::kInvalidData,
                  folder + ": the features are of another model than the samples; remove them");
  }
  std::vector<size_t> places;
  for (const int32_t layer : tap_layers) {
    const auto& there = files.kind.tap_layers;
    const auto at = std::find(there.begin(), there.end(), layer);
    if (at == there.end()) {
      return Status(StatusCode::kNotFound,
                    fmt::format("{}: there are features of layers {}, but not of {}", folder,
                                fmt::join(there, ","), layer));
    }
    places.push_back(static_cast<size_t>(at - there.begin()));
  }
  return std::unique_ptr<FeatureSource>(
      std::make_unique<StoredFeatures>(std::move(files), std::move(tap_layers), std::move(places)));
}

}  // namespace aerie::train
