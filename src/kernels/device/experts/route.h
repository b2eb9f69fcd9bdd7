// Which experts the rows of a pass use, and the order in which their products are made.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/warp_sums.h"

namespace aerie::device {

inline constexpr int kRouteThreads = kMostExperts;  // one for each

struct RouteShared {
  int32_t counts[kMostExperts];  // pairs of each expert
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

// A row by a warp: lane i < used ends with the row's i-th expert.
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
  static constexpr int kEach = kMostExperts / 32;

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

// Of one expert by its thread, which knows of the others how many pairs they have: where its pairs
// are, and its tiles.
class ExpertPairs {
 public:
  SIMT_DEV ExpertPairs(const Route& args, const RouteShared& shared, int pairs)
      : a_(args), pairs_(pairs), expert_(static_cast<int>(threadIdx.x)) {
    for (int e = 0; e < expert_; ++e) {
      first_ += shared.counts[e];
      tile_ += tiles_of(shared.counts[e]);
      used_ += shared.counts[e] > 0 ? 1 : 0;
    }
  }

  SIMT_DEV void run(int count) {
    for (int begin = 0; begin < count; begin += a_.tile_rows) {
      const int left = count - begin;
      a_.tiles[tile_++] = {expert_, first_ + begin, left < a_.tile_rows ? left : a_.tile_rows};
    }
    int place = first_;
    for (int pair = 0; pair < pairs_ && count > 0; ++pair) {
      if (a_.chosen[pair] != expert_) continue;
      a_.places[pair] = place;
      a_.pairs[place++] = pair / a_.used;
    }
    if (expert_ != a_.experts - 1) return;
    *a_.tile_count = tile_;
    *a_.used_experts = used_ + (count > 0 ? 1 : 0) + (a_.adds ? *a_.used_experts : 0);
  }

 private:
  SIMT_DEV int tiles_of(int pairs) const { return (pairs + a_.tile_rows - 1) / a_.tile_rows; }

  const Route& a_;
  int pairs_;
  int32_t expert_;
  int first_ = 0, tile_ = 0, used_ = 0;
};

// One block: sorting takes all rows.
__global__ void __launch_bounds__(kRouteThreads) route_kernel(const __grid_constant__ Route a) {
  auto& shared = simt::shared<RouteShared>();
  simt::release_dependents();
  simt::wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x), rows = *a.rows, pairs = rows * a.used;
  for (int row = thread / 32; row < rows; row += kRouteThreads / 32) RowExperts(a, row).run();
  __syncthreads();
  int count = 0;
  if (thread < a.experts) {
    SIMT_UNROLL_BY(8)
    for (int pair = 0; pair < pairs; ++pair) count += a.chosen[pair] == thread ? 1 : 0;
    shared.counts[thread] = count;
  }
  __syncthreads();
  if (thread < a.experts) ExpertPairs(a, shared, pairs).run(count);
}

}  // namespace aerie::device
