// Products of few rows: what takes the time is to stream the weights. A block has kPanels panels of
// outputs, each of its warps one of kSegments of k, whose sums are added up in the order of k.
// Weights come by asynchronous copies, kDepth steps ahead, into memory that is the warp's own: they
// do not wait for the kernel before this one, nor for each other. Activations, which are many
// warps' and near, are loaded as they are used; there are enough warps to go on with meanwhile.
#pragma once

#include <cstdint>

#include "kernels/device/epilogue.h"
#include "kernels/device/unpack.h"

namespace aerie::device {

inline constexpr int kProductThreads = kSegments * 32;

template <MatrixKind kKind, int kPanels, int kTiles>
struct ProductShape {
  using U = Unpack<kKind>;
  static constexpr int kRows = kTiles * 8;
  static constexpr int kOutputs = kPanels * kPanel;
  static constexpr int kStageBytes = kPanels * (U::kCodeBytes + U::kScaleBytes);
  // Two blocks share a processor where their registers and memory allow it.
  static constexpr int kHalf = 100 * 1024 / (kSegments * kStageBytes);
  static constexpr int kBlocks = kHalf >= 2 && kTiles <= 2 && kPanels <= 2 ? 2 : 1;
  static constexpr int kMostDepth = kBlocks == 2 ? kHalf : 200 * 1024 / (kSegments * kStageBytes);
  static constexpr int kDepth = kMostDepth > 6 ? 6 : kMostDepth < 1 ? 1 : kMostDepth;

  struct Shared {
    union {
      unsigned char stages[kSegments][kDepth][kStageBytes];
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
        begin_(segment_begin(args.steps, warp_)),
        end_(segment_begin(args.steps, warp_ + 1)),
        row_(args.x + static_cast<int64_t>(lane_ / 4) * args.x_stride + begin_ * kStep +
             lane_ % 4 * (U::kGroupsOf16 ? 4 : 8)),
        eight_rows_(static_cast<int64_t>(8) * args.x_stride) {
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      int index = static_cast<int>(blockIdx.x) * kPanels + p;
      if (index >= args.panels) index = args.panels - 1;  // computed for nothing
      const PanelPlace place = panel_place(args, index);
      const ProductArgs::Part& part = args.parts[place.part];
      const int64_t first = static_cast<int64_t>(place.index) * args.steps;
      codes_[p] = part.codes + (first + begin_) * U::kCodeBytes + lane_ * 16;
      // A lane has 16 bytes of one panel's scales.
      if constexpr (U::kScaleBytes > 0) {
        if (lane_ / 4 == p) {
          scales_ = part.scales + (first + begin_) * U::kScaleBytes + lane_ % 4 * 16;
        }
      }
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
    left_ = end_ - begin_;
    SIMT_UNROLL
    for (int i = 0; i < S::kDepth; ++i) copy(i);
    simt::wait_for_previous();
    rows_ = *args_.rows;
    find_norms();
    int slot = 0;
    for (int step = begin_; step < end_; ++step) {
      if constexpr (U::kSuperBytes > 0) {
        if (step % 4 == 0 || step == begin_) load_supers(step);
      }
      simt::copy_wait<S::kDepth - 1>();
      __syncwarp();
      add(shared_.stages[warp_][slot], sums);
      __syncwarp();
      copy(slot);
      slot = slot + 1 == S::kDepth ? 0 : slot + 1;
    }
    simt::copy_wait<0>();
  }

  SIMT_DEV int rows() const { return rows_; }

 private:
  SIMT_DEV void add(const unsigned char* stage, Sums& sums) {
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      Reader<kKind>::read(stage + p * U::kCodeBytes,
                          stage + kPanels * U::kCodeBytes + p * U::kScaleBytes, lane_,
                          codes_read_[p]);
    }
    if constexpr (kTiles == 1) {
      Inputs<kTiles> inputs[2];
      load_rows(0, inputs[0]);
      load_rows(1, inputs[1]);
      multiply(0, inputs[0], sums);
      multiply(1, inputs[1], sums);
    } else {
      SIMT_UNROLL
      for (int half = 0; half < 2; ++half) {
        Inputs<kTiles> inputs;
        load_rows(half, inputs);
        multiply(half, inputs, sums);
      }
    }
    row_ += kStep;
  }

  SIMT_DEV void load_rows(int half, Inputs<kTiles>& inputs) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) load_row(i, half, inputs.b[i]);
  }

  SIMT_DEV void multiply(int half, Inputs<kTiles>& inputs, Sums& sums) {
    if constexpr (Panel<kKind, kTiles>::kHasMinima) inputs.add_up();
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      Panel<kKind, kTiles>::add(codes_read_[p], half, inputs, sums[p]);
    }
  }

  // Of a tile's row of the lane; zeros where there is none.
  SIMT_DEV void load_row(int tile, int half, uint32_t (&b)[4]) const {
    SIMT_UNROLL
    for (int j = 0; j < 4; ++j) b[j] = 0;
    if (tile * 8 + lane_ / 4 >= rows_) return;
    const uint16_t* x = row_ + tile * eight_rows_ + half * 32;
    if constexpr (U::kGroupsOf16) {
      const uint2 first = *reinterpret_cast<const uint2*>(x);
      const uint2 second = *reinterpret_cast<const uint2*>(x + 16);
      b[0] = first.x, b[1] = first.y, b[2] = second.x, b[3] = second.y;
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(x);
      b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
    }
  }

  // The next step that has not been copied.
  SIMT_DEV void copy(int slot) {
    if (left_ > 0) {
      --left_;
      unsigned char* stage = shared_.stages[warp_][slot] + lane_ * 16;
      SIMT_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        SIMT_UNROLL
        for (int at = 0; at < U::kCodeBytes; at += 512) {
          if (at + 512 <= U::kCodeBytes || lane_ < 16) {
            simt::copy_async16(stage + p * U::kCodeBytes + at, codes_[p] + at);
          }
        }
        codes_[p] += U::kCodeBytes;
      }
      if constexpr (U::kScaleBytes > 0) {
        if (lane_ < kPanels * 4) {
          simt::copy_async16(stage + kPanels * U::kCodeBytes, scales_);
        }
        scales_ += U::kScaleBytes;
      }
    }
    simt::copy_commit();
  }

  SIMT_DEV void load_supers(int step) {
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      Reader<kKind>::load_super(supers_[p] + static_cast<int64_t>(step / 4) * U::kSuperBytes, lane_,
                                codes_read_[p]);
    }
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
  int rows_ = 0, left_ = 0;
  const uint16_t* row_;  // the lane's, of the first tile and the step
  int64_t eight_rows_;   // elements
  const unsigned char* codes_[kPanels];
  const unsigned char* scales_ = nullptr;
  const unsigned char* supers_[kPanels];
  Codes<U> codes_read_[kPanels] = {};
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
