// Products of up to kOrderedRows rows where groups of four warps multiply at once (Hopper). A block
// has 4 panels of outputs, or 8, and four groups. Groups of the same outputs take the segments of k
// in turn, as many at a time as there are such groups, and then add up their sums, in the order of
// the segments. Otherwise as group_product.h.
#pragma once

#include <cstdint>

#include "kernels/device/epilogue.h"
#include "kernels/device/groups/group_weights.h"
#include "kernels/device/groups/ordered_rows.h"
#include "kernels/device/tile_outputs.h"

namespace aerie::device {

template <MatrixKind kKind, int kTilesOfOutputs>
struct GroupFewShape {
  using G = GroupStage<kKind>;
  static constexpr int kThreads = 512, kRows = kOrderedRows;
  static constexpr int kWarps = kThreads / 32, kGroups = kThreads / 128;
  static constexpr int kTiles = kTilesOfOutputs;   // of 64 outputs
  static constexpr int kLanes = kGroups / kTiles;  // segments at a time
  static constexpr int kWarpsOfLane = kTiles * 4;
  static constexpr int kBlockPanels = kTiles * 4;
  static constexpr int kOutputs = kBlockPanels * kPanel;
  static constexpr int kPitch = kOutputs + 4;
  static constexpr int kOwn = 8 / kLanes;  // of a group's 8 times 8 rows, those that it adds up
  static constexpr int kRowDepth = 3;
  static constexpr int kSumBytes = kGroups * 8 * 128 * 16;
  static constexpr int kMostDepth =
      (kGroupMemory - 8 * 1024 - kSumBytes - kLanes * kRowDepth * kOrderedRowBytes) /
      (kWarps * G::kBytes);
  static constexpr int kDepth = kMostDepth > 5 ? 5 : kMostDepth;

  struct Loop {
    unsigned char rows[kLanes][kRowDepth][kOrderedRowBytes];
    unsigned char weights[kWarps][kDepth][G::kBytes];
    float4 segments[kGroups][8][128];
  };
  struct Shared {
    union {
      Loop loop;
      float sums[kRows][kPitch];
    };
    float inverse[kRows];
    float row_sums[G::kHasMinima ? kLanes : 1][kRowDepth][2][kOrderedRows];
    simt::Barrier full[kLanes][kRowDepth], empty[kLanes][kRowDepth];
  };

  SIMT_DEV static void begin(Shared& shared) {
    if (threadIdx.x == 0) {
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int i = 0; i < kRowDepth; ++i) {
          simt::barrier_begin(shared.full[lane][i], 1);
          simt::barrier_begin(shared.empty[lane][i], kWarpsOfLane);
        }
      }
      simt::barriers_begun();
    }
    __syncthreads();
  }
};

// The steps of the segments of a lane, one after the other.
template <int kLanes>
struct GroupSteps {
  int steps;
  int segment, step, end;

  SIMT_DEV GroupSteps(int all, int lane)
      : steps(all),
        segment(lane),
        step(segment_begin(all, lane)),
        end(segment_begin(all, lane + 1)) {
    find();
  }
  SIMT_DEV bool is_there() const { return step < end; }
  SIMT_DEV void next() {
    ++step;
    find();
  }

 private:
  SIMT_DEV void find() {
    while (step >= end && segment + kLanes < kSegments) {
      segment += kLanes;
      step = segment_begin(steps, segment);
      end = segment_begin(steps, segment + 1);
    }
  }
};

template <MatrixKind kKind, int kTilesOfOutputs>
class GroupFewWarp {
 public:
  using S = GroupFewShape<kKind, kTilesOfOutputs>;
  using G = GroupStage<kKind>;
  using Shared = typename S::Shared;
  using Unit = GroupUnit<kKind>;
  using Steps = GroupSteps<S::kLanes>;
  using Totals = float4[S::kOwn];
  using Fragments = uint32_t[G::kFragments][4];

