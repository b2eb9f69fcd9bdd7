// What is done to states between passes.
#pragma once

#include <cstdint>

#include "kernels/device/linear/state_inputs.h"

namespace aerie::device {

inline constexpr int kMoveThreads = 256;

// A thread has an element of the matrices of all slots, or a channel of their inputs, and makes all
// moves of it: nothing has to be waited for.
class StateElement {
 public:
  SIMT_DEV StateElement(const MoveStates& args, int element)
      : a_(args), shape_(args.shape), is_input_(element >= shape_.inputs) {
    if (is_input_) {
      channel_ = element - shape_.inputs;
      return;
    }
    const int tile = shape_.key_dim * kStateTile, matrix = shape_.key_dim * shape_.value_dim;
    const int head = element / matrix, in_tile = element % tile;
    at_ = element;
    head_ = head;
    key_ = key_head_of(shape_, head) * shape_.key_dim + in_tile / kStateTile;
    change_ = head * shape_.value_dim + element % matrix / tile * kStateTile + in_tile % kStateTile;
  }

  SIMT_DEV void run(int plane) const {
    float* states = a_.states[plane];
    const float* records = a_.records[plane];
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < *a_.count; ++i) {
      const int32_t* move = a_.moves + 4 * i;
      const int kind = move[0];
      if (kind != MoveStates::kCopy && move[1] != plane) continue;
      float* to = states + move[3] * shape_.state;
      if (kind == MoveStates::kApply) {
        apply(records + move[2] * shape_.record, to);
      } else {
        put(kind == MoveStates::kCopy ? states + move[2] * shape_.state : nullptr, to);
      }
    }
  }

 private:
  // From null: zeros.
  SIMT_DEV void put(const float* from, float* to) const {
    if (!is_input_) {
      to[at_] = from != nullptr ? from[at_] : 0.0f;
      return;
    }
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < shape_.taps - 1; ++i) {
      const int at = shape_.inputs + i * shape_.channels + channel_;
      to[at] = from != nullptr ? from[at] : 0.0f;
    }
  }
  SIMT_DEV void apply(const float* record, float* state) const {
    if (!is_input_) {
      state[at_] = simt::fma(record[key_], record[shape_.changes + change_],
                             record[shape_.decays + head_] * state[at_]);
      return;
    }
    float* inputs = state + shape_.inputs + channel_;
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < shape_.taps - 2; ++i) {
      inputs[static_cast<int64_t>(i) * shape_.channels] =
          inputs[static_cast<int64_t>(i + 1) * shape_.channels];
    }
    inputs[static_cast<int64_t>(shape_.taps - 2) * shape_.channels] =
        record[shape_.input + channel_];
  }

  const MoveStates& a_;
  const StateShape& shape_;
  bool is_input_;
  int at_ = 0, channel_ = 0;
  int head_ = 0, key_ = 0, change_ = 0;  // in a record
};

__global__ void __launch_bounds__(kMoveThreads)
    move_states_kernel(const __grid_constant__ MoveStates a) {
  simt::release_dependents();
  simt::wait_for_previous();
  const int element = static_cast<int>(blockIdx.x) * kMoveThreads + static_cast<int>(threadIdx.x);
  if (element >= a.shape.inputs + a.shape.channels) return;
  StateElement(a, element).run(static_cast<int>(blockIdx.y));
}

}  // namespace aerie::device
