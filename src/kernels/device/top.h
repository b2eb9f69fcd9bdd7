// The best few of a row of logits, for drafts, and rows that go on with the best one.
#pragma once

#include <cstdint>

#include "kernels/device/rows.h"

namespace aerie::device {

struct TopShared {
  BestShared best;
  RowShared sums;
};

// Numbers `step` apart from `first` on: of a row, or with their ids beside them.
struct Numbers {
  const float* values;
  const int32_t* ids;  // null: they are counted
  int first, step, end;

  // Infinity counts as the largest float.
  SIMT_DEV Candidate at(int i) const {
    const float value = values[i];
    return {value > kLargest ? kLargest : value, ids != nullptr ? ids[i] : i};
  }
  // The best of those that come after `last` in the order, NaN left out.
  SIMT_DEV Candidate best_after(Candidate last) const {
    Candidate best = {-infinity(), kNone};
    SIMT_UNROLL_BY(4)
    for (int i = first; i < end; i += step) {
      const Candidate c = at(i);
      if (c.value < last.value || (c.value == last.value && c.id > last.id)) best = better(best, c);
    }
    return best;
  }

  static constexpr int32_t kNone = 0x7fffffff;
};

// The k best of a block's numbers, one after the other: `take(rank, candidate)` by all threads. A
// thread looks through its own again when the best was one of them.
template <typename Take>
SIMT_DEV void take_best(BestShared& shared, const Numbers& own, int k, const Take& take) {
  Candidate mine = own.best_after({infinity(), -1});
  for (int rank = 0; rank < k; ++rank) {
    const Candidate best = best_of_block(shared, mine);
    take(rank, best);
    if (best.id == mine.id && best.id != Numbers::kNone) mine = own.best_after(best);
  }
}

// The sum of e^(x - largest) of a block's numbers, to all its threads.
SIMT_DEV float sum_of_powers(RowShared& shared, const Numbers& own, float largest) {
  float sum = 0.0f;
  if (largest > -infinity()) {
    SIMT_UNROLL_BY(4)
    for (int i = own.first; i < own.end; i += own.step) {
      sum += simt::exp(own.at(i).value - largest);
    }
  }
  return block_sum(shared, sum);
}

// Where a row's parts meet, and what comes of them.
class TopRow {
 public:
  SIMT_DEV TopRow(const Top& args, int row, int of_row)
      : a_(args), index_(row * args.each + of_row) {
    out_ = args.out + row * args.out_stride + of_row * (2 * args.k + 1);
  }

  SIMT_DEV void run_part(TopShared& shared, const float* x, int part, int parts) const {
    const int thread = static_cast<int>(threadIdx.x);
    const Numbers own = {x, nullptr, part * kRowThreads + thread, parts * kRowThreads, a_.n};
    float* values = a_.part_values + (index_ * kBestParts + part) * a_.k;
    int32_t* ids = a_.part_ids + (index_ * kBestParts + part) * a_.k;
    float largest = 0.0f;
    take_best(shared.best, own, a_.k, [&](int rank, Candidate c) {
      if (rank == 0) largest = c.value;
      if (thread == 0) values[rank] = c.value, ids[rank] = c.id;
    });
    const float sum = sum_of_powers(shared.sums, own, largest);
    if (thread == 0) a_.part_sums[index_ * kBestParts + part] = sum;
  }

  SIMT_DEV bool is_last(int parts) const {
    return simt::arrive_last(a_.arrived + index_, static_cast<unsigned>(parts));
  }

  SIMT_DEV void merge(TopShared& shared, int parts) const {
    const int thread = static_cast<int>(threadIdx.x);
    const float* values = a_.part_values + index_ * kBestParts * a_.k;
    const Numbers own = {values, a_.part_ids + index_ * kBestParts * a_.k, thread, kRowThreads,
                         parts * a_.k};
    float largest = 0.0f;
    take_best(shared.best, own, a_.k, [&](int rank, Candidate c) {
      if (rank == 0) largest = c.value;
      if (thread != 0) return;
      // Where all others are no numbers, some that are there.
      out_[rank] = simt::float_of(static_cast<uint32_t>(c.id == Numbers::kNone ? rank : c.id));
      out_[a_.k + rank] = c.value;
    });
    float sum = 0.0f;
    if (thread < parts && largest > -infinity()) {
      const float of_part = a_.part_sums[index_ * kBestParts + thread];
      // Of a part of which nothing is above -infinity it is 0.
      sum = of_part * simt::exp(values[thread * a_.k] - largest);
    }
    sum = block_sum(shared.sums, sum);
    if (thread == 0) out_[2 * a_.k] = sum;
  }

 private:
  const Top& a_;
  int64_t index_;  // among all rows of logits
  float* out_;
};

__global__ void __launch_bounds__(kRowThreads) top_kernel(const __grid_constant__ Top a) {
  auto& shared = simt::shared<TopShared>();
  simt::release_dependents();
  simt::wait_for_previous();
  const int part = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y) / a.each;
  const int of_row = static_cast<int>(blockIdx.y) % a.each, parts = best_parts(a.n);
  if (row >= *a.rows || part >= parts) return;
  const float* x = a.logits + row * a.stride + of_row * a.apart;
  const TopRow top(a, row, of_row);
  top.run_part(shared, x, part, parts);
  if (top.is_last(parts)) top.merge(shared, parts);
}

__global__ void __launch_bounds__(kRowThreads)
    next_rows_kernel(const __grid_constant__ NextRows a) {
  const int row = row_of_block(a.rows);
  if (row < 0) return;
  if (a.behind[row] < 0) return;
  const int64_t at = a.behind[row] * a.found_stride;
  float* out = a.out + row * a.out_stride;
  const float* handed = a.handed + at;
  for (int n = static_cast<int>(threadIdx.x); n < a.handed_width; n += kRowThreads) {
    out[n] = handed[n];
  }
  // Of logits that are no numbers there is no best one, and what is found is some token all the
  // same.
  const auto token = static_cast<int64_t>(simt::bits_of(a.found[at]));
  const int64_t first = (token < a.tokens ? token : 0) * a.width;
  for (int n = static_cast<int>(threadIdx.x); n < a.width; n += kRowThreads) {
    out[a.handed_width + n] =
        a.wide_table != nullptr ? a.wide_table[first + n] : simt::from_bf16(a.table[first + n]);
  }
}

}  // namespace aerie::device
