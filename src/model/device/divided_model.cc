#include "model/device/divided_model.h"

#include <algorithm>

#include "base/errors.h"

namespace aerie {

ModelOptions DividedModel::of_front(const ModelOptions& options, int first_layer) {
  ModelOptions front = options;
  front.layers.end = first_layer;
  front.max_logits = 1;
  front.max_taps = options.max_taps + 1;  // what goes to the back
  front.logit_tokens.clear();
  front.ranks = 0;
  return front;
}

DividedModel::DividedModel(std::unique_ptr<Model> front, std::unique_ptr<Model> back,
                           int first_layer, const ModelOptions& options)
    : front_(std::move(front)), back_(std::move(back)), first_layer_(first_layer) {
  const auto rows = static_cast<size_t>(options.max_rows);
  const size_t floats = rows * static_cast<size_t>(config().hidden);
  hidden_.reserve(floats);
  taps_.reserve(floats * static_cast<size_t>(options.max_taps));
  for (ForwardBatch* batch : {&front_batch_, &back_batch_}) {
    batch->rows.reserve(rows);
    batch->sequences.reserve(rows);
    batch->tap_layers.reserve(static_cast<size_t>(options.max_taps) + 1);
    batch->skipped_layers.reserve(static_cast<size_t>(config().layers));
  }
}

Status DividedModel::attach(KvCache& cache, std::span<const int32_t> skipped) {
  const auto gone = std::ranges::lower_bound(skipped, first_layer_) - skipped.begin();
  if (cache.creation().here != first_layer_ - gone) {
    return internal_error("the cache has planes of {} layers, and {} are the processor's",
                          cache.creation().here, first_layer_ - gone);
  }
  return back_->attach(cache, skipped);
}

// Layers that are tapped before `end` are the front's; all rows give what leaves it besides.
void DividedModel::divide_taps(const ForwardBatch& batch, int end) {
  front_batch_.tap_layers.clear();
  back_batch_.tap_layers.clear();
  for (const int32_t layer : batch.tap_layers) {
    (layer < end ? front_batch_ : back_batch_).tap_layers.push_back(layer);
  }
  front_batch_.tap_layers.push_back(end);
}

ForwardOutputs DividedModel::run_front(const ForwardBatch& batch, int end, KvCache& cache) {
  front_batch_.sequences = batch.sequences;
  front_batch_.rows = batch.rows;
  for (BatchRow& row : front_batch_.rows) {
    row.wants_logits = row.wants_state = false;
    row.wants_taps = true;
  }
  front_batch_.first_layer = batch.first_layer;
  front_batch_.end_layer = end;
  front_batch_.hidden = batch.hidden;
  const auto behind = std::ranges::lower_bound(batch.skipped_layers, end);
  front_batch_.skipped_layers.assign(batch.skipped_layers.begin(), behind);
  back_batch_.skipped_layers.assign(behind, batch.skipped_layers.end());
  return front_->forward(front_batch_, cache);
}

// Rows' taps in the order in which the batch has their layers.
void DividedModel::join_taps(const ForwardBatch& batch, const ForwardOutputs& front,
                             ForwardOutputs& out) {
  const auto hidden = static_cast<size_t>(config().hidden);
  const size_t layers = batch.tap_layers.size(), in_front = front_batch_.tap_layers.size() - 1;
  const int end = back_batch_.first_layer;
  taps_.clear();
  size_t tapped = 0;
  for (size_t r = 0; r < batch.rows.size() && layers > 0; ++r) {
    if (!batch.rows[r].wants_taps) continue;
    const float* before = front.taps.data() + r * (in_front + 1) * hidden;
    const float* behind = out.taps.data() + tapped++ * (layers - in_front) * hidden;
    for (const int32_t layer : batch.tap_layers) {
      const float*& from = layer < end ? before : behind;
      taps_.insert(taps_.end(), from, from + hidden);
      from += hidden;
    }
  }
  out.taps = taps_;
  out.tap_width = static_cast<int>(layers * hidden);
}

ForwardOutputs DividedModel::forward(const ForwardBatch& batch, KvCache& cache) {
  if (batch.first_layer >= first_layer_) return back_->forward(batch, cache);
  const int end = std::min(first_layer_, batch.end_of(config().layers));
  divide_taps(batch, end);
  const ForwardOutputs front = run_front(batch, end, cache);
  if (!front.status.ok()) return front;
  const auto hidden = static_cast<size_t>(config().hidden);
  const size_t width = front_batch_.tap_layers.size() * hidden;
  hidden_.clear();
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const float* leaves = front.taps.data() + (r + 1) * width - hidden;
    hidden_.insert(hidden_.end(), leaves, leaves + hidden);
  }
  // Where the pass ends before the back begins, that has the output alone to do.
  back_batch_.sequences = batch.sequences;
  back_batch_.rows = batch.rows;
  back_batch_.first_layer = end;
  back_batch_.end_layer = batch.end_layer;
  back_batch_.hidden = hidden_;
  ForwardOutputs out = back_->forward(back_batch_, cache);
  if (!out.status.ok()) return out;
  join_taps(batch, front, out);
  out.experts += front.experts;
  return out;
}

}  // namespace aerie
