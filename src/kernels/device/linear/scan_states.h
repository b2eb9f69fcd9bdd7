// Rows go through the states of their sequence.
//
// A warp has four values of a head, of which each lane has a share of the keys: four side by side
// of every 32. Sums are made by each lane in the order of its keys, and joined by exchange, so that
// their order is the shape's. The state stays in registers from row to row; where a row goes on
// from another than the one before it, the state is made anew from what the sequence's holds and
// the records on the way.
//
// The convolution's inputs in states are further blocks', a channel a thread.
#pragma once

#include <cstdint>

#include "kernels/device/linear/scan_rows.h"
#include "kernels/device/linear/state_inputs.h"

namespace aerie::device {

inline constexpr int kScanValues = kStateTile / 4;    // of a warp
inline constexpr int kScanShares = 32 / kScanValues;  // of keys
static_assert(kScanThreads / 32 * kScanValues == kStateTile);

// Blocks for matrices, before those for inputs.
SIMT_BOTH int scan_blocks(const StateShape& shape) {
  return shape.heads * shape.value_dim / kStateTile;
}

// kEach: at least key_dim / kScanShares. kSubtract: ScanStates::subtract.
template <int kEach, bool kSubtract>
class StateScan {
 public:
  static constexpr int kKeys = kEach * kScanShares;

  // Reads what no launch writes; of the state, which comes from far, it says that it will be read.
  SIMT_DEV StateScan(const ScanStates& args, const StateInputs& inputs, int block)
      : layer_(args.layer),
        shape_(args.layer.shape),
        inputs_(inputs),
        tiles_(shape_.value_dim / kStateTile),
        head_(block / tiles_),
        tile_(block % tiles_),
        share_(static_cast<int>(threadIdx.x % 32 / kScanValues)),
        lane_value_(static_cast<int>(threadIdx.x / 32 * kScanValues + threadIdx.x % kScanValues)),
        key_at_(key_head_of(shape_, head_) * shape_.key_dim),
        value_at_(head_ * shape_.value_dim + tile_ * kStateTile + lane_value_),
        width_(shape_.heads * shape_.value_dim),
        out_(args.out + value_at_),
        shared_(simt::shared<ScanBatches<kKeys>>()),
        rows_(args.layer, inputs.sequence(), head_, tile_) {
    if (inputs.blank()) return;
    constexpr int kLine = 32;
    const float* state = tile_of(inputs.sequence().slot);
    SIMT_UNROLL_BY(1)
    for (int i = static_cast<int>(threadIdx.x) * kLine; i < shape_.key_dim * kStateTile;
         i += kScanThreads * kLine) {
      simt::fetch_line(state + i);
    }
  }

  SIMT_DEV void run() {
    const int count = inputs_.sequence().count;
    clear();
    if (!inputs_.blank()) load(inputs_.sequence().slot);
    rows_.begin();
    settle();
    SIMT_UNROLL_BY(1)
    for (int first = 0; first < count; first += kScanBatch) {
      rows_.take(first);
      const int side = ScanRows<kKeys>::side_of(first);
      const int rows = count - first < kScanBatch ? count - first : kScanBatch;
      SIMT_UNROLL_BY(1)
      for (int i = 0; i < rows; ++i) step(side, i, first + i == 0);
    }
  }

 private:
  static constexpr int kTogether = 4;  // keys of a lane that lie side by side

  // What a row did to the state.
  struct Change {
    float keys[kEach];
    float change, decay;
  };

  // use(i, key) of the lane's keys.
  template <typename Use>
  SIMT_DEV void for_keys(const Use& use) const {
    SIMT_UNROLL
    for (int i = 0; i < kEach; i += kTogether) {
      const int key = i * kScanShares + share_ * kTogether;
      if (key >= shape_.key_dim) continue;
      SIMT_UNROLL
      for (int j = 0; j < kTogether; ++j) use(i + j, key + j);
    }
  }
  SIMT_DEV float* tile_of(int slot) const {
    return layer_.states + slot * shape_.state +
           static_cast<int64_t>(head_ * tiles_ + tile_) * shape_.key_dim * kStateTile;
  }
  SIMT_DEV void load(int slot) {
    const float* from = tile_of(slot) + lane_value_;
    for_keys([&](int i, int key) { state_[i] = from[key * kStateTile]; });
  }
  SIMT_DEV void store(int slot) const {
    float* to = tile_of(slot) + lane_value_;
    for_keys([&](int i, int key) { to[key * kStateTile] = state_[i]; });
  }
  // Keys that are not there have a state, too, of which nothing comes.
  SIMT_DEV void clear() {
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) state_[i] = 0.0f;
  }

