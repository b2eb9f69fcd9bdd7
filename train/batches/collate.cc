#include "train/batches/collate.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
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

// Of the samples side by side, all layers behind one another: [rows, layers * hidden].
template <typename Value, typename Read>
Status read_rows(std::span<const Sample* const> samples, const Documents& documents,
                 at::Tensor& rows, const Read& read) {
  std::vector<Value> own;  // of a sample that is cut
  auto* const all = static_cast<Value*>(rows.data_ptr());
  const auto columns = static_cast<size_t>(rows.size(1));
  for (int64_t d = 0; d < documents.count(); ++d) {
    const Sample& sample = *samples[static_cast<size_t>(d)];
    Value* const to = all + static_cast<size_t>(documents.start(d)) * columns;
    const size_t values = static_cast<size_t>(documents.length(d)) * columns;
    if (sample.tokens.size() == static_cast<size_t>(documents.length(d))) {
      AERIE_RETURN_IF_ERROR(read(sample, std::span<Value>(to, values)));
      continue;
    }
    own.resize(sample.tokens.size() * columns);
    AERIE_RETURN_IF_ERROR(read(sample, std::span<Value>(own)));
    std::copy_n(own.begin(), values, to);
  }
  return {};
}

void split(const at::Tensor& features, Batch& batch) {
  const int64_t taps = batch.tap_columns, last = features.size(1) - taps;
  const auto part = [&](int64_t begin, int64_t columns) {
    return features.narrow(1, begin, columns).to(at::kFloat).contiguous();
  };
  if (taps > 0) batch.taps = part(0, taps);
  if (last > 0) batch.last = part(taps, last);
}

}  // namespace

std::vector<int32_t> feature_layers(const MethodNeeds& needs, int layers) {
  std::vector<int32_t> all = needs.tap_layers;
  if (needs.last) all.push_back(layers);
  return all;
}

Expected<Batch> collate(std::span<const Sample* const> samples, int64_t max_length,
                        const MethodNeeds& needs, FeatureSource* features, bool for_device) {
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
  for (int64_t d = 0; d < batch.documents.count(); ++d) {
    add_tokens(*samples[static_cast<size_t>(d)], batch.documents.start(d),
               batch.documents.length(d), batch);
  }
  if (taps == 0) return batch;
  const int64_t hidden = features->hidden(), all = static_cast<int64_t>(taps) * hidden;
  batch.tap_columns = static_cast<int64_t>(needs.tap_layers.size()) * hidden;
  if (for_device) {
    batch.features =
        at::empty({rows, all}, at::TensorOptions(at::kBFloat16).pinned_memory(at::hasCUDA()));
    AERIE_RETURN_IF_ERROR(read_rows<uint16_t>(samples, batch.documents, batch.features,
                                              [&](const Sample& sample, std::span<uint16_t> to) {
                                                return features->read_bfloats(sample, to);
                                              }));
    return batch;
  }
  at::Tensor floats = at::empty({rows, all}, at::kFloat);
  AERIE_RETURN_IF_ERROR(read_rows<float>(
      samples, batch.documents, floats,
      [&](const Sample& sample, std::span<float> to) { return features->read(sample, to); }));
  split(floats, batch);
  return batch;
}

Batch to_device(Batch batch, const at::Device& device) {
  for (at::Tensor* tensor :
       {&batch.tokens, &batch.positions, &batch.mask, &batch.taps, &batch.last}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  if (batch.features.defined()) {
    split(std::exchange(batch.features, {}).to(device, /*non_blocking=*/true), batch);
  }
  return batch;
}

}  // namespace aerie::train
