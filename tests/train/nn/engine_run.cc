#include "tests/train/nn/engine_run.h"

#include <gtest/gtest.h>

#include <span>
#include <utility>

#include "kv/kv_cache.h"

namespace aerie::test {

EngineRun run_engine(Model& model, const std::vector<int32_t>& tokens, int layers) {
  const ModelConfig& config = model.config();
  const auto rows = static_cast<int64_t>(tokens.size());
  const ModelCache owned_cache = make_cache(model, {.positions = rows, .sequences = 1}).value();
  KvCache& cache = *owned_cache;
  const KvCache::Id id = *cache.open();
  EXPECT_TRUE(cache.reserve(id, static_cast<int>(rows)).ok());
  ForwardBatch batch;
  batch.sequences.push_back({cache.pages(id), 0, id});
  for (int i = 0; i < static_cast<int>(rows); ++i) {
    BatchRow row;
    row.token = tokens[static_cast<size_t>(i)];
    row.position = i;
    row.slot = cache.slot(id, i);
    row.parent = i - 1;
    row.wants_logits = row.wants_taps = true;
    batch.rows.push_back(row);
  }
  if (layers == 0) layers = config.layers;
  batch.end_layer = layers;
  for (int layer = 0; layer <= layers; ++layer) batch.tap_layers.push_back(layer);
  ModelOptions limits;
  limits.max_positions = static_cast<int>(rows);
  const Status fits = check_batch(batch, config, limits);
  EXPECT_TRUE(fits.ok()) << fits.message();
  const ForwardOutputs outputs = model.forward(batch, cache);
  std::vector<float> memory;
  const auto copy = [](std::span<const float> values, at::IntArrayRef sizes) {
    return at::from_blob(const_cast<float*>(values.data()), sizes, at::kFloat).clone();
  };
  return {copy(outputs.taps, {rows, layers + 1, config.hidden}).transpose(0, 1),
          copy(outputs.all_logits(static_cast<int>(rows), memory), {rows, config.vocab})};
}

at::Tensor tensor_of(const std::vector<int32_t>& tokens) {
  return at::tensor(at::ArrayRef<int32_t>(tokens), at::kLong);
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

}  // namespace aerie::test
