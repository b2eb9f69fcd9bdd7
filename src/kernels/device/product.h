// Products of few rows: what takes the time is to stream the weights. A block has kPanels panels of
// outputs, each of its warps one of kSegments of k, whose weights it loads kDepth steps ahead; the
// warps' sums are added up in the order of k. Activations of up to 16 rows are loaded alike, those
// of more come by asynchronous copies into memory that is the warp's own.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/device/epilogue.h"
#include "kernels/device/unpack.h"

namespace aerie::device {

inline constexpr int kProductThreads = kSegments * 32;

template <MatrixKind kKind, int kPanels, int kTiles>
struct ProductShape {
  using U = Unpack<kKind>;
  static constexpr bool kCopies = kTiles > 2;
  static constexpr int kRows = kTiles * 8;
  static constexpr int kOutputs = kPanels * kPanel;
  static constexpr int kRowBytes = kRows * kStep * 2;
  // Weights on their way, 16 bytes of each lane each, and steps that these are.
  static constexpr int kLoads = kTiles == 8 ? 4 : 8;
  static constexpr int kMostDepth = kLoads / (kPanels * U::kWhole);
  static constexpr int kLeastDepth = kCopies && U::kWhole < 8 ? 2 : 1;
  static constexpr int kDepth = kMostDepth < kLeastDepth ? kLeastDepth : kMostDepth;
  // Of activations, which are nearer; whole times this is the other, but for copies, which cost no
  // registers.
  static constexpr int kRowDepth = kCopies ? 3 : kTiles == 1 && kDepth > 1 ? 2 : 1;
  static constexpr int kUnit = U::kSuperBytes > 0 ? 4 : 1;
  static constexpr int kBlocks = kTiles <= 2 ? 2 : 1;

  struct Copied {
    unsigned char stages[kSegments][kRowDepth][kRowBytes];
  };
  struct Nothing {};
  struct Shared {
    union {
      std::conditional_t<kCopies, Copied, Nothing> copied;
      float sums[kSegments][kRows][kOutputs];
    };
    float inverse[kRows];
  };
};

template <MatrixKind kKind, int kPanels, int kTiles>
class ProductWarp {
 public:
  using S = ProductShape<kKind, kPanels, kTiles>;
  using U = Unpack<kKind>;
  using Shared = typename S::Shared;
  using Sums = float[kPanels][kTiles][4];

  SIMT_DEV ProductWarp(const ProductArgs& args, Shared& shared)
      : args_(args),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        begin_(segment_begin(args.steps, S::kUnit, warp_)),
        end_(segment_begin(args.steps, S::kUnit, warp_ + 1)) {
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      int index = static_cast<int>(blockIdx.x) * kPanels + p;
      if (index >= args.panels) index = args.panels - 1;  // computed for nothing
      const PanelPlace place = panel_place(args, index);
      const ProductArgs::Part& part = args.parts[place.part];
      const int64_t first = static_cast<int64_t>(place.index) * args.steps;
      codes_[p] = part.codes + first * U::kCodeBytes;
      if constexpr (U::kScaleBytes > 0) scales_[p] = part.scales + first * U::kScaleBytes;
      if constexpr (U::kSuperBytes > 0) supers_[p] = part.supers + first / 4 * U::kSuperBytes;
    }
  }

