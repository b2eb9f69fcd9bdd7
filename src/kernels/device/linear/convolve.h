// The short convolution of rows, the norms of their keys and queries, and their gates.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/linear/state_inputs.h"
#include "kernels/device/warp_sums.h"

namespace aerie::device {

inline constexpr int kConvolveThreads = 128;
inline constexpr int kConvolveTaps = 4;  // whose inputs and weights are asked for together

// Warps that a row takes: one for each head of queries and of keys, for so many values as such a
// warp has room for, for the gates of so many heads.
struct ConvolveWarps {
  int keys, values, gates;

  SIMT_BOTH ConvolveWarps(const LinearLayer& layer, int width)
      : keys(layer.shape.heads > 0 ? layer.shape.key_heads : 0),
        values((layer.values + width - 1) / width),
        gates((layer.shape.heads + 31) / 32) {}
  SIMT_BOTH int all() const { return 2 * keys + values + gates; }
};

SIMT_DEV float softplus(float x) {
  return simt::max(x, 0.0f) + simt::log_1p(simt::exp(-simt::absolute(x)));
}

// kEach: channels of a lane; all of them have room for key_dim.
template <int kEach>
class ConvolveWarp {
 public:
  static constexpr int kWidth = 32 * kEach;

  // Reads what no launch writes: where the inputs are, and weights.
  SIMT_DEV ConvolveWarp(const Convolve& args, int row, int warp)
      : a_(args),
        layer_(args.layer),
        shape_(args.layer.shape),
        index_(row),
        lane_(static_cast<int>(threadIdx.x % 32)),
        row_(args.layer.pass.rows[row]),
        inputs_(args.layer, row_.sequence) {
    const ConvolveWarps warps(layer_, kWidth);
    const int dim = shape_.key_dim, values = 2 * warps.keys;
    if (warp < warps.keys) {
      part_ = {layer_.queries_at + warp * dim, dim, a_.query_factor, -1};
    } else if (warp < values) {
      const int at = (warp - warps.keys) * dim;
      part_ = {layer_.keys_at + at, dim, a_.key_factor, at};
    } else if (warp < values + warps.values) {
      const int at = (warp - values) * kWidth, left = layer_.values - at;
      part_ = {layer_.values_at + at, left < kWidth ? left : kWidth, 0.0f, -1};
    } else {
      gate_ = (warp - values - warps.values) * 32 + lane_;
      if (gate_ >= shape_.heads) return;
      gate_at_ = static_cast<int64_t>(index_) * layer_.x_stride + gate_ / a_.together * a_.apart +
                 gate_ % a_.together;
      rate_ = a_.rate[gate_];
      step_ = a_.step[gate_];
      return;
    }
    ask(0);
  }

  SIMT_DEV void run() {
    if (part_.count > 0) return mix();
    if (gate_ < shape_.heads) make_gates();
  }

 private:
  SIMT_DEV float* record() const { return layer_.records + row_.record * shape_.record; }
  // Channels side by side, and the factor of their norm; 0: there is none. `key`: their place among
  // the keys of a record; -1: they are none.
  struct Part {
    int first, count;
    float factor;
    int key;
  };

  // What the convolution gives, in its place, with its norm; what a record has of it, and of its
  // inputs.
  SIMT_DEV void mix() {
    float sums[kEach];
    convolve(sums);
    float by = 1.0f;
    if (part_.factor > 0.0f) {
      float squares = 0.0f;
      for_part([&](int i, int) { squares = simt::fma(sums[i], sums[i], squares); });
      by = part_.factor * inverse_root_mean(warp_sum(squares), part_.count, a_.eps);
    }
    float* mixed = layer_.mixed + static_cast<int64_t>(index_) * shape_.channels + part_.first;
    for_part([&](int i, int at) {
      if (part_.factor > 0.0f) sums[i] *= by;
      mixed[at] = sums[i];
      if (part_.key >= 0 && row_.record >= 0) record()[part_.key + at] = sums[i];
    });
  }

  // use(i, channel) of the lane's channels of the part.
  template <typename Use>
  SIMT_DEV void for_part(const Use& use) const {
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int at = i * 32 + lane_;
      if (at < part_.count) use(i, at);
    }
  }

