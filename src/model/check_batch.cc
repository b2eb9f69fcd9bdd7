#include <algorithm>

#include "base/errors.h"
#include "model/model.h"

namespace aerie {
namespace {

template <typename... Args>
Status bad_row(int row, fmt::format_string<Args...> what, Args&&... args) {
  return invalid_argument("row {} of the batch: {}", row,
                          fmt::format(what, std::forward<Args>(args)...));
}

Status check_row(const ForwardBatch& batch, int index, const ModelConfig& config,
                 const ModelOptions& options) {
  const BatchRow& row = batch.rows[static_cast<size_t>(index)];
  if (row.token < 0 || row.token >= config.vocab) {
    return bad_row(index, "token {} is outside the vocabulary of {}", row.token, config.vocab);
  }
  if (row.sequence < 0 || row.sequence >= static_cast<int>(batch.sequences.size())) {
    return bad_row(index, "there is no sequence {}", row.sequence);
  }
  if (row.parent < -1 || row.parent >= index) {
    return bad_row(index, "parent {} does not come before it", row.parent);
  }
  int expected = batch.sequences[static_cast<size_t>(row.sequence)].committed +
                 static_cast<int>(row.above.size());
  if (row.parent >= 0) {
    if (!row.above.empty()) {
      return bad_row(
          index, "has parent {} and {} ancestors of earlier passes: those are its first ancestor's",
          row.parent, row.above.size());
    }
    const BatchRow& parent = batch.rows[static_cast<size_t>(row.parent)];
    if (parent.sequence != row.sequence) {
      return bad_row(index, "parent {} belongs to sequence {}, not {}", row.parent, parent.sequence,
                     row.sequence);
    }
    expected = parent.position + 1;
  }
  if (row.position != expected) {
    return bad_row(index, "position {} where {} follows", row.position, expected);
  }
  if (row.position >= options.max_positions) {
    return bad_row(index, "position {} is beyond the context of {}", row.position,
                   options.max_positions);
  }
  return {};
}

Status check_layers(const ForwardBatch& batch, const ModelConfig& config) {
  const int end = batch.end_of(config.layers);
  if (batch.first_layer < 0 || end <= batch.first_layer || end > config.layers) {
    return invalid_argument("layers {} to {} cannot be run: there are {}", batch.first_layer, end,
                            config.layers);
  }
  const size_t wanted =
      batch.first_layer == 0 ? 0 : batch.rows.size() * static_cast<size_t>(config.hidden);
  if (batch.hidden.size() != wanted) {
    return invalid_argument("{} numbers enter layer {} instead of {}", batch.hidden.size(),
                            batch.first_layer, wanted);
  }
  int before = -1;
  for (const int32_t layer : batch.skipped_layers) {
    if (batch.first_layer > 0 || layer <= before || layer >= end || config.is_read(layer)) {
      return invalid_argument("layer {} cannot be left out of layers {} to {}", layer,
                              batch.first_layer, end);
    }
    before = layer;
  }
  for (const int32_t layer : batch.tap_layers) {
    if (layer < batch.first_layer || layer > end) {
      return invalid_argument("layer {} cannot be tapped: layers {} to {} are run", layer,
                              batch.first_layer, end);
    }
  }
  return {};
}

}  // namespace

Status check_batch(const ForwardBatch& batch, const ModelConfig& config,
                   const ModelOptions& options) {
  if (batch.size() > options.max_rows) {
    return invalid_argument("a batch of {} rows is larger than {}", batch.size(), options.max_rows);
  }
  int logits = 0, states = 0;
  for (int i = 0; i < batch.size(); ++i) {
    AERIE_RETURN_IF_ERROR(check_row(batch, i, config, options));
    const BatchRow& row = batch.rows[static_cast<size_t>(i)];
    logits += row.wants_logits ? 1 : 0;
    states += row.wants_state ? 1 : 0;
  }
  if (std::max(logits, states) > options.max_logits) {
    return invalid_argument("{} rows want logits and {} states; {} may", logits, states,
                            options.max_logits);
  }
  if (static_cast<int>(batch.tap_layers.size()) > options.max_taps) {
    return invalid_argument("{} layers are tapped; {} may be", batch.tap_layers.size(),
                            options.max_taps);
  }
  return check_layers(batch, config);
}

}  // namespace aerie