  // The sums of the segment.
  SIMT_DEV void run(Sums& sums) {
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      SIMT_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        SIMT_UNROLL
        for (int j = 0; j < 4; ++j) sums[p][i][j] = 0.0f;
      }
    }
    // Weights are there before the kernel that makes the activations is done.
    SIMT_UNROLL
    for (int i = 0; i < S::kDepth; ++i) load_weights(begin_ + i, i);
    simt::wait_for_previous();
    rows_ = *args_.rows;
    SIMT_UNROLL
    for (int i = 0; i < S::kRowDepth; ++i) load_rows(begin_ + i, i);
    find_norms();
    for (int step = begin_; step < end_; step += S::kDepth) {
      SIMT_UNROLL
      for (int i = 0; i < S::kDepth; ++i) {
        if (step + i < end_) {
          add(step + i, i, sums);
          load_weights(step + i + S::kDepth, i);
          load_rows(step + i + S::kRowDepth, i % S::kRowDepth);
        }
      }
    }
    if constexpr (S::kCopies) simt::copy_wait<0>();
  }

  SIMT_DEV int rows() const { return rows_; }

 private:
  SIMT_DEV void add(int step, int slot, Sums& sums) {
    if constexpr (S::kCopies) {
      simt::copy_wait<S::kRowDepth - 1>();
      __syncwarp();
    }
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      Inputs<kTiles> inputs;
      SIMT_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        if constexpr (S::kCopies) {
          read_row<U::kGroupsOf16>(stage(step), i * 8 + lane_ / 4, half, lane_ % 4, inputs.b[i]);
        } else {
          SIMT_UNROLL
          for (int j = 0; j < 4; ++j)
            inputs.b[i][j] = part_of(ahead_[slot % S::kRowDepth][i][half], j);
        }
      }
      if constexpr (Panel<kKind, kTiles>::kHasMinima) inputs.add_up();
      SIMT_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        Panel<kKind, kTiles>::add(codes_ahead_[slot][p], half, inputs, sums[p]);
      }
    }
    if constexpr (S::kCopies) __syncwarp();
  }

  SIMT_DEV unsigned char* stage(int step) const {
    return shared_.copied.stages[warp_][(step - begin_) % S::kRowDepth];
  }

  SIMT_DEV void load_weights(int step, int slot) {
    if (step >= end_) return;
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      const unsigned char* scales = nullptr;
      const unsigned char* super = nullptr;
      if constexpr (U::kScaleBytes > 0) {
        scales = scales_[p] + static_cast<int64_t>(step) * U::kScaleBytes;
      }
      if constexpr (U::kSuperBytes > 0) {
        super = supers_[p] + static_cast<int64_t>(step / 4) * U::kSuperBytes;
      }
      Reader<kKind>::load(codes_[p] + static_cast<int64_t>(step) * U::kCodeBytes, scales, super,
                          lane_, codes_ahead_[slot][p]);
    }
  }

  SIMT_DEV void load_rows(int step, int slot) {
    if constexpr (S::kCopies) {
      copy_rows(step);
    } else {
      if (step >= end_) return;
      SIMT_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        const int row = i * 8 + lane_ / 4;
        SIMT_UNROLL
        for (int half = 0; half < 2; ++half) {
          ahead_[slot][i][half] = {0, 0, 0, 0};
          if (row < rows_) ahead_[slot][i][half] = row_piece(row, step, half);
        }
      }
    }
  }

  SIMT_DEV uint4 row_piece(int row, int step, int half) const {
    const uint16_t* x =
        args_.x + static_cast<int64_t>(row) * args_.x_stride + step * kStep + half * 32;
    const int t = lane_ % 4;
    if constexpr (U::kGroupsOf16) {
      const uint2 first = *reinterpret_cast<const uint2*>(x + t * 4);
      const uint2 second = *reinterpret_cast<const uint2*>(x + 16 + t * 4);
      return {first.x, first.y, second.x, second.y};
    } else {
      return *reinterpret_cast<const uint4*>(x + t * 8);
    }
  }

  SIMT_DEV void copy_rows(int step) {
    if (step < end_) {
      SIMT_UNROLL
      for (int i = 0; i < kTiles * 2; ++i) {
        const int row = i * 4 + lane_ / 8, piece = lane_ % 8;
        if (row >= rows_) continue;
        simt::copy_async16(
            stage(step) + piece_at(row, piece),
            args_.x + static_cast<int64_t>(row) * args_.x_stride + step * kStep + piece * 8);
      }
    }
    simt::copy_commit();
  }

  SIMT_DEV void find_norms() {
    if (args_.norm.squares == nullptr) return;
    for (int row = warp_; row < rows_ && row < S::kRows; row += kSegments) {
      const float inverse = inverse_rms(args_.norm, row);
      if (lane_ == 0) shared_.inverse[row] = inverse;
    }
  }

  const ProductArgs& args_;
  Shared& shared_;
  int warp_, lane_, begin_, end_;
  int rows_ = 0;
  const unsigned char* codes_[kPanels];
  const unsigned char* scales_[kPanels];
  const unsigned char* supers_[kPanels];
  Codes<U> codes_ahead_[S::kDepth][kPanels];
  uint4 ahead_[S::kRowDepth][kTiles][2];
};

