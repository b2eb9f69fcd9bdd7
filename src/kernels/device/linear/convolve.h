// The short convolution of rows, the norms of their keys and queries, and their gates.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/linear/state_inputs.h"
#include "kernels/device/warp_sums.h"

namespace aerie::device {

inline constexpr int kConvolveThreads = 256;
inline constexpr int kConvolveEach = kMostStateDim / 32;  // channels of a lane

// Warps that a row takes: one for each head of queries and of keys, for so many values, for the
// gates of so many heads.
struct ConvolveWarps {
  int keys, values, gates;

  SIMT_BOTH explicit ConvolveWarps(const LinearLayer& layer)
      : keys(layer.shape.heads > 0 ? layer.shape.key_heads : 0),
        values((layer.values + kMostStateDim - 1) / kMostStateDim),
        gates((layer.shape.heads + 31) / 32) {}
  SIMT_BOTH int all() const { return 2 * keys + values + gates; }
};

SIMT_DEV float softplus(float x) {
  return simt::max(x, 0.0f) + simt::log_1p(simt::exp(-simt::absolute(x)));
}

class ConvolveWarp {
 public:
  SIMT_DEV ConvolveWarp(const Convolve& args, int row)
      : a_(args),
        layer_(args.layer),
        shape_(args.layer.shape),
        index_(row),
        lane_(static_cast<int>(threadIdx.x) % 32),
        row_(args.layer.pass.rows[row]),
        inputs_(args.layer, row_.sequence) {}

  SIMT_DEV void run(int warp) {
    const ConvolveWarps warps(layer_);
    const int dim = shape_.key_dim;
    Part part = {layer_.queries_at, dim, a_.query_factor, -1};
    if (warp >= warps.keys) {
      warp -= warps.keys;
      part = {layer_.keys_at, dim, a_.key_factor, warp * dim};
    }
    if (warp >= warps.keys) {
      warp -= warps.keys;
      if (warp >= warps.values) return make_gates((warp - warps.values) * 32 + lane_);
      const int left = layer_.values - warp * kMostStateDim;
      part = {layer_.values_at, left < kMostStateDim ? left : kMostStateDim, 0.0f, -1};
      part.first += warp * kMostStateDim;
    } else {
      part.first += warp * dim;
    }
    mix(part);
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
  SIMT_DEV void mix(const Part& part) const {
    float sums[kConvolveEach];
    convolve(part, sums);
    float by = 1.0f;
    if (part.factor > 0.0f) {
      float squares = 0.0f;
      for_part(part, [&](int i, int) { squares = simt::fma(sums[i], sums[i], squares); });
      by = part.factor * inverse_root_mean(warp_sum(squares), part.count, a_.eps);
    }
    float* mixed = layer_.mixed + static_cast<int64_t>(index_) * shape_.channels + part.first;
    for_part(part, [&](int i, int at) {
      if (part.factor > 0.0f) sums[i] *= by;
      mixed[at] = sums[i];
      if (part.key >= 0 && row_.record >= 0) record()[part.key + at] = sums[i];
    });
  }

  // use(i, channel) of the lane's channels of the part.
  template <typename Use>
  SIMT_DEV void for_part(const Part& part, const Use& use) const {
    SIMT_UNROLL
    for (int i = 0; i < kConvolveEach; ++i) {
      const int at = i * 32 + lane_;
      if (at < part.count) use(i, at);
    }
  }

  SIMT_DEV void convolve(const Part& part, float (&sums)[kConvolveEach]) const {
    for_part(part, [&](int i, int at) {
      sums[i] = a_.bias != nullptr ? a_.bias[part.first + at] : 0.0f;
    });
    SIMT_UNROLL_BY(1)
    for (int back = shape_.taps - 1; back >= 0; --back) {
      const StateInput input = inputs_.before(row_, index_, back);
      if (input.x == nullptr) continue;
      const float* weights =
          a_.weights + static_cast<int64_t>(shape_.taps - 1 - back) * shape_.channels + part.first;
      for_part(part, [&](int i, int at) {
        const float x = input.at(part.first + at);
        sums[i] = simt::fma(weights[at], x, sums[i]);
        if (back == 0 && row_.record >= 0) record()[shape_.input + part.first + at] = x;
      });
    }
    if (!a_.silu) return;
    for_part(part, [&](int i, int) { sums[i] = activated(Glu::kSilu, sums[i]); });
  }

  SIMT_DEV void make_gates(int head) const {
    if (head >= shape_.heads) return;
    const int64_t at = static_cast<int64_t>(index_) * layer_.x_stride +
                       head / a_.together * a_.apart + head % a_.together;
    const float step = softplus(a_.alpha[at] + a_.step[head]);
    const float decay = simt::exp(a_.rate[head] * step);
    float* gates = layer_.gates + static_cast<int64_t>(index_) * 2 * shape_.heads + head;
    gates[0] = a_.beta != nullptr ? simt::divide(1.0f, 1.0f + simt::exp(-a_.beta[at])) : step;
    gates[shape_.heads] = decay;
    if (row_.record >= 0) record()[shape_.decays + head] = decay;
  }

  const Convolve& a_;
  const LinearLayer& layer_;
  const StateShape& shape_;
  int index_, lane_;
  PassStateRow row_;
  StateInputs inputs_;
};

__global__ void __launch_bounds__(kConvolveThreads)
    convolve_kernel(const __grid_constant__ Convolve a) {
  simt::release_dependents();
  const int row = static_cast<int>(blockIdx.y);
  const int warp =
      static_cast<int>(blockIdx.x) * (kConvolveThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  // What a pass is told no launch writes.
  const bool is_there = row < *a.layer.pass.row_count && warp < ConvolveWarps(a.layer).all();
  if (!is_there) return simt::wait_for_previous();
  ConvolveWarp of(a, row);
  simt::wait_for_previous();
  of.run(warp);
}

}  // namespace aerie::device
