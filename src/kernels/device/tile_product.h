// Products of many rows: a block has 8 panels of outputs and kManyRows rows, a warp two panels and
// half of the rows. The sums are those of product.h, in the same order: a chain for each segment of
// k, and the segments one after the other.
#pragma once

#include <cstdint>

#include "kernels/device/epilogue.h"
#include "kernels/device/unpack.h"

namespace aerie::device {

inline constexpr int kTileThreads = 256;
inline constexpr int kTilePanels = 8;

template <MatrixKind kKind>
struct TileShape {
  using U = Unpack<kKind>;
  static constexpr int kPanels = 2, kTiles = 8;  // of a warp
  static constexpr int kRowBytes = kStep * 2;
  static constexpr int kCodes = kTilePanels * U::kCodeBytes;
  static constexpr int kScales = kTilePanels * U::kScaleBytes;
  static constexpr int kStageBytes = kCodes + kScales + kManyRows * kRowBytes;
  static constexpr int kMostDepth = 200 * 1024 / kStageBytes;
  static constexpr int kDepth = kMostDepth > 4 ? 4 : kMostDepth;
  // 16 bytes of codes that a thread copies at a time.
  static constexpr int kCodeCopies = (kCodes / 16 + kTileThreads - 1) / kTileThreads;

  struct Shared {
    unsigned char stages[kDepth][kStageBytes];
    float inverse[kManyRows];
  };
};

template <MatrixKind kKind>
class TileBlock {
 public:
  using S = TileShape<kKind>;
  using U = Unpack<kKind>;
  using Sums = float[S::kPanels][S::kTiles][4];

  SIMT_DEV TileBlock(const ProductArgs& args, typename S::Shared& shared)
      : args_(args),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32),
        first_row_(static_cast<int>(blockIdx.x) * kManyRows),
        first_panel_(static_cast<int>(blockIdx.y) * kTilePanels) {
    SIMT_UNROLL
    for (int i = 0; i < S::kCodeCopies; ++i) {
      const int at = (i * kTileThreads + thread_) * 16;
      codes_[i] = of_panel(at / U::kCodeBytes, U::kCodeBytes, &ProductArgs::Part::codes) +
                  at % U::kCodeBytes;
    }
    if constexpr (U::kScaleBytes > 0) {
      scales_ =
          of_panel(thread_ * 16 / U::kScaleBytes, U::kScaleBytes, &ProductArgs::Part::scales) +
          thread_ * 16 % U::kScaleBytes;
    }
    if constexpr (U::kSuperBytes > 0) {
      SIMT_UNROLL
      for (int p = 0; p < S::kPanels; ++p) {
        supers_[p] = super_of_panel(warp_ / 2 * S::kPanels + p);
      }
    }
  }

  SIMT_DEV void run(Sums& total) {
    clear(total);
    simt::wait_for_previous();
    rows_ = *args_.rows;
    for (int i = 0; i < S::kDepth - 1; ++i) copy(i, i);
    find_norms();
    Sums sums;
    clear(sums);
    int segment_end = segment_begin(args_.steps, 1), segment = 0;
    for (int step = 0; step < args_.steps; ++step) {
      while (step == segment_end) {
        add_segment(total, sums);
        ++segment;
        segment_end = segment_begin(args_.steps, segment + 1);
      }
      if constexpr (U::kSuperBytes > 0) {
        if (step % 4 == 0) load_supers(step);
      }
      simt::copy_wait<S::kDepth - 2>();
      __syncthreads();
      copy(step + S::kDepth - 1, (step + S::kDepth - 1) % S::kDepth);
      add(shared_.stages[step % S::kDepth], sums);
    }
    add_segment(total, sums);
    simt::copy_wait<0>();
    __syncthreads();
  }

