// Attention of a pass over a paged cache. A block takes the query heads of some rows of a tile that
// read one head of keys and values, and one chunk of positions; parts of several chunks are put
// together as attention_parts.h says.
//
// Keys and values are the left factors of products, columns are query heads of rows: scores are
// [positions][columns], what comes out is [dimensions][columns], and a column's sums do not depend
// on what else there is: shares of positions that a row does not see are 0, and values are finite
// (rows.h). Positions that lie elsewhere for each row (ancestors in a tree) are taken row by row.
//
// What a pass is told and where its pages lie no launch writes, so that a block finds out about
// these, and has its keys and values brought near, while the launch before it still runs.
#pragma once

#include <cstdint>

#include "kernels/device/attention/attention_parts.h"
#include "kernels/device/attention/attention_scores.h"
#include "kernels/device/attention/attention_values.h"
#include "kernels/device/attention/attention_view.h"

namespace aerie::device {

template <int kTiles, int kHeadDim>
class AttentionBlock {
 public:
  using View = AttentionView<kTiles, kHeadDim>;
  using Values = AttentionValues<kTiles, kHeadDim>;

  SIMT_DEV explicit AttentionBlock(const View& view) : v_(view), scores_(view), values_(view) {}

  SIMT_DEV void run() {
    typename AttentionScores<kTiles, kHeadDim>::Keys keys;
    if constexpr (View::kKnown) scores_.load_keys(keys);
    scores_.load_queries();
    __syncthreads();
    typename View::Scores scores;
    scores_.find(keys, scores);
    scores_.put_largest(scores);
    typename Values::Values values;
    const int first = v_.warp * 16;
    if constexpr (View::kKnown) values_.template load<0, Values::kAhead>(first, values);
    __syncthreads();
    scores_.put_shares(scores);
    if constexpr (View::kKnown) {
      values_.template load<Values::kAhead, Values::kHeld>(first, values);
    }
    __syncthreads();
    for (int d = first; d < v_.head_dim(); d += kAttentionWarps * 16) {
      if constexpr (kHeadDim > kAttentionWarps * 16) {
        if (d > first) values_.template load<0, Values::kHeld>(d, values);
      }
      float sums[kTiles][4];
      values_.add(d, values, sums);
      if (v_.chunks == 1) {
        write(d, sums);
      } else {
        keep(d, sums);
      }
    }
    if (v_.chunks > 1) finish_chunk();
  }

 private:
  SIMT_DEV void write(int d, const float (&sums)[kTiles][4]) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 2; ++i) {
      const int column = v_.column_of(i / 2) + i % 2;
      if (column >= v_.columns) continue;
      float factor = 1.0f, total = scores_.sum_of(column);
      if (v_.args.sinks != nullptr) {
        const float largest = scores_.largest_of(column), sink = v_.args.sinks[v_.head_of(column)];
        const float both = sink > largest ? sink : largest;
        factor = simt::exp(largest - both);
        total = simt::fma(factor, total, simt::exp(sink - both));
      }
      uint16_t* out = out_of(column) + d + v_.lane / 4;
      out[0] = simt::to_bf16(simt::divide(factor * sums[i / 2][i % 2], total));
      out[8] = simt::to_bf16(simt::divide(factor * sums[i / 2][i % 2 + 2], total));
    }
  }

  SIMT_DEV uint16_t* out_of(int column) const {
    return v_.args.out +
           static_cast<int64_t>(v_.tile.first + v_.row_of(column)) * v_.args.out_stride +
           v_.head_of(column) * v_.head_dim();
  }

  SIMT_DEV Parts parts_of_column(int column) const {
    const int64_t row = v_.tile.first + v_.row_of(column) - v_.slice_first;
    const int64_t first =
        (row * v_.args.heads + v_.head_of(column)) * parts_of(v_.args.most_chunks);
    return {v_.args.partials + first * part_floats(v_.head_dim()), v_.head_dim()};
  }

  SIMT_DEV void keep(int d, const float (&sums)[kTiles][4]) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 2; ++i) {
      const int column = v_.column_of(i / 2) + i % 2;
      if (column >= v_.columns) continue;
      float* part = parts_of_column(column).part(v_.in_tile) + d + v_.lane / 4;
      part[0] = sums[i / 2][i % 2];
      part[8] = sums[i / 2][i % 2 + 2];
    }
  }

  SIMT_DEV void finish_chunk() const {
    if (v_.thread < v_.columns) {
      float* part = parts_of_column(v_.thread).part(v_.in_tile) + v_.head_dim();
      part[0] = scores_.largest_of(v_.thread);
      part[1] = scores_.sum_of(v_.thread);
    }
    const int first = v_.first_chunk, end = first + v_.chunks;
    const int first_group = first / kGroupChunks, group = (first + v_.in_tile) / kGroupChunks;
    const int groups = (end - 1) / kGroupChunks + 1 - first_group, at = group - first_group;
    const int from = group * kGroupChunks > first ? group * kGroupChunks : first;
    const int to = (group + 1) * kGroupChunks < end ? (group + 1) * kGroupChunks : end;
    const int most = v_.args.most_chunks;
    unsigned* counters = v_.args.arrived + (static_cast<int64_t>(v_.tile.first - v_.slice_first) *
                                                v_.args.shape.kv_heads +
                                            v_.kv_head) *
                                               counters_of(most);
    // The group's chunks, then, unless it is the only one, all groups.
    int part = from - first, count = to - from;
    SIMT_UNROLL_BY(1)
    for (int stage = groups > 1 ? 0 : 1; stage < 2; ++stage) {
      unsigned* counter = part == most ? counters : counters + 1 + at;
      if (!simt::arrive_last(counter, static_cast<unsigned>(count))) return;
      merge(part, count, stage == 0 ? most + at : -1);
      part = most;
      count = groups;
    }
  }

  // To part `to`; negative: to what comes out.
  SIMT_DEV void merge(int first, int count, int to) const {
    SIMT_UNROLL_BY(1)
    for (int c = v_.warp; c < v_.columns; c += kAttentionWarps) {
      const float sink = v_.args.sinks != nullptr ? v_.args.sinks[v_.head_of(c)] : -infinity();
      MergeWarp(parts_of_column(c), first, count).run(to, sink, out_of(c));
    }
  }

  const View& v_;
  AttentionScores<kTiles, kHeadDim> scores_;
  Values values_;
};

template <int kTiles, int kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads, kHeadDim > 0 && kHeadDim <= 128 ? 2 : 1)
    attention_kernel(const __grid_constant__ AttendLaunch launch) {
  auto& shared = simt::shared<AttentionShared<kTiles, kHeadDim>>();
  simt::release_dependents();
  const AttentionPiece piece(launch);
  if (!piece.is_there) return simt::wait_for_previous();
  AttentionView<kTiles, kHeadDim> view(launch.a, shared, piece);
  view.prepare();
  simt::wait_for_previous();
  AttentionBlock<kTiles, kHeadDim>(view).run();
}

}  // namespace aerie::device
