// Which experts the rows of a pass use, and the order in which their products are made.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/warp_sums.h"

namespace aerie::device {

inline constexpr int kRouteThreads = kMostExperts;
inline constexpr int kRouteRows = kRouteThreads / 32;  // of a block

struct RouteShared {
  union {
    float scores[kRouteRows][kMostExperts];    // by which experts of a row are compared
    int32_t counts[kRouteRows][kMostExperts];  // pairs of each expert in a warp's share
  };
  int32_t firsts[kMostExperts];                                    // each expert's first pair
  int32_t pairs[kRouteRows], tiles[kRouteRows], used[kRouteRows];  // of a warp's experts
};

// A logit as a number in the same order: 0 for what is no expert, or is no more, then NaN, then
// from -infinity up. 0 and -0 are equal.
SIMT_DEV uint32_t rank_of(float logit) {
  const uint32_t bits = simt::bits_of(logit + 0.0f);
  const uint32_t rank = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return logit == logit ? rank : 1;
}

// Of what lanes have kEach of each, lane, lane + 32, ..., that of the largest rank, of equals the
// first; it is no more from then on.
template <int kEach>
SIMT_DEV int32_t take_best(uint32_t (&ranks)[kEach]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t largest = 0;
  SIMT_UNROLL
  for (int i = 0; i < kEach; ++i) largest = ranks[i] > largest ? ranks[i] : largest;
  largest = simt::warp_largest(largest);
  uint32_t left = 0;  // the more, the earlier
  SIMT_UNROLL
  for (int i = kEach - 1; i >= 0; --i) {
    if (ranks[i] == largest) left = static_cast<uint32_t>(kMostExperts - (i * 32 + lane));
  }
  const int32_t best = kMostExperts - static_cast<int32_t>(simt::warp_largest(left));
  SIMT_UNROLL
  for (int i = 0; i < kEach; ++i) {
    if (i * 32 + lane == best) ranks[i] = 0;
  }
  return best;
}

SIMT_DEV float sigmoid(float x) {
  return simt::reciprocal(1.0f + simt::exp(-x));
}

// A row by a warp, whose lanes have kEach experts each: lane i < used ends with the row's i-th.
// kScored: of sigmoids or groups; else of softmax's without.
template <int kEach, bool kScored>
class RowExperts {
 public:
  // `scores`: the row's in shared memory, taken if kScored.
  SIMT_DEV RowExperts(const Route& args, int row, float* scores)
      : a_(args),
        row_(row),
        lane_(static_cast<int>(threadIdx.x) % 32),
        logits_(args.logits + static_cast<int64_t>(row) * args.stride),
        scores_(scores) {}

  SIMT_DEV void run() {
    load(logits_, x_);
    if constexpr (kScored) {
      find_scores();
      if (a_.groups > 1) leave_groups();
    } else {
      SIMT_UNROLL
      for (int i = 0; i < kEach; ++i) ranks_[i] = is_expert(i) ? rank_of(x_[i]) : 0;
    }
    int32_t own = 0;
    for (int i = 0; i < a_.used; ++i) {
      const int32_t expert = take_best(ranks_);
      if (lane_ == i) own = expert;
    }
    const float weight = kScored && a_.sigmoid ? sigmoid_weight(own) : softmax_weight(own);
    if (lane_ >= a_.used) return;
    const int at = row_ * a_.used + lane_;
    a_.chosen[at] = own;
    a_.weights[at] = weight;
  }

 private:
  using Numbers = float[kEach];  // of the lane's experts

  SIMT_DEV bool is_expert(int i) const { return i * 32 + lane_ < a_.experts; }
  // All together, before any is used.
  SIMT_DEV void load(const float* from, Numbers& numbers) const {
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) numbers[i] = is_expert(i) ? from[i * 32 + lane_] : 0.0f;
  }

