// Products of few rows: what takes the time is to stream the weights. A block has kPanels panels of
// outputs, each of its warps one of kSegments of k. Weights and activations come by asynchronous
// copies, kDepth steps ahead, into memory that is the warp's own; the warps' sums are added up in
// the order of k.
#pragma once

#include <cstdint>

#include "kernels/device/epilogue.h"
#include "kernels/device/unpack.h"

namespace aerie::device {

inline constexpr int kProductThreads = kSegments * 32;

template <MatrixKind kKind, int kPanels, int kTiles>
struct ProductShape {
  using U = Unpack<kKind>;
  static constexpr int kPanelBytes = U::kCodeBytes + U::kScaleBytes;
  static constexpr int kRowBytes = kStep * 2;
  static constexpr int kStageBytes = kPanels * kPanelBytes + kTiles * 8 * kRowBytes;
  // Two blocks of few rows fit a processor's shared memory, one of many.
  static constexpr int kRoom = (kTiles <= 2 ? 104 : 200) * 1024;
  static constexpr int kMostDepth = kRoom / (kSegments * kStageBytes);
  static constexpr int kDepth = kMostDepth > 8 ? 8 : kMostDepth < 2 ? 2 : kMostDepth;
  static constexpr int kUnit = U::kSuperBytes > 0 ? 4 : 1;
  static constexpr int kRows = kTiles * 8;
  static constexpr int kOutputs = kPanels * kPanel;

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
  static constexpr int kScaleChunks = U::kScaleBytes / 16;  // of a panel and step

  SIMT_DEV ProductWarp(const ProductArgs& args, typename S::Shared& shared)
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
      // A lane copies 16 bytes of one panel's scales.
      if constexpr (U::kScaleBytes > 0) {
        if (p == 0 || lane_ / kScaleChunks == p) {
          scales_ = part.scales + first * U::kScaleBytes + lane_ % kScaleChunks * 16;
        }
      }
      if constexpr (U::kSuperBytes > 0) supers_[p] = part.supers + first / 4 * U::kSuperBytes;
    }
  }

  // The sums of the segment.
  SIMT_DEV void run(float (&sums)[kPanels][kTiles][4]) {
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
    for (int i = 0; i < S::kDepth; ++i) copy_weights(begin_ + i, i);
    simt::wait_for_previous();
    rows_ = *args_.rows;
    SIMT_UNROLL
    for (int i = 0; i < S::kDepth; ++i) {
      copy_activations(begin_ + i, i);
      simt::copy_commit();
    }
    find_norms();
    uint2 supers[kPanels] = {};
    int slot = 0;
    for (int step = begin_; step < end_; ++step) {
      if constexpr (U::kSuperBytes > 0) {
        if (step % 4 == 0) load_supers(step, supers);
      }
      simt::copy_wait<S::kDepth - 1>();
      __syncwarp();
      const unsigned char* stage = shared_.stages[warp_][slot];
      add(stage, supers, sums);
      __syncwarp();
      copy_weights(step + S::kDepth, slot);
      copy_activations(step + S::kDepth, slot);
      simt::copy_commit();
      slot = slot + 1 == S::kDepth ? 0 : slot + 1;
    }
    simt::copy_wait<0>();
  }

  SIMT_DEV int rows() const { return rows_; }

 private:
  SIMT_DEV void add(const unsigned char* stage, const uint2 (&supers)[kPanels],
                    float (&sums)[kPanels][kTiles][4]) {
    const unsigned char* scales = stage + kPanels * U::kCodeBytes;
    const unsigned char* rows = stage + kPanels * S::kPanelBytes;
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      uint32_t b[kTiles][4];
      SIMT_UNROLL
      for (int i = 0; i < kTiles; ++i) load_rows(rows, i * 8 + lane_ / 4, half, b[i]);
      SIMT_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        Panel<kKind, kTiles>::add(stage + p * U::kCodeBytes, scales + p * U::kScaleBytes, supers[p],
                                  half, lane_, b, sums[p]);
      }
    }
  }

  // 16 bytes of a row are where their number and the row's last bit say, so that the lanes of a
  // load touch all banks.
  SIMT_DEV static int chunk_at(int row, int chunk) {
    return row * S::kRowBytes + (chunk ^ (row & 1) << 2) * 16;
  }

  SIMT_DEV void load_rows(const unsigned char* rows, int row, int half, uint32_t (&b)[4]) const {
    const int t = lane_ % 4;
    if constexpr (U::kGroupsOf16) {
      SIMT_UNROLL
      for (int s = 0; s < 2; ++s) {
        const uint2 v = *reinterpret_cast<const uint2*>(
            rows + chunk_at(row, half * 4 + s * 2 + t / 2) + t % 2 * 8);
        b[2 * s] = v.x, b[2 * s + 1] = v.y;
      }
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(rows + chunk_at(row, half * 4 + t));
      b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
    }
  }

  SIMT_DEV void copy_weights(int step, int slot) {
    if (step >= end_) return;
    unsigned char* stage = shared_.stages[warp_][slot];
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      const unsigned char* from = codes_[p] + static_cast<int64_t>(step) * U::kCodeBytes;
      SIMT_UNROLL
      for (int at = 0; at < U::kCodeBytes; at += 512) {
        if (at + lane_ * 16 < U::kCodeBytes) {
          simt::copy_async16(stage + p * U::kCodeBytes + at + lane_ * 16, from + at + lane_ * 16);
        }
      }
    }
    if constexpr (U::kScaleBytes > 0) {
      if (lane_ < kPanels * kScaleChunks) {
        simt::copy_async16(stage + kPanels * U::kCodeBytes + lane_ * 16,
                           scales_ + static_cast<int64_t>(step) * U::kScaleBytes);
      }
    }
  }

  SIMT_DEV void copy_activations(int step, int slot) {
    if (step >= end_) return;
    unsigned char* rows = shared_.stages[warp_][slot] + kPanels * S::kPanelBytes;
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 2; ++i) {
      const int row = i * 4 + lane_ / 8, chunk = lane_ % 8;
      if (row >= rows_) continue;
      simt::copy_async16(
          rows + chunk_at(row, chunk),
          args_.x + static_cast<int64_t>(row) * args_.x_stride + step * kStep + chunk * 8);
    }
  }

  SIMT_DEV void load_supers(int step, uint2 (&supers)[kPanels]) const {
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      const unsigned char* at = supers_[p] + static_cast<int64_t>(step / 4) * U::kSuperBytes;
      if constexpr (U::kSuperBytes == 64) {
        supers[p] = simt::load8(at + lane_ / 4 * 8);
      } else {
        supers[p].x = simt::load4(at + lane_ / 4 * 4);
      }
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
  typename S::Shared& shared_;
  int warp_, lane_, begin_, end_;
  int rows_ = 0;
  const unsigned char* codes_[kPanels];
  const unsigned char* scales_ = nullptr;
  const unsigned char* supers_[kPanels];
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
__global__ void __launch_bounds__(kProductThreads, kTiles <= 2 ? 2 : 1)
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
