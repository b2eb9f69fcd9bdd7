// Rows go through the states of their sequence.
//
// A warp has four values of a head, of which each lane has a share of the keys: element `key` of
// lane key % 8 x 4 + value. Sums are made by each lane in the order of its keys, and joined by
// exchange, so that their order is the shape's. The state stays in registers from row to row; where
// a row goes on from another than the one before it, the state is made anew from what the
// sequence's holds and the records on the way.
//
// The convolution's inputs in states are further blocks', a channel a thread.
#pragma once

#include <cstdint>

#include "kernels/device/linear/state_inputs.h"

namespace aerie::device {

inline constexpr int kScanThreads = 128;              // a tile of values
inline constexpr int kScanValues = kStateTile / 4;    // of a warp
inline constexpr int kScanShares = 32 / kScanValues;  // of keys
static_assert(kScanThreads / 32 * kScanValues == kStateTile);

// Blocks for matrices, before those for inputs.
SIMT_BOTH int scan_blocks(const StateShape& shape) {
  return shape.heads * shape.value_dim / kStateTile;
}

// kEach: at least key_dim / kScanShares.
template <int kEach>
class StateScan {
 public:
  SIMT_DEV StateScan(const ScanStates& args, const StateInputs& inputs, int block)
      : a_(args),
        layer_(args.layer),
        shape_(args.layer.shape),
        inputs_(inputs),
        tiles_(shape_.value_dim / kStateTile),
        head_(block / tiles_),
        tile_(block % tiles_),
        share_(static_cast<int>(threadIdx.x) % 32 / kScanValues),
        lane_value_(static_cast<int>(threadIdx.x) / 32 * kScanValues +
                    static_cast<int>(threadIdx.x) % kScanValues),
        key_at_(key_head_of(shape_, head_) * shape_.key_dim + share_),
        value_at_(head_ * shape_.value_dim + tile_ * kStateTile + lane_value_) {}

  SIMT_DEV void run() {
    const PassStateSequence& sequence = inputs_.sequence();
    settle();
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < sequence.count; ++i) {
      const int row = layer_.pass.indices[sequence.first + i];
      const PassStateRow at = layer_.pass.rows[row];
      if (at.path_count >= 0) begin(at, i == 0);
      step(row, at);
    }
  }

 private:
  // Keys of a row are held until the state takes them in, where registers suffice.
  static constexpr int kHeld = kEach <= 16 ? kEach : 1;