  SIMT_DEV void write(const Sums& total) const {
    SIMT_UNROLL
    for (int i = 0; i < S::kTiles; ++i) {
      SIMT_UNROLL
      for (int column = 0; column < 2; ++column) {
        const int in_tile = warp_ % 2 * 64 + i * 8 + lane_ % 4 * 2 + column;
        const int row = first_row_ + in_tile;
        const float inverse = args_.norm.squares != nullptr ? shared_.inverse[in_tile] : 1.0f;
        if (args_.paired) {
          write_pair(row, total[0][i], total[1][i], column, inverse);
        } else {
          SIMT_UNROLL
          for (int p = 0; p < S::kPanels; ++p) {
            write_panel(row, p, total[p][i][column], total[p][i][column + 2], inverse);
          }
        }
      }
    }
  }

 private:
  SIMT_DEV static void clear(Sums& sums) {
    SIMT_UNROLL
    for (int p = 0; p < S::kPanels; ++p) {
      SIMT_UNROLL
      for (int i = 0; i < S::kTiles; ++i) {
        SIMT_UNROLL
        for (int j = 0; j < 4; ++j) sums[p][i][j] = 0.0f;
      }
    }
  }

  SIMT_DEV static void add_segment(Sums& total, Sums& sums) {
    SIMT_UNROLL
    for (int p = 0; p < S::kPanels; ++p) {
      SIMT_UNROLL
      for (int i = 0; i < S::kTiles; ++i) {
        SIMT_UNROLL
        for (int j = 0; j < 4; ++j) total[p][i][j] += sums[p][i][j];
      }
    }
    clear(sums);
  }

  SIMT_DEV int panel_in_range(int in_block) const {
    const int index = first_panel_ + in_block;
    return index < args_.panels ? index : args_.panels - 1;  // computed for nothing
  }

  SIMT_DEV const unsigned char* of_panel(int in_block, int bytes,
                                         const unsigned char* ProductArgs::Part::*data) const {
    const PanelPlace place =
        panel_place(args_, panel_in_range(in_block < kTilePanels ? in_block : kTilePanels - 1));
    return args_.parts[place.part].*data + static_cast<int64_t>(place.index) * args_.steps * bytes;
  }

  SIMT_DEV const unsigned char* super_of_panel(int in_block) const {
    const PanelPlace place = panel_place(args_, panel_in_range(in_block));
    return args_.parts[place.part].supers +
           static_cast<int64_t>(place.index) * args_.steps / 4 * U::kSuperBytes;
  }

  SIMT_DEV void copy(int step, int slot) {
    if (step < args_.steps) {
      unsigned char* stage = shared_.stages[slot];
      SIMT_UNROLL
      for (int i = 0; i < S::kCodeCopies; ++i) {
        const int at = (i * kTileThreads + thread_) * 16;
        if (at < S::kCodes) {
          simt::copy_async16(stage + at, codes_[i] + static_cast<int64_t>(step) * U::kCodeBytes);
        }
      }
      if constexpr (U::kScaleBytes > 0) {
        if (thread_ * 16 < S::kScales) {
          simt::copy_async16(stage + S::kCodes + thread_ * 16,
                             scales_ + static_cast<int64_t>(step) * U::kScaleBytes);
        }
      }
      unsigned char* rows = stage + S::kCodes + S::kScales;
      SIMT_UNROLL
      for (int i = 0; i < kManyRows * 8 / kTileThreads; ++i) {
        const int row = i * (kTileThreads / 8) + thread_ / 8, chunk = thread_ % 8;
        simt::copy_async16(rows + piece_at(row, chunk),
                           args_.x + static_cast<int64_t>(first_row_ + row) * args_.x_stride +
                               step * kStep + chunk * 8);
      }
    }
    simt::copy_commit();
  }

  SIMT_DEV void load_supers(int step) {
    SIMT_UNROLL
    for (int p = 0; p < S::kPanels; ++p) {
      Reader<kKind>::load_super(supers_[p] + static_cast<int64_t>(step / 4) * U::kSuperBytes, lane_,
                                codes_read_[p]);
    }
  }

