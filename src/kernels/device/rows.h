// Operations on rows by themselves: norms, copies, rotary embedding, the cache's entries, the best
// token.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/cache_place.h"
#include "kernels/device/device.h"
#include "kernels/device/warp_sums.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

inline constexpr int kRowThreads = 256;

struct RowShared {
  float sums[kRowThreads / 32];
};

// The sum over all threads of a block, to all of them, in one order.
SIMT_DEV float block_sum(RowShared& shared, float value) {
  value = warp_sum(value);
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (thread % 32 == 0) shared.sums[thread / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  SIMT_UNROLL
  for (int i = 0; i < kRowThreads / 32; ++i) sum += shared.sums[i];
  return sum;
}

SIMT_DEV float row_inverse_rms(RowShared& shared, const float* x, int width, float eps) {
  float sum = 0.0f;
  for (int n = static_cast<int>(threadIdx.x); n < width; n += kRowThreads) {
    sum = simt::fma(x[n], x[n], sum);
  }
  return inverse_root_mean(block_sum(shared, sum), width, eps);
}

// NextInput of element n, all threads of a panel together.
SIMT_DEV void make_next(const NextInput& next, int row, int n, bool is_there, float x) {
  if (is_there && next.out != nullptr) {
    next.out[static_cast<int64_t>(row) * next.stride + n] = simt::to_bf16(x * next.weight[n]);
  }
  if (next.squares == nullptr) return;
  const float square = panel_sum(is_there ? x * x : 0.0f);
  if (is_there && n % kPanel == 0) {
    next.squares[static_cast<int64_t>(row) * next.squares_stride + n / kPanel] = square;
  }
}

SIMT_DEV int rounded_up(int n, int to) {
  return (n + to - 1) / to * to;
}

// The block's row, once the launch before has ended; -1: there is none. How many there are no
// launch writes.
SIMT_DEV int row_of_block(const int32_t* rows) {
  simt::release_dependents();
  const int row = static_cast<int>(blockIdx.x);
  const bool is_there = row < *rows;
  simt::wait_for_previous();
  return is_there ? row : -1;
}

__global__ void __launch_bounds__(kRowThreads) begin_kernel(const __grid_constant__ Begin a) {
  const int row = row_of_block(a.rows);
  if (row < 0) return;
  const int64_t from = a.from != nullptr ? a.from[row] : row;
  const float* x = a.x + from * a.x_stride;
  for (int n = static_cast<int>(threadIdx.x); n < rounded_up(a.width, kRowThreads);
       n += kRowThreads) {
    const bool is_there = n < a.width;
    make_next(a.next, row, n, is_there, is_there ? x[n] : 0.0f);
  }
}

__global__ void __launch_bounds__(kRowThreads)
    layer_norm_kernel(const __grid_constant__ LayerNorm a) {
  auto& shared = simt::shared<RowShared>();
  const int row = row_of_block(a.rows);
  if (row < 0) return;
  const int64_t from = a.from != nullptr ? a.from[row] : row, to = int64_t{row} * a.out_stride;
  const float* x = a.x + from * a.x_stride;
  const int first = static_cast<int>(threadIdx.x);
  float sum = 0.0f;
  for (int n = first; n < a.width; n += kRowThreads) sum += x[n];
  const float mean = simt::divide(block_sum(shared, sum), static_cast<float>(a.width));
  sum = 0.0f;
  for (int n = first; n < a.width; n += kRowThreads) {
    sum = simt::fma(x[n] - mean, x[n] - mean, sum);
  }
  const float inverse = inverse_root_mean(block_sum(shared, sum), a.width, a.eps);
  for (int n = first; n < a.width; n += kRowThreads) {
    const float value = simt::fma((x[n] - mean) * inverse, a.weight[n], a.bias[n]);
    if (a.out != nullptr) {
      a.out[to + n] = simt::to_bf16(value);
    } else {
      a.floats[to + n] = value;
    }
  }
}

template <bool kScales>
__global__ void __launch_bounds__(kRowThreads)
    add_normed_kernel(const __grid_constant__ AddNormed a) {
  auto& shared = simt::shared<RowShared>();
  const int row = row_of_block(a.rows);
  if (row < 0) return;
  const float* y = a.y + static_cast<int64_t>(row) * a.y_stride;
  float* x = a.x + static_cast<int64_t>(row) * a.x_stride;
  const float inverse = row_inverse_rms(shared, y, a.width, a.eps);
  for (int n = static_cast<int>(threadIdx.x); n < rounded_up(a.width, kRowThreads);
       n += kRowThreads) {
    const bool is_there = n < a.width;
    float sum = 0.0f;
    if (is_there) {
      sum = simt::fma(y[n] * inverse, a.weight[n], x[n]);
      if constexpr (kScales) sum *= a.scale;
      x[n] = sum;
    }
    make_next(a.next, row, n, is_there, sum);
  }
}

__global__ void __launch_bounds__(kRowThreads)
    copy_rows_kernel(const __grid_constant__ CopyRows a) {
  auto& shared = simt::shared<RowShared>();
  const int row = row_of_block(a.rows);
  if (row < 0) return;
  const int64_t from = a.from != nullptr ? a.from[row] : row;
  const float* x = a.x + from * a.x_stride;
  float* out = a.out + row * a.out_stride;
  const float inverse = a.weight != nullptr ? row_inverse_rms(shared, x, a.width, a.eps) : 1.0f;
  for (int n = static_cast<int>(threadIdx.x); n < a.width; n += kRowThreads) {
    out[n] = a.weight != nullptr ? x[n] * inverse * a.weight[n] : x[n];
  }
}

__global__ void __launch_bounds__(kRowThreads)
    narrow_rows_kernel(const __grid_constant__ NarrowRows a) {
  auto& shared = simt::shared<RowShared>();
  const int row = row_of_block(a.rows);
  if (row < 0) return;
  const int64_t from = a.from != nullptr ? a.from[row] : row;
  const float* x = a.x + from * a.x_stride;
  uint16_t* out = a.out + static_cast<int64_t>(row) * a.out_stride;
  const float inverse = a.weight != nullptr ? row_inverse_rms(shared, x, a.width, a.eps) : 1.0f;
  for (int n = static_cast<int>(threadIdx.x); n < a.width + a.zeros; n += kRowThreads) {
    float value = n < a.width ? x[n] : 0.0f;
    if (a.weight != nullptr && n < a.width) value = value * inverse * a.weight[n];
    out[n] = simt::to_bf16(value);
  }
}

__global__ void __launch_bounds__(kRowThreads) map_rows_kernel(const __grid_constant__ MapRows a) {
  const int row = row_of_block(a.rows);
  if (row < 0) return;
  const float* x = a.x + row * a.x_stride;
  float* out = a.out + row * a.out_stride;
  for (int n = static_cast<int>(threadIdx.x); n < a.width; n += kRowThreads) {
    float value = a.bias != nullptr ? x[n] + a.bias[n] : x[n];
    if (a.activates) value = activated(a.glu, value);
    out[n] = simt::fma(a.factor, value, a.adds ? out[n] : 0.0f);
  }
}

__global__ void __launch_bounds__(kRowThreads)
    gate_rows_kernel(const __grid_constant__ GateRows a) {
  const int row = row_of_block(a.rows);
  if (row < 0) return;
  const float* x = a.x + static_cast<int64_t>(row) * a.x_stride;
  const float* by = a.by + static_cast<int64_t>(row) * a.by_stride;
  uint16_t* out = a.out + static_cast<int64_t>(row) * a.out_stride;
  for (int n = static_cast<int>(threadIdx.x); n < a.width; n += kRowThreads) {
    out[n] = simt::to_bf16(activated(a.glu, x[n]) * by[n]);
  }
}

// A warp has a part of a row.
__global__ void __launch_bounds__(kRowThreads)
    join_inputs_kernel(const __grid_constant__ JoinInputs a) {
  simt::release_dependents();
  const int row = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % 32;
  const int part =
      static_cast<int>(blockIdx.x) * (kRowThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  const bool is_there = row < *a.rows && part < a.parts;
  simt::wait_for_previous();
  if (!is_there) return;
  float* x = a.x + static_cast<int64_t>(row) * a.x_stride + part * a.width;
  const float* added = a.added + static_cast<int64_t>(row) * a.added_stride + part * a.width;
  float sum = 0.0f;
  for (int n = lane; n < a.width; n += 32) sum = simt::fma(x[n], x[n], sum);
  const float inverse = inverse_root_mean(warp_sum(sum), a.width, a.eps);
  for (int n = lane; n < a.width; n += 32) {
    x[n] = a.factor * simt::fma(added[n], a.added_scale, x[n] * inverse * a.weight[n]);
  }
}

// A warp has one head of queries of one row, or one of keys and the values that go with it. All
// that it needs is asked for before anything is written.
//
// Values in the cache are finite: where one is not, all of the head's values become zeros and its
// key no number, so that rows that see the position have no numbers, and others need not care
// what there is where they do not look.
//
// kPairs: of elements, that a lane has of a head of at most 64 kPairs of them.
template <int kPairs>
class PlaceWarp {
 public:
  SIMT_DEV PlaceWarp(const Place& args, int row, int head, int slot)
      : a_(args),
        row_(row),
        head_(head),
        slot_(slot),
        lane_(static_cast<int>(threadIdx.x) % 32),
        turning_(args.turns == nullptr ? 0 : args.dimensions) {}

  SIMT_DEV void run() {
    const int dim = a_.shape.head_dim, heads = a_.heads;
    const int apart = a_.queries_apart > 0 ? a_.queries_apart : dim;
    const float* x = a_.qkv + static_cast<int64_t>(row_) * a_.stride +
                     (head_ < heads ? head_ * apart : heads * apart + (head_ - heads) * dim);
    float2 pairs[kPairs];
    load_pairs(x, pairs);
    load_turns();
    if (head_ < heads) {
      return turn(norm_of(a_.query_norm, head_, heads), x, pairs,
                  a_.q + (static_cast<int64_t>(row_) * heads + head_) * dim);
    }
    const float* values_at = x + a_.values_apart;
    float values[kPairs * 2];
    SIMT_UNROLL
    for (int i = 0; i < kPairs * 2; ++i) {
      const int d = i * 32 + lane_;
      values[i] = d < dim ? values_at[d] : 0.0f;
    }
    uint16_t* place = a_.plane + head_offset(a_.shape, slot_, head_ - heads);
    uint16_t* key = place + key_element(a_.shape, slot_, 0);
    const float inverse = a_.value_norm ? head_inverse_rms(values_at, dim) : 1.0f;
    turn(norm_of(a_.key_norm, head_ - heads, a_.shape.kv_heads), x, pairs, key);
    const bool finite = put_values(values, inverse, place);
    if (finite) return;
    __syncwarp();  // other lanes wrote what follows
    for (int d = lane_; d < dim; d += 32) {
      key[d] = 0x7fffu;
      place[value_element(a_.shape, slot_, d)] = 0;
    }
  }

 private:
  // The elements of pair p.
  struct PairAt {
    int first, second;
  };
  SIMT_DEV PairAt pair_at(int p) const {
    if (a_.halves && p < turning_ / 2) return {p, p + turning_ / 2};
    return {2 * p, 2 * p + 1};
  }
  // Of a head of elements, or of weights of its norm.
  SIMT_DEV void load_pairs(const float* x, float2 (&pairs)[kPairs]) const {
    SIMT_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const int p = i * 32 + lane_;
      const PairAt at = pair_at(p);
      pairs[i] = {0.0f, 0.0f};
      if (p < a_.shape.head_dim / 2) pairs[i] = {x[at.first], x[at.second]};
    }
  }

  SIMT_DEV void load_turns() {
    const float* by = a_.turns + static_cast<int64_t>(row_) * a_.turns_stride;
    SIMT_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const int p = i * 32 + lane_;
      turns_[i] = {1.0f, 0.0f};
      if (p < turning_ / 2) turns_[i] = {by[p], by[turning_ / 2 + p]};
    }
  }

  // The norm of a head, one of so many: its weights, and the elements that it is of, from so many
  // before the head's on.
  struct HeadNorm {
    const float* weight;
    int before, count;
  };
  SIMT_DEV HeadNorm norm_of(const float* weight, int head, int heads) const {
    const int dim = a_.shape.head_dim;
    if (weight == nullptr || !a_.whole_norms) return {weight, 0, dim};
    return {weight + head * dim, head * dim, heads * dim};
  }

  // Norms and turns a head, and rounds it.
  SIMT_DEV void turn(const HeadNorm& norm, const float* x, float2 (&pairs)[kPairs],
                     uint16_t* out) const {
    const int dim = a_.shape.head_dim;
    if (norm.weight != nullptr) {
      float2 by[kPairs];
      load_pairs(norm.weight, by);
      const float inverse = head_inverse_rms(x - norm.before, norm.count);
      SIMT_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        pairs[i].x = pairs[i].x * inverse * by[i].x;
        pairs[i].y = pairs[i].y * inverse * by[i].y;
      }
    }
    SIMT_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const int p = i * 32 + lane_;
      const PairAt at = pair_at(p);
      float u = limited(pairs[i].x), v = limited(pairs[i].y);
      if (p < turning_ / 2) {
        const float c = turns_[i].x, s = turns_[i].y;
        const float turned = simt::fma(u, c, -(v * s));
        v = simt::fma(u, s, v * c);
        u = turned;
      }
      if (p >= dim / 2) continue;
      out[at.first] = simt::to_f16(u);
      out[at.second] = simt::to_f16(v);
    }
  }

  // Whether all are finite.
  SIMT_DEV bool put_values(const float (&values)[kPairs * 2], float inverse,
                           uint16_t* place) const {
    int infinite = 0;
    SIMT_UNROLL
    for (int i = 0; i < kPairs * 2; ++i) {
      const int d = i * 32 + lane_;
      const uint16_t value = simt::to_f16(limited(a_.value_norm ? values[i] * inverse : values[i]));
      if (d >= a_.shape.head_dim) continue;
      infinite |= (value & 0x7c00) == 0x7c00 ? 1 : 0;
      place[value_element(a_.shape, slot_, d)] = value;
    }
    SIMT_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) infinite |= simt::shuffle_xor(infinite, mask);
    return infinite == 0;
  }

  SIMT_DEV float limited(float x) const { return a_.limit > 0.0f ? held(x, a_.limit) : x; }

  SIMT_DEV float head_inverse_rms(const float* x, int dim) const {
    float sum = 0.0f;
    for (int i = lane_; i < dim; i += 32) sum = simt::fma(x[i], x[i], sum);
    return inverse_root_mean(warp_sum(sum), dim, a_.eps);
  }

  const Place& a_;
  int row_, head_, slot_, lane_, turning_;
  float2 turns_[kPairs];  // cosines and sines of the lane's pairs
};