  SIMT_DEV void find_scores() {
    const bool is_corrected = a_.sigmoid && a_.corrections != nullptr;
    Numbers corrections;
    if (is_corrected) load(a_.corrections, corrections);
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      float score = a_.sigmoid ? sigmoid(x_[i]) : x_[i];
      if (is_corrected) score += corrections[i];
      ranks_[i] = is_expert(i) ? rank_of(score) : 0;
      if (is_expert(i)) scores_[i * 32 + lane_] = score;
    }
  }

  // Experts of the groups that are not used are no more.
  SIMT_DEV void leave_groups() {
    __syncwarp();  // other lanes wrote scores
    const int size = a_.experts / a_.groups;
    uint32_t ranks[kMostExpertGroups / 32];
    SIMT_UNROLL
    for (int i = 0; i < kMostExpertGroups / 32; ++i) {
      const int group = i * 32 + lane_;
      ranks[i] = group < a_.groups ? rank_of(worth_of(group * size, size)) : 0;
    }
    uint32_t taken = 0;  // bit i: expert i * 32 + lane is of a group that is used
    for (int g = 0; g < a_.used_groups; ++g) {
      const int32_t group = take_best(ranks);
      SIMT_UNROLL
      for (int i = 0; i < kEach; ++i) {
        if ((i * 32 + lane_) / size == group) taken |= 1u << i;
      }
    }
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if ((taken >> i & 1) == 0) ranks_[i] = 0;
    }
  }

  SIMT_DEV float worth_of(int first, int size) const {
    float best = -infinity(), second = -infinity();
    // Lanes begin at different places, so that they read different banks.
    int at = lane_ % size;
    for (int i = 0; i < size; ++i) {
      const float score = scores_[first + at];
      at = at + 1 < size ? at + 1 : 0;
      if (score > best) {
        second = best;
        best = score;
      } else if (score > second) {
        second = score;
      }
    }
    return a_.by_best_two && size > 1 ? best + second : best;
  }

  // Where weights are shares over all, what is in no group that is used may be larger than what is
  // chosen.
  SIMT_DEV float largest_logit(int32_t own) const {
    const float first = logits_[simt::shuffle(own, 0)];
    if (!kScored || a_.normalized) return first;
    float largest = -infinity();
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if (is_expert(i)) largest = simt::max(x_[i], largest);
    }
    SIMT_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
      largest = simt::max(simt::shuffle_xor(largest, mask), largest);
    }
    return largest;
  }

  SIMT_DEV float softmax_weight(int32_t own) const {
    const float largest = largest_logit(own);
    const float power = simt::exp(logits_[own] - largest);
    float sum = 0.0f;
    if (a_.normalized) {
      for (int i = 0; i < a_.used; ++i) sum += simt::shuffle(power, i);
    } else {
      SIMT_UNROLL
      for (int i = 0; i < kEach; ++i) {
        const float of_expert = simt::exp(x_[i] - largest);
        sum += is_expert(i) ? of_expert : 0.0f;
      }
      sum = warp_sum(sum);
    }
    return simt::divide(power, sum) * a_.scale;
  }

  SIMT_DEV float sigmoid_weight(int32_t own) const {
    constexpr float kLeast = 1e-20f;  // so that sigmoids of 0 can be divided by their sum
    const float score = sigmoid(logits_[own]);
    float sum = 0.0f;
    for (int i = 0; i < a_.used; ++i) sum += simt::shuffle(score, i);
    return (a_.normalized ? simt::divide(score, sum + kLeast) : score) * a_.scale;
  }

  const Route& a_;
  int row_, lane_;
  const float* logits_;
  float* scores_;
  // Of experts lane, lane + 32, ...
  Numbers x_;
  uint32_t ranks_[kEach];
};

template <bool kScored>
SIMT_DEV void find_experts(const Route& a, int row, float* scores) {
  if (a.experts <= 64) return RowExperts<2, kScored>(a, row, scores).run();
  if (a.experts <= 128) return RowExperts<4, kScored>(a, row, scores).run();
  RowExperts<kMostExperts / 32, kScored>(a, row, scores).run();
}

// The sum of the lanes up to the caller's.
SIMT_DEV int32_t sum_up_to_lane(int32_t value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  SIMT_UNROLL
  for (int back = 1; back < 32; back *= 2) {
    const int32_t other = simt::shuffle(value, lane >= back ? lane - back : lane);
    if (lane >= back) value += other;
  }
  return value;
}

