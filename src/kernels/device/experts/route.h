// Which experts the rows of a pass use, and the order in which their products are made.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/warp_sums.h"

namespace aerie::device {

inline constexpr int kRouteThreads = kMostExperts;
inline constexpr int kRouteRows = kRouteThreads / 32;  // of a block

struct RouteShared {
  int32_t counts[kRouteThreads];  // pairs of each expert in each group's share
  int32_t totals[kMostExperts];
};

// An expert and its logit as a number in the same order: 0 for what is no expert, or is no more,
// then NaN, then from -infinity up. 0 and -0 are equal.
struct Favour {
  uint32_t rank;
  int32_t expert;
};
SIMT_DEV uint32_t rank_of(float logit) {
  if (logit != logit) return 1;
  const uint32_t bits = simt::bits_of(logit + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
SIMT_DEV Favour more_favoured(Favour a, Favour b) {
  return b.rank > a.rank || (b.rank == a.rank && b.expert < a.expert) ? b : a;
}

// A row by a warp, whose lanes have kEach experts each: lane i < used ends with the row's i-th.
template <int kEach>
class RowExperts {
 public:
  SIMT_DEV RowExperts(const Route& args, int row)
      : a_(args),
        row_(row),
        lane_(static_cast<int>(threadIdx.x) % 32),
        logits_(args.logits + static_cast<int64_t>(row) * args.stride) {}

  SIMT_DEV void run() {
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int expert = i * 32 + lane_;
      ranks_[i] = expert < a_.experts ? rank_of(logits_[expert]) : 0;
    }
    int32_t own = 0;
    for (int i = 0; i < a_.used; ++i) {
      const int32_t expert = take();
      if (lane_ == i) own = expert;
    }
    weigh(own);
  }

 private:
  // The most favoured, which is no more from then on.
  SIMT_DEV int32_t take() {
    Favour best = {0, kMostExperts};
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) best = more_favoured(best, {ranks_[i], i * 32 + lane_});
    SIMT_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
      best = more_favoured(
          best, {simt::shuffle_xor(best.rank, mask), simt::shuffle_xor(best.expert, mask)});
    }
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if (i * 32 + lane_ == best.expert) ranks_[i] = 0;
    }
    return best.expert;
  }

  SIMT_DEV void weigh(int32_t own) const {
    const float largest = logits_[simt::shuffle(own, 0)];
    const float power = simt::exp(logits_[own] - largest);
    float sum = 0.0f;
    if (a_.normalized) {
      for (int i = 0; i < a_.used; ++i) sum += simt::shuffle(power, i);
    } else {
      for (int e = lane_; e < a_.experts; e += 32) sum += simt::exp(logits_[e] - largest);
      sum = warp_sum(sum);
    }
    if (lane_ >= a_.used) return;
    const int at = row_ * a_.used + lane_;
    a_.chosen[at] = own;
    a_.weights[at] = simt::divide(power, sum) * a_.scale;
  }

  const Route& a_;
  int row_, lane_;
  const float* logits_;
  uint32_t ranks_[kEach];  // of experts lane, lane + 32, ...
};

SIMT_DEV void find_experts(const Route& a, int row) {
  if (a.experts <= 64) return RowExperts<2>(a, row).run();
  if (a.experts <= 128) return RowExperts<4>(a, row).run();
  RowExperts<kMostExperts / 32>(a, row).run();
}

// Where pairs are, sorted, and their tiles. There are as many groups of threads, one for each
// expert, as a block has room for: each looks through a share of the pairs.
class ExpertPairs {
 public:
  SIMT_DEV ExpertPairs(const Route& args, RouteShared& shared, int pairs)
      : a_(args),
        shared_(shared),
        groups_(kRouteThreads / args.experts),
        group_(static_cast<int>(threadIdx.x) / args.experts),
        expert_(static_cast<int>(threadIdx.x) % args.experts),
        begin_(group_ < groups_ ? pairs * group_ / groups_ : 0),
        end_(group_ < groups_ ? pairs * (group_ + 1) / groups_ : 0) {}

  SIMT_DEV void run() {
    int count = 0;
    for_own([&](int) { ++count; });
    shared_.counts[threadIdx.x] = count;
    __syncthreads();
    if (group_ == 0) shared_.totals[expert_] = before(groups_);
    __syncthreads();
    if (group_ >= groups_) return;
    int first = 0, tile = 0, used = 0;
    for (int e = 0; e < expert_; ++e) {
      const int total = shared_.totals[e];
      first += total;
      tile += (total + a_.tile_rows - 1) / a_.tile_rows;
      used += total > 0 ? 1 : 0;
    }
    if (group_ == 0) write_tiles(first, tile, used);
    int place = first + before(group_);
    for_own([&](int pair) {
      a_.places[pair] = place;
      a_.pairs[place++] = pair / a_.used;
    });
  }

 private:
  // use(pair) of the share's pairs of the expert, in order.
  template <typename Use>
  SIMT_DEV void for_own(const Use& use) const {
    constexpr int kAtOnce = 8;  // reads that are under way together
    SIMT_UNROLL_BY(1)
    for (int pair = begin_; pair < end_; pair += kAtOnce) {
      int32_t chosen[kAtOnce];
      SIMT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) chosen[i] = pair + i < end_ ? a_.chosen[pair + i] : -1;
      SIMT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (chosen[i] == expert_) use(pair + i);
      }
    }
  }

  // The expert's pairs in the shares of the first groups.
  SIMT_DEV int before(int groups) const {
    int sum = 0;
    for (int g = 0; g < groups; ++g) sum += shared_.counts[g * a_.experts + expert_];
    return sum;
  }

  SIMT_DEV void write_tiles(int first, int tile, int used) const {
    const int count = shared_.totals[expert_];
    for (int begin = 0; begin < count; begin += a_.tile_rows) {
      const int left = count - begin;
      a_.tiles[tile++] = {expert_, first + begin, left < a_.tile_rows ? left : a_.tile_rows};
    }
    if (expert_ != a_.experts - 1) return;
    *a_.tile_count = tile;
    *a_.used_experts = used + (count > 0 ? 1 : 0) + (a_.adds ? *a_.used_experts : 0);
  }

  const Route& a_;
  RouteShared& shared_;
  int groups_, group_;
  int32_t expert_;
  int begin_, end_;
};

// A warp finds a row's experts; the last block to be done with that sorts the pairs of all.
__global__ void __launch_bounds__(kRouteThreads) route_kernel(const __grid_constant__ Route a) {
  auto& shared = simt::shared<RouteShared>();
  simt::release_dependents();
  simt::wait_for_previous();
  const int rows = *a.rows;
  const int row = static_cast<int>(blockIdx.x) * kRouteRows + static_cast<int>(threadIdx.x) / 32;
  if (row < rows) find_experts(a, row);
  if (simt::arrive_last(a.arrived, gridDim.x)) ExpertPairs(a, shared, rows * a.used).run();
}

}  // namespace aerie::device