template <int kPairs>
__global__ void __launch_bounds__(kRowThreads) place_kernel(const __grid_constant__ Place args) {
  simt::release_dependents();
  const int row = static_cast<int>(blockIdx.y);
  const int head =
      static_cast<int>(blockIdx.x) * (kRowThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  // What a pass is told no launch writes.
  const bool is_there =
      row < args.pass.counts[kRowCount] && head < args.heads + args.shape.kv_heads;
  if (!is_there) return simt::wait_for_previous();
  PlaceWarp<kPairs> warp(args, row, head, args.pass.rows[row].slot);
  simt::wait_for_previous();
  warp.run();
}

// A block has one head of one layer, and makes all moves of it.
__global__ void __launch_bounds__(kRowThreads)
    move_entries_kernel(const __grid_constant__ MoveEntries a) {
  simt::release_dependents();
  simt::wait_for_previous();
  const int dim = a.shape.head_dim, kv_head = static_cast<int>(blockIdx.x);
  uint16_t* plane = a.planes[blockIdx.y];
  for (int i = 0; i < *a.count; ++i) {
    const int from = a.pairs[2 * i], to = a.pairs[2 * i + 1];
    if (a.shape.value_prefix > 0) {
      for (int d = static_cast<int>(threadIdx.x); d < dim; d += kRowThreads) {
        plane[static_cast<int64_t>(to) * dim + d] = plane[static_cast<int64_t>(from) * dim + d];
      }
      __syncthreads();
      continue;
    }
    const uint16_t* source = plane + head_offset(a.shape, from, kv_head);
    uint16_t* target = plane + head_offset(a.shape, to, kv_head);
    for (int d = static_cast<int>(threadIdx.x); d < dim; d += kRowThreads) {
      target[key_element(a.shape, to, d)] = source[key_element(a.shape, from, d)];
      target[value_element(a.shape, to, d)] = source[value_element(a.shape, from, d)];
    }
    __syncthreads();
  }
}

struct BestShared {
  float values[kRowThreads / 32];
  int32_t ids[kRowThreads / 32];
};

inline constexpr float kLargest = 3.402823466e38f;  // infinity counts as that

struct Candidate {
  float value;
  int32_t id;
};
// The larger, of equals the first; `a` if b is NaN.
SIMT_DEV Candidate better(Candidate a, Candidate b) {
  if (b.value > a.value || (b.value == a.value && b.id < a.id)) return b;
  return a;
}
SIMT_DEV Candidate best_of_block(BestShared& shared, Candidate best) {
  const int thread = static_cast<int>(threadIdx.x);
  SIMT_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const Candidate other = {simt::shuffle_xor(best.value, mask), simt::shuffle_xor(best.id, mask)};
    best = better(best, other);
  }
  __syncthreads();
  if (thread % 32 == 0) {
    shared.values[thread / 32] = best.value;
    shared.ids[thread / 32] = best.id;
  }
  __syncthreads();
  SIMT_UNROLL
  for (int i = 0; i < kRowThreads / 32; ++i) {
    best = better(best, {shared.values[i], shared.ids[i]});
  }
  return best;
}

