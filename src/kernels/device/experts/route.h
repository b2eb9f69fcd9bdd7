// Which experts the rows of a pass use, and the order in which their products are made.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/device/activation.h"
#include "kernels/device/warp_sums.h"

namespace aerie::device {

inline constexpr int kRouteThreads = kMostExperts;
inline constexpr int kRouteRows = kRouteThreads / 32;  // of a block

struct RouteShared {
  int32_t counts[kRouteThreads];  // pairs of each expert in each group's share
  int32_t totals[kMostExperts];
};
// Of sigmoids and groups.
struct ScoredRouteShared : RouteShared {
  float scores[kRouteRows][kMostExperts];  // by which experts of a row are compared
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

// The most favoured of what lanes have kEach of each, lane, lane + 32, ...; it is no more from then
// on.
template <int kEach>
SIMT_DEV int32_t take_best(uint32_t (&ranks)[kEach]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Favour best = {0, kMostExperts};
  SIMT_UNROLL
  for (int i = 0; i < kEach; ++i) best = more_favoured(best, {ranks[i], i * 32 + lane});
  SIMT_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    best = more_favoured(
        best, {simt::shuffle_xor(best.rank, mask), simt::shuffle_xor(best.expert, mask)});
  }
  SIMT_UNROLL
  for (int i = 0; i < kEach; ++i) {
    if (i * 32 + lane == best.expert) ranks[i] = 0;
  }
  return best.expert;
}

SIMT_DEV float sigmoid(float x) {
  return simt::reciprocal(1.0f + simt::exp(-x));
}

// A row by a warp, whose lanes have kEach experts each: lane i < used ends with the row's i-th.
// kScored: of sigmoids or groups; else of softmax's without.
template <int kEach, bool kScored>
class RowExperts {
 public:
  // `scores`: the row's in shared memory; null unless kScored.
  SIMT_DEV RowExperts(const Route& args, int row, float* scores)
      : a_(args),
        row_(row),
        lane_(static_cast<int>(threadIdx.x) % 32),
        logits_(args.logits + static_cast<int64_t>(row) * args.stride),
        scores_(scores) {}

  SIMT_DEV void run() {
    SIMT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int expert = i * 32 + lane_;
      ranks_[i] = 0;
      if (expert >= a_.experts) continue;
      if constexpr (kScored) {
        scores_[expert] = score_of(expert);
        ranks_[i] = rank_of(scores_[expert]);
      } else {
        ranks_[i] = rank_of(logits_[expert]);
      }
    }
    if constexpr (kScored) {
      if (a_.groups > 1) leave_groups();
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
  SIMT_DEV float score_of(int expert) const {
    if (!a_.sigmoid) return logits_[expert];
    const float score = sigmoid(logits_[expert]);
    return a_.corrections != nullptr ? score + a_.corrections[expert] : score;
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
    for (int e = lane_; e < a_.experts; e += 32) largest = simt::max(logits_[e], largest);
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
      for (int e = lane_; e < a_.experts; e += 32) sum += simt::exp(logits_[e] - largest);
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
  uint32_t ranks_[kEach];  // of experts lane, lane + 32, ...
};

template <bool kScored>
SIMT_DEV void find_experts(const Route& a, int row, float* scores) {
  if (a.experts <= 64) return RowExperts<2, kScored>(a, row, scores).run();
  if (a.experts <= 128) return RowExperts<4, kScored>(a, row, scores).run();
  RowExperts<kMostExperts / 32, kScored>(a, row, scores).run();
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

inline bool is_scored(const Route& a) {
  return a.sigmoid || a.groups > 1;
}

template <bool kScored>
using SharedOfRoute = std::conditional_t<kScored, ScoredRouteShared, RouteShared>;

// A warp finds a row's experts; the last block to be done with that sorts the pairs of all.
template <bool kScored>
__global__ void __launch_bounds__(kRouteThreads) route_kernel(const __grid_constant__ Route a) {
  auto& shared = simt::shared<SharedOfRoute<kScored>>();
  simt::release_dependents();
  simt::wait_for_previous();
  const int rows = *a.rows, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = static_cast<int>(blockIdx.x) * kRouteRows + warp;
  if (row < rows) {
    if constexpr (kScored) {
      find_experts<true>(a, row, shared.scores[warp]);
    } else {
      find_experts<false>(a, row, nullptr);
    }
  }
  if (simt::arrive_last(a.arrived, gridDim.x)) ExpertPairs(a, shared, rows * a.used).run();
}

}  // namespace aerie::device