  // use(i) of the lane's keys; they are share_ + i * kScanShares.
  template <typename Use>
  SIMT_DEV void for_keys(const Use& use) const {
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if (i * kScanShares < shape_.key_dim) use(i);
    }
  }
  SIMT_DEV float* matrix(int slot) const {
    return layer_.states + slot * shape_.state +
           static_cast<int64_t>(head_ * tiles_ + tile_) * shape_.key_dim * kStateTile +
           share_ * kStateTile + lane_value_;
  }
  SIMT_DEV void load(int slot) {
    const float* from = matrix(slot);
    for_keys([&](int i) { state_[i] = from[i * kScanShares * kStateTile]; });
  }
  SIMT_DEV void store(int slot) const {
    float* to = matrix(slot);
    for_keys([&](int i) { to[i * kScanShares * kStateTile] = state_[i]; });
  }
  SIMT_DEV void clear() {
    for_keys([&](int i) { state_[i] = 0.0f; });
  }
  SIMT_DEV void apply(int index) {
    const float* record = layer_.records + index * shape_.record;
    const float change = record[shape_.changes + value_at_], decay = record[shape_.decays + head_];
    for_keys([&](int i) {
      state_[i] = simt::fma(record[key_at_ + i * kScanShares], change, decay * state_[i]);
    });
  }

  // What the sequence's state holds before its rows, with what is settled.
  SIMT_DEV void settle() {
    const int slot = inputs_.sequence().slot, settled = inputs_.settled();
    if (inputs_.blank()) {
      clear();
    } else {
      load(slot);
    }
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < settled; ++i) apply(inputs_.settled_record(i));
    if (settled > 0) store(slot);
  }

  // The state that a row goes on from, if that is not what there is.
  SIMT_DEV void begin(const PassStateRow& row, bool is_first) {
    if (!is_first) {
      if (inputs_.blank() && inputs_.settled() == 0) {
        clear();
      } else {
        load(inputs_.sequence().slot);
      }
      __syncwarp();  // other lanes wrote the changes of the pass's records
    }
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < row.path_count; ++i) apply(layer_.pass.indices[row.path + i]);
  }

  SIMT_DEV float sum_of_shares(float value) const {
    SIMT_UNROLL
    for (int mask = kScanValues; mask < 32; mask *= 2) value += simt::shuffle_xor(value, mask);
    return value;
  }

  SIMT_DEV void step(int row, const PassStateRow& at) {
    const float* mixed = layer_.mixed + static_cast<int64_t>(row) * shape_.channels;
    const float *keys = mixed + layer_.keys_at + key_at_,
                *queries = mixed + layer_.queries_at + key_at_;
    const float value = mixed[layer_.values_at + value_at_];
    const float* gates = layer_.gates + static_cast<int64_t>(row) * 2 * shape_.heads + head_;
    const float beta = gates[0], decay = gates[shape_.heads];
    [[maybe_unused]] float key[kHeld];
    float known = 0.0f, read = 0.0f, product = 0.0f;
    for_keys([&](int i) {
      const float of_key = keys[i * kScanShares], query = queries[i * kScanShares];
      if constexpr (kHeld > 1) key[i] = of_key;
      known = simt::fma(state_[i], of_key, known);
      read = simt::fma(state_[i], query, read);
      product = simt::fma(of_key, query, product);
    });
    known = sum_of_shares(known);
    read = sum_of_shares(read);
    product = sum_of_shares(product);
    const float change = beta * (a_.subtract ? value - decay * known : value);
    if (share_ == 0) {
      a_.out[static_cast<int64_t>(row) * shape_.heads * shape_.value_dim + value_at_] =
          simt::fma(product, change, decay * read);
      if (at.record >= 0) {
        layer_.records[at.record * shape_.record + shape_.changes + value_at_] = change;
      }
    }
    for_keys([&](int i) {
      float of_key = 0.0f;
      if constexpr (kHeld > 1) {
        of_key = key[i];
      } else {
        of_key = keys[i * kScanShares];
      }
      state_[i] = simt::fma(of_key, change, decay * state_[i]);
    });
    SIMT_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (at.into[i] >= 0) store(at.into[i]);
    }
  }

  const ScanStates& a_;
  const LinearLayer& layer_;
  const StateShape& shape_;
  const StateInputs& inputs_;
  int tiles_, head_, tile_, share_, lane_value_, key_at_, value_at_;
  float state_[kEach];
};

// The last inputs of a sequence, in its state and in those that are kept, of one channel. What is
// read of a state lies at a later place than what is written then.
SIMT_DEV void save_inputs(const LinearLayer& layer, const StateInputs& inputs, int channel) {
  const StateShape& shape = layer.shape;
  const PassStateSequence& sequence = inputs.sequence();
  const auto place = [&](int slot, int i) {
    return layer.states + slot * shape.state + shape.inputs +
           static_cast<int64_t>(i) * shape.channels + channel;
  };
  const auto value = [&](const StateInput& input) {
    return input.x != nullptr ? input.at(channel) : 0.0f;
  };
  bool own = false;  // whether a row's state is the sequence's
  SIMT_UNROLL_BY(1)
  for (int n = 0; n < sequence.saved_count; ++n) {
    const int row = layer.pass.indices[sequence.saved + n];
    const PassStateRow at = layer.pass.rows[row];
    own = own || at.into[0] == sequence.slot || at.into[1] == sequence.slot;
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < shape.taps - 1; ++i) {
      const float x = value(inputs.before(at, row, shape.taps - 2 - i));
      if (at.into[0] >= 0) *place(at.into[0], i) = x;
      if (at.into[1] >= 0) *place(at.into[1], i) = x;
    }
  }
  if (own || inputs.settled() == 0) return;
  SIMT_UNROLL_BY(1)
  for (int i = 0; i < shape.taps - 1; ++i) {
    *place(sequence.slot, i) = value(inputs.before_end(shape.taps - 1 - i));
  }
}

template <int kEach>
__global__ void __launch_bounds__(kScanThreads)
    scan_states_kernel(const __grid_constant__ ScanStates a) {
  simt::release_dependents();
  const int sequence = static_cast<int>(blockIdx.y), block = static_cast<int>(blockIdx.x);
  if (sequence >= *a.layer.pass.sequence_count) return simt::wait_for_previous();
  const StateInputs inputs(a.layer, sequence);
  simt::wait_for_previous();
  const int blocks = scan_blocks(a.layer.shape);
  if (block < blocks) return StateScan<kEach>(a, inputs, block).run();
  const int channel = (block - blocks) * kScanThreads + static_cast<int>(threadIdx.x);
  if (channel < a.layer.shape.channels) save_inputs(a.layer, inputs, channel);
}

}  // namespace aerie::device