SIMT_DEV int best_parts(int n) {
  const int parts = (n + kRowThreads - 1) / kRowThreads;
  return parts < kBestParts ? parts : kBestParts;
}

__global__ void __launch_bounds__(kRowThreads) best_kernel(const __grid_constant__ Best a) {
  auto& shared = simt::shared<BestShared>();
  simt::release_dependents();
  simt::wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.x);
  // As many blocks as there is something for.
  const int parts = best_parts(a.n);
  if (row >= *a.rows || part >= parts) return;
  const float* x = a.logits + static_cast<int64_t>(row) * a.stride;
  Candidate best = {-infinity(), 0x7fffffff};
  for (int n = part * kRowThreads + static_cast<int>(threadIdx.x); n < a.n;
       n += parts * kRowThreads) {
    best = better(best, {x[n] > kLargest ? kLargest : x[n], n});
  }
  best = best_of_block(shared, best);
  if (threadIdx.x == 0) {
    a.part_values[row * kBestParts + part] = best.value;
    a.part_ids[row * kBestParts + part] = best.id;
  }
  if (!simt::arrive_last(a.arrived + row, static_cast<unsigned>(parts))) return;
  best = {-infinity(), 0x7fffffff};
  for (int i = static_cast<int>(threadIdx.x); i < parts; i += kRowThreads) {
    best = better(best, {a.part_values[row * kBestParts + i], a.part_ids[row * kBestParts + i]});
  }
  best = best_of_block(shared, best);
  if (threadIdx.x == 0) {
    a.ids[row] = best.value == -infinity() ? -1 : best.id;
    a.values[row] = best.value;
  }
}

}  // namespace aerie::device