  // Where the inputs of taps from `first` on are, the oldest first, and their weights.
  SIMT_DEV void ask(int first) {
    int32_t sources[kConvolveTaps];
    SIMT_UNROLL
    for (int t = 0; t < kConvolveTaps; ++t) {
      const int tap = first + t;
      sources[t] = inputs_.source(row_, shape_.taps - 1 - tap);
      const float* weights = a_.weights + static_cast<int64_t>(tap) * shape_.channels + part_.first;
      if (tap >= shape_.taps) continue;
      for_part([&](int i, int at) { weights_[t][i] = weights[at]; });
    }
    SIMT_UNROLL
    for (int t = 0; t < kConvolveTaps; ++t) {
      const int back = shape_.taps - 1 - first - t;
      from_[t] = {nullptr, nullptr};
      if (back >= 0) from_[t] = inputs_.before(row_, index_, back, sources[t]);
    }
  }

  // Adds these taps; no input is waited for before all are asked for.
  SIMT_DEV void add(float (&sums)[kEach]) const {
    float x[kConvolveTaps][kEach];
    SIMT_UNROLL
    for (int t = 0; t < kConvolveTaps; ++t) {
      if (from_[t].x == nullptr) continue;
      for_part([&](int i, int at) { x[t][i] = from_[t].x[part_.first + at]; });
    }
    SIMT_UNROLL
    for (int t = 0; t < kConvolveTaps; ++t) {
      if (from_[t].gates == nullptr) continue;
      for_part([&](int i, int at) { x[t][i] *= from_[t].gates[part_.first + at]; });
    }
    SIMT_UNROLL
    for (int t = 0; t < kConvolveTaps; ++t) {
      if (from_[t].x == nullptr) continue;
      for_part([&](int i, int) { sums[i] = simt::fma(weights_[t][i], x[t][i], sums[i]); });
    }
  }

  SIMT_DEV void convolve(float (&sums)[kEach]) {
    for_part(
        [&](int i, int at) { sums[i] = a_.bias != nullptr ? a_.bias[part_.first + at] : 0.0f; });
    SIMT_UNROLL_BY(1)
    for (int first = 0; first < shape_.taps; first += kConvolveTaps) {
      if (first > 0) ask(first);
      add(sums);
    }
    if (row_.record >= 0) {
      const StateInput own = inputs_.of_row(index_);
      for_part([&](int, int at) {
        record()[shape_.input + part_.first + at] = own.at(part_.first + at);
      });
    }
    if (!a_.silu) return;
    for_part([&](int i, int) { sums[i] = activated(Glu::kSilu, sums[i]); });
  }

  SIMT_DEV void make_gates() const {
    const float of_beta = a_.beta != nullptr ? a_.beta[gate_at_] : 0.0f;
    const float step = softplus(a_.alpha[gate_at_] + step_);
    const float beta = a_.beta != nullptr ? simt::divide(1.0f, 1.0f + simt::exp(-of_beta)) : step;
    const float decay = simt::exp(rate_ * step);
    float* gates = layer_.gates + static_cast<int64_t>(index_) * 2 * shape_.heads + gate_;
    gates[0] = beta;
    gates[shape_.heads] = decay;
    if (row_.record >= 0) record()[shape_.decays + gate_] = decay;
  }

  const Convolve& a_;
  const LinearLayer& layer_;
  const StateShape& shape_;
  int index_, lane_;
  PassStateRow row_;
  StateInputs inputs_;
  Part part_ = {0, 0, 0.0f, -1};
  // Of a warp that has no part: the lane's head, and where what its gates are made of lies.
  int gate_ = 0;
  int64_t gate_at_ = 0;
  float rate_ = 0.0f, step_ = 0.0f;
  StateInput from_[kConvolveTaps];
  float weights_[kConvolveTaps][kEach];
};

template <int kEach>
__global__ void __launch_bounds__(kConvolveThreads, kEach <= 4 ? 6 : 3)
    convolve_kernel(const __grid_constant__ Convolve a) {
  simt::release_dependents();
  const int row = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(blockIdx.x * (kConvolveThreads / 32) + threadIdx.x / 32);
  // What a pass is told no launch writes.
  const bool is_there = row < *a.layer.pass.row_count &&
                        warp < ConvolveWarps(a.layer, ConvolveWarp<kEach>::kWidth).all();
  if (!is_there) return simt::wait_for_previous();
  ConvolveWarp<kEach> of(a, row, warp);
  simt::wait_for_previous();
  of.run();
}

}  // namespace aerie::device
