// The rows of a sequence on their way through a state: batches of them in shared memory, the next
// one on its way there while one is computed, so that no row waits for memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/linear/state_inputs.h"
#include "kernels/device/warp_sums.h"

namespace aerie::device {

inline constexpr int kScanThreads = 128;  // a tile of values
inline constexpr int kScanBatch = 16;     // rows
inline constexpr int kScanLoaders = kScanThreads / kScanBatch;
// A thread brings one of its fields.
static_assert(sizeof(PassStateRow) == kScanLoaders * sizeof(int32_t));

struct alignas(16) ScanScalars {
  float beta, decay;
  float product;  // of key and query
  int32_t number;
};

// The second half of a PassStateRow: what becomes of the state ahead of it and behind it.
struct alignas(16) ScanTurn {
  int32_t path_count, record, into[2];
};
static_assert(offsetof(PassStateRow, path_count) == sizeof(ScanTurn) &&
              sizeof(PassStateRow) == 2 * sizeof(ScanTurn));

// kKeys: at least key_dim; what is beyond that is 0.
template <int kKeys>
struct ScanBatches {
  float4 keys[2][kScanBatch][kKeys / 4];
  float4 queries[2][kScanBatch][kKeys / 4];
  float4 values[2][kScanBatch][kStateTile / 4];
  // Of the batch that is computed.
  ScanScalars scalars[kScanBatch];
  alignas(16) PassStateRow rows[kScanBatch];

  SIMT_DEV const ScanTurn& turn(int i) const {
    return *reinterpret_cast<const ScanTurn*>(&rows[i].path_count);
  }
};

// What a block brings for a tile of values of a head; kScanLoaders threads bring a row.
template <int kKeys>
class ScanRows {
 public:
  // Reads what no launch writes.
  SIMT_DEV ScanRows(const LinearLayer& layer, const PassStateSequence& sequence, int head, int tile)
      : layer_(layer),
        sequence_(sequence),
        shared_(simt::shared<ScanBatches<kKeys>>()),
        head_(head),
        keys_at_(key_head_of(layer.shape, head) * layer.shape.key_dim),
        values_at_(head * layer.shape.value_dim + tile * kStateTile),
        row_(static_cast<int>(threadIdx.x / kScanLoaders)),
        part_(static_cast<int>(threadIdx.x % kScanLoaders)),
        number_(number_of(row_)),
        next_(number_of(kScanBatch + row_)),
        field_(field_of(number_)) {
    SIMT_UNROLL_BY(1)
    for (int i = layer.shape.key_dim / 4 + part_; i < kKeys / 4; i += kScanLoaders) {
      SIMT_UNROLL
      for (int side = 0; side < 2; ++side) {
        shared_.keys[side][row_][i] = shared_.queries[side][row_][i] = {0.0f, 0.0f, 0.0f, 0.0f};
      }
    }
  }

  // Asks for the first batch.
  SIMT_DEV void begin() { ask(0); }

  // The batch from this row on is there, and what came before it is no longer needed; asks for the
  // next one.
  SIMT_DEV void take(int first) {
    const int side = side_of(first);
    simt::copy_wait<0>();
    __syncthreads();
    reinterpret_cast<int32_t*>(shared_.rows + row_)[part_] = field_;
    if (part_ == 0) shared_.scalars[row_].beta = gate_;
    if (part_ == 1) shared_.scalars[row_].decay = gate_;
    if (part_ == 2) shared_.scalars[row_].number = number_;
    if (first + kScanBatch < sequence_.count) {
      number_ = next_;
      next_ = number_of(first + 2 * kScanBatch + row_);
      field_ = field_of(number_);
      ask(1 - side);
    }
    multiply(side);
    __syncthreads();
  }

  SIMT_DEV static int side_of(int first) { return first / kScanBatch % 2; }

 private:
  SIMT_DEV int32_t number_of(int i) const {
    return i < sequence_.count ? layer_.pass.indices[sequence_.first + i] : -1;
  }
  SIMT_DEV int32_t field_of(int32_t number) const {
    if (number < 0) return 0;
    return reinterpret_cast<const int32_t*>(layer_.pass.rows + number)[part_];
  }

  SIMT_DEV void ask(int side) {
    if (number_ >= 0) {
      const int64_t number = number_;
      const float* mixed = layer_.mixed + number * layer_.shape.channels;
      const float *keys = mixed + layer_.keys_at + keys_at_,
                  *queries = mixed + layer_.queries_at + keys_at_;
      SIMT_UNROLL
      for (int i = 0; i < kKeys / 4 / kScanLoaders; ++i) {
        const int at = i * kScanLoaders + part_;
        const bool is_there = 4 * at < layer_.shape.key_dim;
        simt::copy_async16_if(is_there, &shared_.keys[side][row_][at], keys + 4 * at);
        simt::copy_async16_if(is_there, &shared_.queries[side][row_][at], queries + 4 * at);
      }
      if (part_ < kStateTile / 4) {
        simt::copy_async16(&shared_.values[side][row_][part_],
                           mixed + layer_.values_at + values_at_ + 4 * part_);
      }
      const int heads = layer_.shape.heads;
      if (part_ < 2) gate_ = layer_.gates[(2 * number + part_) * heads + head_];
    }
    simt::copy_commit();
  }

  // Products of keys and queries, which no state has a part in: a warp has every fourth row. Those
  // of rows that are not there nobody reads.
  SIMT_DEV void multiply(int side) {
    constexpr int kWarps = kScanThreads / 32, kRows = kScanBatch / kWarps;
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    float products[kRows];
    SIMT_UNROLL
    for (int n = 0; n < kRows; ++n) products[n] = product_of(side, n * kWarps + warp, lane);
    SIMT_UNROLL
    for (int n = 0; n < kRows; ++n) products[n] = warp_sum(products[n]);
    if (lane != 0) return;
    SIMT_UNROLL
    for (int n = 0; n < kRows; ++n) shared_.scalars[n * kWarps + warp].product = products[n];
  }
  // The lane's share of it.
  SIMT_DEV float product_of(int side, int row, int lane) const {
    float sum = 0.0f;
    SIMT_UNROLL
    for (int i = lane; i < kKeys / 4; i += 32) {
      const float4 key = shared_.keys[side][row][i], query = shared_.queries[side][row][i];
      sum = simt::fma(key.x, query.x, sum);
      sum = simt::fma(key.y, query.y, sum);
      sum = simt::fma(key.z, query.z, sum);
      sum = simt::fma(key.w, query.w, sum);
    }
    return sum;
  }

  const LinearLayer& layer_;
  const PassStateSequence& sequence_;
  ScanBatches<kKeys>& shared_;
  int head_, keys_at_, values_at_, row_, part_;
  // The thread's row in the batch that was asked for last, and in the one behind it.
  int32_t number_, next_;
  int32_t field_;
  float gate_ = 0.0f;
};

}  // namespace aerie::device