// Where pairs are, sorted, and their tiles, by one block. A warp has a share of the rows and takes
// one after the other: a row's experts are all different, so that its lanes count without minding
// each other. A thread has an expert.
class ExpertPairs {
 public:
  SIMT_DEV ExpertPairs(const Route& args, RouteShared& shared, int rows)
      : a_(args),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32),
        shares_(rows < kRouteRows ? rows : kRouteRows),
        begin_(warp_ < shares_ ? rows * warp_ / shares_ : 0),
        end_(warp_ < shares_ ? rows * (warp_ + 1) / shares_ : 0) {}

  SIMT_DEV void run() {
    int32_t* counts = shared_.counts[warp_];
    for (int e = lane_; e < a_.experts; e += 32) counts[e] = 0;
    __syncwarp();
    for_own([&](int, int32_t expert) { ++counts[expert]; });
    __syncthreads();
    sort_experts();
    __syncthreads();
    for_own([&](int row, int32_t expert) {
      const int place = shared_.firsts[expert] + counts[expert]++;
      a_.places[row * a_.used + lane_] = place;
      a_.pairs[place] = row;
    });
  }

 private:
  // use(row, expert) of the share's pairs, a row's by a lane each.
  template <typename Use>
  SIMT_DEV void for_own(const Use& use) const {
    constexpr int kAtOnce = 16;  // rows whose reads are under way together
    SIMT_UNROLL_BY(1)
    for (int row = begin_; row < end_; row += kAtOnce) {
      int32_t chosen[kAtOnce];
      SIMT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const bool is_there = row + i < end_ && lane_ < a_.used;
        chosen[i] = is_there ? a_.chosen[(row + i) * a_.used + lane_] : -1;
      }
      SIMT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (chosen[i] >= 0) use(row + i, chosen[i]);
        __syncwarp();
      }
    }
  }

  // Counts become those of the shares before; and where experts' pairs and tiles begin.
  SIMT_DEV void sort_experts() {
    int32_t count = 0;
    if (thread_ < a_.experts) {
      SIMT_UNROLL_BY(4)
      for (int s = 0; s < shares_; ++s) {
        const int32_t of_share = shared_.counts[s][thread_];
        shared_.counts[s][thread_] = count;
        count += of_share;
      }
    }
    const int32_t tiles = (count + a_.tile_rows - 1) / a_.tile_rows, used = count > 0 ? 1 : 0;
    int32_t end = sum_up_to_lane(count), end_tile = sum_up_to_lane(tiles);
    int32_t all_used = sum_up_to_lane(used);
    if (lane_ == 31) {
      shared_.pairs[warp_] = end;
      shared_.tiles[warp_] = end_tile;
      shared_.used[warp_] = all_used;
    }
    __syncthreads();
    if (thread_ >= a_.experts) return;
    for (int w = 0; w < warp_; ++w) {
      end += shared_.pairs[w];
      end_tile += shared_.tiles[w];
      all_used += shared_.used[w];
    }
    shared_.firsts[thread_] = end - count;
    write_tiles(end - count, end, end_tile - tiles);
    if (thread_ != a_.experts - 1) return;
    *a_.tile_count = end_tile;
    *a_.used_experts = all_used + (a_.adds ? *a_.used_experts : 0);
  }

  SIMT_DEV void write_tiles(int first, int end, int tile) const {
    for (; first < end; first += a_.tile_rows) {
      const int left = end - first;
      a_.tiles[tile++] = {thread_, first, left < a_.tile_rows ? left : a_.tile_rows};
    }
  }

  const Route& a_;
  RouteShared& shared_;
  int thread_, lane_, warp_;
  int shares_, begin_, end_;
};

inline bool is_scored(const Route& a) {
  return a.sigmoid || a.groups > 1;
}

// A warp finds a row's experts; the last block to be done with that sorts the pairs of all.
template <bool kScored>
__global__ void __launch_bounds__(kRouteThreads) route_kernel(const __grid_constant__ Route a) {
  auto& shared = simt::shared<RouteShared>();
  simt::release_dependents();
  const int rows = *a.rows, warp = static_cast<int>(threadIdx.x) / 32;
  if constexpr (kScored) {
    const int line = static_cast<int>(threadIdx.x) * 32;
    if (a.corrections != nullptr && line < a.experts) simt::fetch_line(a.corrections + line);
  }
  simt::wait_for_previous();
  const int row = static_cast<int>(blockIdx.x) * kRouteRows + warp;
  if (row < rows) find_experts<kScored>(a, row, shared.scores[warp]);
  if (gridDim.x == 1) {
    __syncthreads();
  } else if (!simt::arrive_last(a.arrived, gridDim.x)) {
    return;
  }
  ExpertPairs(a, shared, rows).run();
}

}  // namespace aerie::device
