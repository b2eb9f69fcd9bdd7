#include "train/batches/collate.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "train/batches/training_set.h"

namespace aerie::train {
namespace {

void add_tokens(const Sample& sample, int64_t begin, int64_t rows, Batch& batch) {
  int64_t* const tokens = batch.tokens.data_ptr<int64_t>() + begin;
  int64_t* const positions = batch.positions.data_ptr<int64_t>() + begin;
  float* const mask = batch.mask.data_ptr<float>() + begin;
  for (int64_t t = 0; t < rows; ++t) {
    tokens[t] = sample.tokens[static_cast<size_t>(t)];
    positions[t] = t;
    mask[t] = sample.mask[static_cast<size_t>(t)] != 0 ? 1.0F : 0.0F;
  }
}

// Rows of a sample's features: the taps' columns, then those of the last stream.
void add_features(std::span<const float> features, int64_t begin, int64_t rows, Batch& batch) {
  const int64_t tap_columns = batch.taps.defined() ? batch.taps.size(1) : 0;
  const int64_t last_columns = batch.last.defined() ? batch.last.size(1) : 0;
  for (int64_t t = 0; t < rows; ++t) {
    const float* const row = features.data() + t * (tap_columns + last_columns);
    if (tap_columns > 0) {
      std::memcpy(batch.taps.data_ptr<float>() + (begin + t) * tap_columns, row,
                  static_cast<size_t>(tap_columns) * sizeof(float));
    }
    if (last_columns > 0) {
      std::memcpy(batch.last.data_ptr<float>() + (begin + t) * last_columns, row + tap_columns,
                  static_cast<size_t>(last_columns) * sizeof(float));
    }
  }
}

}  // namespace

std::vector<int32_t> feature_layers(const MethodNeeds& needs, int layers) {
  std::vector<int32_t> all = needs.tap_layers;
  if (needs.last) all.push_back(layers);
  return all;
}

Expected<Batch> collate(std::span<const Sample* const> samples, int64_t max_length,
                        const MethodNeeds& needs, FeatureSource* features) {
  Batch batch;
  for (const Sample* sample : samples) {
    const int64_t length = std::min(static_cast<int64_t>(sample->tokens.size()), max_length);
    batch.documents.starts.push_back(batch.documents.rows() + length);
  }
  const int64_t rows = batch.documents.rows();
  batch.tokens = at::empty({rows}, at::kLong);
  batch.positions = at::empty({rows}, at::kLong);
  batch.mask = at::empty({rows}, at::kFloat);
  const size_t taps = needs.tap_layers.size() + (needs.last ? 1 : 0);
  if (taps > 0 && (features == nullptr || features->tap_layers().size() != taps)) {
    return Status(StatusCode::kInternal, "the features are not those that the method reads");
  }
  const int64_t hidden = taps > 0 ? features->hidden() : 0;
  const int64_t tap_columns = static_cast<int64_t>(needs.tap_layers.size()) * hidden;
  if (tap_columns > 0) batch.taps = at::empty({rows, tap_columns}, at::kFloat);
  if (needs.last) batch.last = at::empty({rows, hidden}, at::kFloat);
  std::vector<float> own;
  for (int64_t d = 0; d < batch.documents.count(); ++d) {
    const Sample& sample = *samples[static_cast<size_t>(d)];
    const int64_t begin = batch.documents.start(d), length = batch.documents.length(d);
    add_tokens(sample, begin, length, batch);
    if (taps == 0) continue;
    own.resize(sample.tokens.size() * taps * static_cast<size_t>(hidden));
    AERIE_RETURN_IF_ERROR(features->read(sample, own));
    add_features(own, begin, length, batch);
  }
  return batch;
}

Batch to_device(Batch batch, const at::Device& device) {
  for (at::Tensor* tensor :
       {&batch.tokens, &batch.positions, &batch.mask, &batch.taps, &batch.last}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  return batch;
}

}  // namespace aerie::train