  SIMT_DEV GroupFewWarp(const ProductArgs& args, Shared& shared)
      : args_(args),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x % 128)),
        group_(static_cast<int>(threadIdx.x / 128)),
        lane_(group_ / S::kTiles),
        tile_(group_ % S::kTiles),
        weights_(args, static_cast<int>(blockIdx.y) * S::kBlockPanels + tile_ * 4 + thread_ / 32,
                 shared.loop.weights[threadIdx.x / 32]),
        coming_weights_(args.steps, lane_),
        coming_rows_(args.steps, lane_) {}

  // The sums, to shared memory.
  SIMT_DEV void run() {
    SIMT_UNROLL_BY(1)
    for (int i = 0; i < S::kDepth; ++i) {
      weights_.ask(coming_weights_.is_there(), coming_weights_.step, i);
      coming_weights_.next();
    }
    // Weights are there before the kernel that makes the activations is done.
    simt::wait_for_previous();
    if (asks_for_rows()) {
      SIMT_UNROLL_BY(1)
      for (int i = 0; i < S::kRowDepth; ++i) ask_for_rows(i);
    }
    find_norms();
    Totals totals;
    SIMT_UNROLL
    for (int i = 0; i < S::kOwn; ++i) totals[i] = {0.0f, 0.0f, 0.0f, 0.0f};
    rows_ = simt::operand_of(shared_.loop.rows[lane_][0]);
    weights_.first();
    if constexpr (Unpack<kKind>::kScaleBytes > 0) {
      add_scaled(totals);
    } else {
      add_plain(totals);
    }
    simt::copy_wait<0>();
    __syncthreads();
    const int lane = thread_ % 32, output = (tile_ * 4 + thread_ / 32) * kPanel + lane / 4;
    SIMT_UNROLL
    for (int i = 0; i < S::kOwn; ++i) {
      const int row = (lane_ * S::kOwn + i) * 8 + lane % 4 * 2;
      shared_.sums[row][output] = totals[i].x;
      shared_.sums[row + 1][output] = totals[i].y;
      shared_.sums[row][output + 8] = totals[i].z;
      shared_.sums[row + 1][output + 8] = totals[i].w;
    }
    __syncthreads();
  }

 private:
  static constexpr int kPieces = kOrderedRowBytes / 16;  // of a stage, as operands count them

  SIMT_DEV void find_norms() {
    if (args_.norm.squares == nullptr || threadIdx.x >= S::kRows) return;
    shared_.inverse[threadIdx.x] = ordered_norms(args_)[threadIdx.x];
  }

  // One thread of the groups that share rows asks for them.
  SIMT_DEV bool asks_for_rows() const { return thread_ == 0 && tile_ == 0; }
  SIMT_DEV void ask_for_rows(int slot) {
    using O = Ordered<kKind>;
    if (!coming_rows_.is_there()) return;
    const unsigned char* from = O::block(args_, 0, coming_rows_.step);
    simt::Barrier& full = shared_.full[lane_][slot];
    simt::barrier_expect(full, O::kBytes);
    simt::copy_block(shared_.loop.rows[lane_][slot], from, kOrderedRowBytes, full);
    if constexpr (O::kHasSums) {
      simt::copy_block(shared_.row_sums[lane_][slot], from + kOrderedRowBytes, kOrderedSumBytes,
                       full);
    }
    coming_rows_.next();
  }

  // The rows of the next step are there. Those that take the place of the last step's are asked for
  // as soon as all warps have multiplied by these.
  SIMT_DEV void wait_for_rows() {
    if (asks_for_rows() && !is_first_ && coming_rows_.is_there()) {
      const int before = slot_ == 0 ? S::kRowDepth - 1 : slot_ - 1;
      simt::barrier_wait(shared_.empty[lane_][before], slot_ == 0 ? phase_ ^ 1 : phase_);
      ask_for_rows(before);
    }
    is_first_ = false;
    __syncwarp();
    simt::barrier_wait(shared_.full[lane_][slot_], phase_);
  }

  // The warp is done with the rows of the step.
  SIMT_DEV void free_rows() {
    if constexpr (G::kHasMinima) __syncwarp();
    if (thread_ % 32 == 0) simt::barrier_arrive(shared_.empty[lane_][slot_]);
    if (++slot_ == S::kRowDepth) slot_ = 0, phase_ ^= 1;
  }

  SIMT_DEV void next_weights() {
    weights_.next(coming_weights_.is_there(), coming_weights_.step);
    coming_weights_.next();
  }

  // The segment's sums; each group adds up a part of those of its outputs.
  SIMT_DEV void add_segments(const GroupSums& sums, Totals& totals) {
    SIMT_UNROLL
    for (int i = 0; i < 8; ++i) {
      shared_.loop.segments[group_][i][thread_] = {sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
    }
    __syncthreads();
    SIMT_UNROLL
    for (int lane = 0; lane < S::kLanes; ++lane) {
      SIMT_UNROLL
      for (int i = 0; i < S::kOwn; ++i) {
        const float4 s =
            shared_.loop.segments[lane * S::kTiles + tile_][lane_ * S::kOwn + i][thread_];
        totals[i].x += s.x, totals[i].y += s.y, totals[i].z += s.z, totals[i].w += s.w;
      }
    }
    __syncthreads();
  }

  SIMT_DEV void add_scaled(Totals& totals) {
    Unit units[2];
    weights_.unpack(0, units[0]);
    SIMT_UNROLL_BY(1)
    for (int segment = lane_; segment < kSegments; segment += S::kLanes) {
      GroupSums sums;
      clear(sums);
      const int count =
          segment_begin(args_.steps, segment + 1) - segment_begin(args_.steps, segment);
      SIMT_UNROLL_BY(1)
      for (int i = 0; i < count; ++i) add_step(units, sums);
      add_segments(sums, totals);
    }
  }

  // The other groups multiply while this one adds, and the other way round.
  SIMT_DEV void add_step(Unit (&units)[2], GroupSums& sums) {
    wait_for_rows();
    const uint64_t rows = rows_ + slot_ * kPieces;
    SIMT_UNROLL
    for (int i = 0; i < G::kUnits; ++i) {
      GroupSums d;
      units[i % 2].multiply(rows + i * G::kUnit * 2, d);
      if (i == G::kUnits - 1) next_weights();
      weights_.unpack((i + 1) % G::kUnits, units[1 - i % 2]);
      simt::group_wait<0>(d);
      units[i % 2].keep();
      const float* row_sums = G::kHasMinima ? shared_.row_sums[lane_][slot_][i] : nullptr;
      units[i % 2].apply(d, row_sums, thread_ % 32, sums);
    }
    free_rows();
  }

  SIMT_DEV void add_plain(Totals& totals) {
    SIMT_UNROLL_BY(1)
    for (int segment = lane_; segment < kSegments; segment += S::kLanes) {
      GroupSums sums;
      clear(sums);
      const int count =
          segment_begin(args_.steps, segment + 1) - segment_begin(args_.steps, segment);
      SIMT_UNROLL_BY(1)
      for (int i = 0; i < count; ++i) {
        Fragments weights;
        weights_.unpack(weights);
        wait_for_rows();
        const uint64_t rows = rows_ + slot_ * kPieces;
        simt::group_fence();
        SIMT_UNROLL
        for (int f = 0; f < G::kFragments; ++f) {
          simt::group_mma_bf16(sums, weights[f], rows + f / Unpack<kKind>::kTerms * 2,
                               i > 0 || f > 0);
        }
        simt::group_commit();
        simt::group_wait<0>(sums);
        SIMT_UNROLL
        for (int f = 0; f < G::kFragments; ++f) simt::group_keep(weights[f]);
        free_rows();
        next_weights();
      }
      add_segments(sums, totals);
    }
  }

  const ProductArgs& args_;
  Shared& shared_;
  int thread_, group_, lane_, tile_;
  GroupWeights<kKind, S::kDepth> weights_;
  Steps coming_weights_, coming_rows_;
  uint64_t rows_ = 0;
  int slot_ = 0, phase_ = 0;  // of the rows
  bool is_first_ = true;
};

template <MatrixKind kKind, int kTilesOfOutputs>
__global__ void __launch_bounds__(512, 1)
    group_few_product_kernel(const __grid_constant__ ProductArgs args) {
  if constexpr (simt::kHasGroups) {
    using S = GroupFewShape<kKind, kTilesOfOutputs>;
    auto& shared = simt::shared<typename S::Shared>();
    simt::release_dependents();
    S::begin(shared);
    GroupFewWarp<kKind, kTilesOfOutputs> warp(args, shared);
    warp.run();
    TileOutputs<S>(args, shared).write();
  }
}

}  // namespace aerie::device
