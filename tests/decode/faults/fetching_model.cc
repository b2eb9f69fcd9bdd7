#include "tests/decode/faults/fetching_model.h"

#include "sampling/filters.h"

namespace aerie::test {

ForwardOutputs FetchingModel::forward(const ForwardBatch& batch, KvCache& cache) {
  rows_.clear();
  best_.clear();
  lost_ = {};
  const int pass = counts_.passes++;
  if (behaviour_.fails && behaviour_.fails(batch, pass)) {
    ++counts_.failures;
    ForwardOutputs failed;
    failed.status = {StatusCode::kResourceExhausted, kFailure};
    return failed;
  }
  ForwardOutputs out = model_.forward(batch, cache);
  cache_ = &cache;
  slots_.clear();
  for (const BatchRow& row : batch.rows) slots_.push_back(row.slot);
  int wanted = 0;
  for (const BatchRow& row : batch.rows) wanted += row.wants_logits ? 1 : 0;
  for (int i = 0; i < wanted; ++i) {
    const std::span<const float> logits = out.logits_of(i);
    rows_.emplace_back(logits.begin(), logits.end());
    if (behaviour_.finds_best) best_.push_back(find_best(logits));
  }
  zeros_.assign(static_cast<size_t>(out.vocab), 0.0f);
  out.logits = {};
  out.source = this;
  out.best = best_;
  return out;
}

// Each becomes its neighbour.
void FetchingModel::spoil_entries() {
  for (int layer = 0; layer < cache_->layers(); ++layer) {
    std::byte* const plane = cache_->plane(layer);
    if (plane == nullptr || cache_->has_places(layer)) continue;
    for (const int32_t slot : slots_) {
      kernels::copy_kv(cache_->layout(layer), plane, slot ^ 1, slot);
    }
  }
}

std::span<const float> FetchingModel::fetch(int i) {
  const int fetch = counts_.fetches++;
  if (behaviour_.loses && behaviour_.loses(fetch)) {
    ++counts_.failures;
    lost_ = {StatusCode::kInternal, kFailure};
    spoil_entries();
  }
  return lost_.ok() ? rows_.at(static_cast<size_t>(i)) : zeros_;
}

}  // namespace aerie::test
