// Activations in the order in which groups of warps take them (group_product.h). Of kOrderedRows
// rows and a step of k there is a block of bytes, which is copied as it is: the rows one after the
// other, their 16 of k that weights have in a fragment (unpack.h) side by side, in the order of the
// fragment's elements; pieces of 16 bytes lie where simt::operand_of wants them. Behind them, for
// weights that have minima, the sums of each row's 32 of k. Ahead of all blocks is what the rows'
// norms multiply products by.
#pragma once

#include <cstdint>

#include "kernels/device/epilogue.h"
#include "kernels/device/unpack.h"

namespace aerie::device {

inline constexpr int kOrderThreads = 256;

// Of all rows, where there is a norm.
SIMT_DEV float* ordered_norms(const ProductArgs& args) {
  return static_cast<float*>(args.ordered);
}

template <MatrixKind kKind>
struct Ordered {
  using U = Unpack<kKind>;
  static constexpr bool kHasSums = Panel<kKind, 1>::kHasMinima;
  static constexpr int kBytes = kOrderedRowBytes + (kHasSums ? kOrderedSumBytes : 0);

  struct Shared {
    unsigned char rows[kOrderedRowBytes];
    float sums[kHasSums ? 2 : 1][kOrderedRows];
  };
  static_assert(sizeof(Shared) >= kBytes);

  // Of so many rows and a step.
  SIMT_DEV static unsigned char* block(const ProductArgs& args, int tile, int step) {
    const int norms = (args.most_rows + kManyRows - 1) / kManyRows * kManyRows;
    return static_cast<unsigned char*>(args.ordered) + norms * 4 +
           (static_cast<int64_t>(tile) * args.steps + step) * kBytes;
  }

  // Piece `index` of the 8 of a row that lies somewhere: where its words go.
  SIMT_DEV static void place(unsigned char* rows, int row, int index, const uint4& piece) {
    SIMT_UNROLL
    for (int word = 0; word < 4; ++word) {
      int to = index / 4 * 4 + word, at = index % 4;
      if constexpr (U::kGroupsOf16) to = index / 2 * 2 + word % 2, at = index % 2 * 2 + word / 2;
      *reinterpret_cast<uint32_t*>(rows + row * 128 + (to ^ row % 8) * 16 + at * 4) =
          part_of(piece, word);
    }
  }

  // The sums of 8 rows' 32 of k, as a panel of ones gives them (Inputs::add_up).
  SIMT_DEV static void add_up(Shared& shared, int first, int group, int lane) {
    const int g = lane / 4, t = lane % 4;
    const unsigned char* row = shared.rows + (first + g) * 128 + t * 4;
    const Fragment ones = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    SIMT_UNROLL
    for (int s = 0; s < 2; ++s) {
      uint32_t x[2];
      SIMT_UNROLL
      for (int i = 0; i < 2; ++i) {
        x[i] = *reinterpret_cast<const uint32_t*>(row + ((group * 4 + s * 2 + i) ^ g) * 16);
      }
      simt::mma_bf16(d, ones, x);
    }
    if (g == 0) {
      shared.sums[group][first + 2 * t] = d[0];
      shared.sums[group][first + 2 * t + 1] = d[1];
    }
  }
};

// The norms of a block's rows: of 8 of them, or of more where there are fewer than 8 steps.
SIMT_DEV void order_norms(const ProductArgs& args, int tile, int step) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int rows = *args.rows;
  for (int i = step; i < kOrderedRows / 8; i += args.steps) {
    const int row = tile * kOrderedRows + i * 8 + warp;
    float inverse[1];
    inverse_rms(args.norm, row, 0, rows, inverse);
    if (threadIdx.x % 32 == 0) ordered_norms(args)[row] = inverse[0];
  }
}

// A block makes one block of bytes.
template <MatrixKind kKind>
__global__ void __launch_bounds__(kOrderThreads)
    order_rows_kernel(const __grid_constant__ ProductArgs args) {
  using O = Ordered<kKind>;
  auto& shared = simt::shared<typename O::Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  const int tile = static_cast<int>(blockIdx.x), step = static_cast<int>(blockIdx.y);
  simt::release_dependents();
  simt::wait_for_previous();
  if (tile * kOrderedRows >= *args.rows) return;
  if (args.norm.squares != nullptr) order_norms(args, tile, step);
  constexpr int kRows = kOrderThreads / 8;  // at a time
  const uint16_t* from = args.x +
                         static_cast<int64_t>(tile * kOrderedRows + thread / 8) * args.x_stride +
                         step * kStep + thread % 8 * 8;
  uint4 pieces[kOrderedRows / kRows];
  SIMT_UNROLL
  for (int i = 0; i < kOrderedRows / kRows; ++i) {
    pieces[i] =
        *reinterpret_cast<const uint4*>(from + static_cast<int64_t>(i * kRows) * args.x_stride);
  }
  SIMT_UNROLL
  for (int i = 0; i < kOrderedRows / kRows; ++i) {
    O::place(shared.rows, i * kRows + thread / 8, thread % 8, pieces[i]);
  }
  __syncthreads();
  if constexpr (O::kHasSums) {
    for (int i = thread / 32; i < kOrderedRows / 8 * 2; i += kOrderThreads / 32) {
      O::add_up(shared, i / 2 * 8, i % 2, thread % 32);
    }
    __syncthreads();
  }
  unsigned char* to = O::block(args, tile, step);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&shared);
  for (int at = thread * 16; at < O::kBytes; at += kOrderThreads * 16) {
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(bytes + at);
  }
}

}  // namespace aerie::device