  SIMT_DEV void add(const unsigned char* stage, Sums& sums) {
    const unsigned char* scales = stage + S::kCodes;
    const unsigned char* rows = stage + S::kCodes + S::kScales;
    const int first = warp_ / 2 * S::kPanels;
    SIMT_UNROLL
    for (int p = 0; p < S::kPanels; ++p) {
      Reader<kKind>::read(stage + (first + p) * U::kCodeBytes,
                          scales + (first + p) * U::kScaleBytes, lane_, codes_read_[p]);
    }
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      Inputs<S::kTiles> inputs;
      SIMT_UNROLL
      for (int i = 0; i < S::kTiles; ++i) {
        read_row<U::kGroupsOf16>(rows, warp_ % 2 * 64 + i * 8 + lane_ / 4, half, lane_ % 4,
                                 inputs.b[i]);
      }
      if constexpr (Panel<kKind, S::kTiles>::kHasMinima) inputs.add_up();
      SIMT_UNROLL
      for (int p = 0; p < S::kPanels; ++p) {
        Panel<kKind, S::kTiles>::add(codes_read_[p], half, inputs, sums[p]);
      }
    }
  }

  SIMT_DEV void find_norms() {
    if (args_.norm.squares == nullptr) return;
    for (int i = warp_; i < kManyRows && first_row_ + i < rows_; i += kTileThreads / 32) {
      const float inverse = inverse_rms(args_.norm, first_row_ + i);
      if (lane_ == 0) shared_.inverse[i] = inverse;
    }
  }

  SIMT_DEV void write_pair(int row, const float (&gate)[4], const float (&up)[4], int column,
                           float inverse) const {
    const int pair = (first_panel_ + warp_ / 2 * S::kPanels) / 2;
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int n = pair * kPanel + half * 8 + lane_ / 4;
      if (row >= rows_ || n >= args_.n) continue;
      const float first = finish(args_, 0, n, gate[half * 2 + column], inverse);
      const float second = finish(args_, 1, n, up[half * 2 + column], inverse);
      args_.out[static_cast<int64_t>(row) * args_.out_stride + n] =
          simt::to_bf16(activated(args_.glu, first) * second);
    }
  }

  // Outputs g and g + 8 of a panel.
  SIMT_DEV void write_panel(int row, int p, float first, float second, float inverse) const {
    const int panel = first_panel_ + warp_ / 2 * S::kPanels + p;
    float square = 0.0f;
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int in_panel = half * 8 + lane_ / 4, n = panel * kPanel + in_panel;
      if (row >= rows_ || n >= args_.n || panel >= args_.panels) continue;
      const PanelPlace place = panel_place(args_, panel);
      const float value = finish(args_, place.part, place.index * kPanel + in_panel,
                                 half == 0 ? first : second, inverse);
      if (args_.output == Output::kResidual) {
        square += add_to_stream(args_, row, n, value);
      } else if (args_.output == Output::kStore) {
        args_.y[static_cast<int64_t>(row) * args_.y_stride + n] = value;
      } else {
        args_.out[static_cast<int64_t>(row) * args_.out_stride + n] =
            simt::to_bf16(activated(args_.glu, value));
      }
    }
    if (args_.output != Output::kResidual || args_.next.squares == nullptr) return;
    SIMT_UNROLL
    for (int mask = 16; mask > 2; mask /= 2) square += simt::shuffle_xor(square, mask);
    if (row < rows_ && panel < args_.panels && lane_ / 4 == 0) {
      args_.next.squares[static_cast<int64_t>(row) * args_.next.squares_stride + panel] = square;
    }
  }

  const ProductArgs& args_;
  typename S::Shared& shared_;
  int thread_, lane_, warp_, first_row_, first_panel_;
  int rows_ = 0;
  const unsigned char* codes_[S::kCodeCopies];
  const unsigned char* scales_ = nullptr;
  const unsigned char* supers_[S::kPanels];
  Codes<U> codes_read_[S::kPanels] = {};
};

template <MatrixKind kKind>
__global__ void __launch_bounds__(kTileThreads, 1)
    tile_product_kernel(const __grid_constant__ ProductArgs args) {
  using S = TileShape<kKind>;
  auto& shared = simt::shared<typename S::Shared>();
  simt::release_dependents();
  float total[S::kPanels][S::kTiles][4];
  TileBlock<kKind> block(args, shared);
  block.run(total);
  block.write(total);
}

}  // namespace aerie::device