  SIMT_DEV void add(const Change& by) {
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      state_[i] = simt::fma(by.keys[i], by.change, by.decay * state_[i]);
    }
  }
  SIMT_DEV void read(int index, Change& to) const {
    const float* record = layer_.records + index * shape_.record;
    const float* keys = record + key_at_;
    to.change = record[shape_.changes + value_at_];
    to.decay = record[shape_.decays + head_];
    for_keys([&](int i, int key) { to.keys[i] = keys[key]; });
  }
  // Records of so many indices, while the next one is on its way.
  SIMT_DEV void apply(int first, int count) {
    if (count == 0) return;
    const int32_t* indices = layer_.pass.indices + first;
    int32_t next = count > 1 ? indices[1] : 0;
    Change now = {}, then = {};
    read(indices[0], now);
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < count; ++i) {
      if (i + 1 < count) read(next, then);
      if (i + 2 < count) next = indices[i + 2];
      add(now);
      now = then;
    }
  }

  // Brings what is settled into the state.
  SIMT_DEV void settle() {
    if (inputs_.settled() == 0) return;
    apply(inputs_.settled_at(), inputs_.settled());
    store(inputs_.sequence().slot);
  }

  // The state that a row goes on from, if that is not what there is.
  SIMT_DEV void begin(int path, int count, bool is_first) {
    if (!is_first) {
      clear();
      if (!inputs_.blank() || inputs_.settled() > 0) load(inputs_.sequence().slot);
      __syncwarp();  // other lanes wrote the changes of the pass's records
    }
    apply(path, count);
  }

  SIMT_DEV float sum_of_shares(float value) const {
    SIMT_UNROLL
    for (int mask = kScanValues; mask < 32; mask *= 2) value += simt::shuffle_xor(value, mask);
    return value;
  }
  SIMT_DEV void take(const float4* from, float (&to)[kEach]) const {
    SIMT_UNROLL
    for (int i = 0; i < kEach; i += kTogether) {
      const float4 four = from[i / kTogether * kScanShares + share_];
      to[i] = four.x;
      to[i + 1] = four.y;
      to[i + 2] = four.z;
      to[i + 3] = four.w;
    }
  }
  // What the state has for these keys, in two sums, each half as long a wait.
  SIMT_DEV float seen_by(const float (&keys)[kEach]) const {
    float sums[2] = {};
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) sums[i % 2] = simt::fma(state_[i], keys[i], sums[i % 2]);
    return sums[0] + sums[1];
  }

  // Row i of the batch on this side.
  SIMT_DEV void step(int side, int i, bool is_first) {
    const ScanTurn turn = shared_.turn(i);
    const ScanScalars of = shared_.scalars[i];
    const bool is_kept = turn.record >= 0 || turn.into[0] >= 0 || turn.into[1] >= 0;
    float keys[kEach], queries[kEach];
    take(shared_.keys[side][i], keys);
    take(shared_.queries[side][i], queries);
    float change = reinterpret_cast<const float*>(shared_.values[side][i])[lane_value_];
    if (turn.path_count >= 0) begin(shared_.rows[i].path, turn.path_count, is_first);
    if constexpr (kSubtract) change = simt::fma(-of.decay, sum_of_shares(seen_by(keys)), change);
    change *= of.beta;
    const float read = sum_of_shares(seen_by(queries));
    if (share_ == 0) {
      out_[static_cast<int64_t>(of.number) * width_] =
          simt::fma(of.product, change, of.decay * read);
    }
    SIMT_UNROLL
    for (int k = 0; k < kEach; ++k) {
      state_[k] = simt::fma(keys[k], change, of.decay * state_[k]);
    }
    if (is_kept) keep(turn, change);
  }

  SIMT_DEV void keep(const ScanTurn& turn, float change) const {
    if (turn.record >= 0 && share_ == 0) {
      layer_.records[turn.record * shape_.record + shape_.changes + value_at_] = change;
    }
    SIMT_UNROLL_BY(1)
    for (int n = 0; n < 2; ++n) {
      const int slot = n == 0 ? turn.into[0] : turn.into[1];
      if (slot >= 0) store(slot);
    }
  }

  const LinearLayer& layer_;
  const StateShape& shape_;
  const StateInputs& inputs_;
  int tiles_, head_, tile_, share_, lane_value_, key_at_, value_at_, width_;
  float* out_;
  ScanBatches<kKeys>& shared_;
  ScanRows<kKeys> rows_;
  float state_[kEach];
};

