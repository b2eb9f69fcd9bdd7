// Where the earlier inputs of a row's short convolution are: in rows of the pass, records, or the
// state.
#pragma once

#include <cstdint>

#include "kernels/device/linear/linear_ops.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

// Of all channels; null: zeros. They are multiplied by the gates, if there are some.
struct StateInput {
  const float* x;
  const float* gates;

  SIMT_DEV float at(int channel) const {
    return gates != nullptr ? x[channel] * gates[channel] : x[channel];
  }
};

class StateInputs {
 public:
  // Of a sequence's number. Reads what no launch writes.
  SIMT_DEV StateInputs(const LinearLayer& layer, int sequence)
      : layer_(layer),
        sequence_(layer.pass.sequences[sequence]),
        base_(layer.pass.bases[sequence]) {}

  SIMT_DEV const PassStateSequence& sequence() const { return sequence_; }
  // Records that the layer's state lacks.
  SIMT_DEV int settled() const { return sequence_.end - base_; }
  // Index of the first of them.
  SIMT_DEV int settled_at() const { return sequence_.settled + base_ - sequence_.from; }
  // Whether there is nothing in the state's slot.
  SIMT_DEV bool blank() const { return base_ == 0; }

  SIMT_DEV StateInput of_row(int row) const {
    const int64_t at = static_cast<int64_t>(row) * layer_.x_stride;
    return {layer_.x + at, layer_.input_gates != nullptr ? layer_.input_gates + at : nullptr};
  }
  SIMT_DEV StateInput of_record(int record) const {
    return {layer_.records + record * layer_.shape.record + layer_.shape.input, nullptr};
  }
  // The input `back` positions before `end`, from 1 on.
  SIMT_DEV StateInput before_end(int back) const {
    const int settled = this->settled();
    if (back <= settled) return of_record(layer_.pass.indices[settled_at() + settled - back]);
    const int index = layer_.shape.taps - 1 - (back - settled);
    if (blank() || index < 0) return {nullptr, nullptr};
    return {layer_.states + sequence_.slot * layer_.shape.state + layer_.shape.inputs +
                static_cast<int64_t>(index) * layer_.shape.channels,
            nullptr};
  }
  // The one `back` positions before the row's own; source(): what it is asked for with, so that
  // several can be under way.
  SIMT_DEV int32_t source(const PassStateRow& row, int back) const {
    return back > 0 && back <= row.depth ? layer_.pass.indices[row.sources + back - 1] : 0;
  }
  SIMT_DEV StateInput before(const PassStateRow& row, int index, int back, int32_t source) const {
    if (back == 0) return of_row(index);
    if (back > row.depth) return before_end(back - row.depth);
    return source >= 0 ? of_row(source) : of_record(~source);
  }

 private:
  const LinearLayer& layer_;
  PassStateSequence sequence_;
  int base_;
};

SIMT_DEV int key_head_of(const StateShape& shape, int head) {
  return shape.tiled ? head % shape.key_heads : head / (shape.heads / shape.key_heads);
}

}  // namespace aerie::device