// The segments' sums of an output, one after the other.
template <typename S>
SIMT_DEV float added_up(const typename S::Shared& shared, int row, int output) {
  float sum = 0.0f;
  SIMT_UNROLL
  for (int segment = 0; segment < kSegments; ++segment) sum += shared.sums[segment][row][output];
  return sum;
}

template <typename S>
SIMT_DEV void write_pairs(const ProductArgs& a, const typename S::Shared& shared, int rows) {
  constexpr int kHalf = S::kOutputs / 2;
  for (int i = static_cast<int>(threadIdx.x); i < S::kRows * kHalf; i += kProductThreads) {
    const int row = i / kHalf, of_pair = i % kHalf, pair = of_pair / kPanel;
    const int n = (static_cast<int>(blockIdx.x) * (S::kOutputs / kPanel / 2) + pair) * kPanel +
                  of_pair % kPanel;
    if (row >= rows || n >= a.n) continue;
    const float inverse = a.norm.squares != nullptr ? shared.inverse[row] : 1.0f;
    const int at = pair * 2 * kPanel + of_pair % kPanel;
    const float gate = finish(a, 0, n, added_up<S>(shared, row, at), inverse);
    const float up = finish(a, 1, n, added_up<S>(shared, row, at + kPanel), inverse);
    a.out[static_cast<int64_t>(row) * a.out_stride + n] =
        simt::to_bf16(activated(a.glu, gate) * up);
  }
}

template <typename S>
SIMT_DEV void write_outputs(const ProductArgs& a, const typename S::Shared& shared, int rows) {
  // All lanes go the same way: sums of squares are taken across them.
  for (int i = static_cast<int>(threadIdx.x); i < S::kRows * S::kOutputs; i += kProductThreads) {
    const int row = i / S::kOutputs, output = i % S::kOutputs;
    const int panel = static_cast<int>(blockIdx.x) * (S::kOutputs / kPanel) + output / kPanel;
    const int n = panel * kPanel + output % kPanel;
    const bool is_there = row < rows && n < a.n && panel < a.panels;
    float square = 0.0f;
    if (is_there) {
      const PanelPlace place = panel_place(a, panel);
      const float inverse = a.norm.squares != nullptr ? shared.inverse[row] : 1.0f;
      const float value = finish(a, place.part, place.index * kPanel + output % kPanel,
                                 added_up<S>(shared, row, output), inverse);
      if (a.output == Output::kResidual) {
        square = add_to_stream(a, row, n, value);
      } else if (a.output == Output::kStore) {
        a.y[static_cast<int64_t>(row) * a.y_stride + n] = value;
      } else {
        a.out[static_cast<int64_t>(row) * a.out_stride + n] =
            simt::to_bf16(activated(a.glu, value));
      }
    }
    if (a.output != Output::kResidual || a.next.squares == nullptr) continue;
    SIMT_UNROLL
    for (int mask = 8; mask > 0; mask /= 2) square += simt::shuffle_xor(square, mask);
    if (is_there && output % kPanel == 0) {
      a.next.squares[static_cast<int64_t>(row) * a.next.squares_stride + panel] = square;
    }
  }
}

template <MatrixKind kKind, int kPanels, int kTiles>
__global__ void __launch_bounds__(kProductThreads, (ProductShape<kKind, kPanels, kTiles>::kBlocks))
    product_kernel(const __grid_constant__ ProductArgs args) {
  using S = ProductShape<kKind, kPanels, kTiles>;
  auto& shared = simt::shared<typename S::Shared>();
  simt::release_dependents();
  float sums[kPanels][kTiles][4];
  ProductWarp<kKind, kPanels, kTiles> warp(args, shared);
  warp.run(sums);
  __syncthreads();
  const int segment = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  SIMT_UNROLL
  for (int p = 0; p < kPanels; ++p) {
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) {
        shared.sums[segment][i * 8 + lane % 4 * 2 + j % 2][p * kPanel + lane / 4 + j / 2 * 8] =
            sums[p][i][j];
      }
    }
  }
  __syncthreads();
  if (args.paired) {
    write_pairs<S>(args, shared, warp.rows());
  } else {
    write_outputs<S>(args, shared, warp.rows());
  }
}

}  // namespace aerie::device