// The last inputs of a sequence, in its state and in those that are kept, of one channel.
class SavedInputs {
 public:
  // Reads what no launch writes.
  SIMT_DEV SavedInputs(const LinearLayer& layer, const StateInputs& inputs, int channel)
      : layer_(layer), shape_(layer.shape), inputs_(inputs), channel_(channel) {
    read(0);
  }

  SIMT_DEV void run() {
    const PassStateSequence& sequence = inputs_.sequence();
    bool own = false;  // whether a row's state is the sequence's
    SIMT_UNROLL_BY(1)
    for (int n = 0; n < sequence.saved_count; ++n) {
      own = own || row_.into[0] == sequence.slot || row_.into[1] == sequence.slot;
      const auto before = [&](int i) {
        const int back = shape_.taps - 2 - i;
        return inputs_.before(row_, number_, back, inputs_.source(row_, back));
      };
      save(before, row_.into);
      read(n + 1);
    }
    const int32_t into[2] = {sequence.slot, -1};
    if (own || inputs_.settled() == 0) return;
    save([&](int i) { return inputs_.before_end(shape_.taps - 1 - i); }, into);
  }

 private:
  // The row whose state is the n-th to be kept.
  SIMT_DEV void read(int n) {
    if (n >= inputs_.sequence().saved_count) return;
    number_ = layer_.pass.indices[inputs_.sequence().saved + n];
    row_ = layer_.pass.rows[number_];
  }

  static constexpr int kAtOnce = 4;  // what is read before anything of it is written

  // before(i): the input that is so many places from the oldest one that is kept. What is read of a
  // state lies at a later place than what is written then.
  template <typename Before>
  SIMT_DEV void save(const Before& before, const int32_t (&into)[2]) const {
    const int count = shape_.taps - 1;
    SIMT_UNROLL_BY(1)
    for (int first = 0; first < count; first += kAtOnce) {
      float x[kAtOnce];
      SIMT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= count) continue;
        const StateInput from = before(first + i);
        x[i] = from.x != nullptr ? from.at(channel_) : 0.0f;
      }
      SIMT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= count) continue;
        if (into[0] >= 0) *place(into[0], first + i) = x[i];
        if (into[1] >= 0) *place(into[1], first + i) = x[i];
      }
    }
  }
  SIMT_DEV float* place(int slot, int i) const {
    return layer_.states + slot * shape_.state + shape_.inputs +
           static_cast<int64_t>(i) * shape_.channels + channel_;
  }

  const LinearLayer& layer_;
  const StateShape& shape_;
  const StateInputs& inputs_;
  int channel_;
  int32_t number_ = 0;
  PassStateRow row_;
};

template <int kEach, bool kSubtract>
__global__ void __launch_bounds__(kScanThreads)
    scan_states_kernel(const __grid_constant__ ScanStates a) {
  simt::release_dependents();
  const int sequence = static_cast<int>(blockIdx.y), block = static_cast<int>(blockIdx.x);
  if (sequence >= *a.layer.pass.sequence_count) return simt::wait_for_previous();
  const StateInputs inputs(a.layer, sequence);
  const int blocks = scan_blocks(a.layer.shape);
  if (block < blocks) {
    StateScan<kEach, kSubtract> scan(a, inputs, block);
    simt::wait_for_previous();
    return scan.run();
  }
  const int channel = (block - blocks) * kScanThreads + static_cast<int>(threadIdx.x);
  SavedInputs saved(a.layer, inputs, channel);
  simt::wait_for_previous();
  if (channel < a.layer.shape.channels) saved.run();
}

}  // namespace aerie::device
