// A layout of states as devices are told it.
#pragma once

#include "kernels/device/linear/linear_ops.h"
#include "kernels/state_layout.h"

namespace aerie::device {

// Sizes have to fit their fields.
inline StateShape state_shape(const kernels::StateLayout& layout) {
  StateShape shape;
  shape.heads = layout.heads;
  shape.key_heads = layout.key_heads;
  shape.key_dim = layout.key_dim;
  shape.value_dim = layout.value_dim;
  shape.taps = layout.taps;
  shape.tiled = layout.order == kernels::HeadOrder::kTiled;
  shape.channels = static_cast<int>(layout.channels());
  shape.inputs = static_cast<int>(layout.inputs());
  shape.changes = static_cast<int>(layout.changes());
  shape.decays = static_cast<int>(layout.decays());
  shape.input = static_cast<int>(layout.input());
  shape.state = layout.state();
  shape.record = layout.record();
  return shape;
}

}  // namespace aerie::device
