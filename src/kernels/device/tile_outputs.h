// What becomes of a block's sums in shared memory: common to the kernels of many rows.
#pragma once

#include <cstdint>

#include "kernels/device/epilogue.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

inline constexpr int kTileThreads = 256;

// What becomes of a block's sums: a thread has an output, or a pair of them, of every kGroups-th
// row.
template <typename S>
class TileOutputs {
 public:
  SIMT_DEV TileOutputs(const ProductArgs& args, const typename S::Shared& shared)
      : args_(args),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        first_row_(static_cast<int>(blockIdx.x) * S::kRows),
        first_panel_(static_cast<int>(blockIdx.y) * S::kBlockPanels),
        rows_(*args.rows - first_row_ < S::kRows ? *args.rows - first_row_ : S::kRows) {}

  SIMT_DEV void write() const {
    if (args_.paired) {
      write_pairs();
    } else if (args_.output == Output::kResidual) {
      write_residual();
    } else {
      write_others();
    }
  }

 private:
  SIMT_DEV float inverse(int row) const {
    return args_.norm.squares != nullptr ? shared_.inverse[row] : 1.0f;
  }

  SIMT_DEV void write_pairs() const {
    constexpr int kPairs = S::kOutputs / 2, kPairGroups = S::kThreads / kPairs;
    const int column = thread_ % kPairs, pair = column / kPanel, in_panel = column % kPanel;
    const int n = (first_panel_ / 2 + pair) * kPanel + in_panel;
    if (thread_ >= kPairs * kPairGroups || n >= args_.n) return;
    const Finish of_gate = finish_of(args_.parts[0], n), of_up = finish_of(args_.parts[1], n);
    const int at = pair * 2 * kPanel + in_panel;
    SIMT_UNROLL_BY(4)
    for (int row = thread_ / kPairs; row < rows_; row += kPairGroups) {
      const float gate = finish(args_, of_gate, shared_.sums[row][at], inverse(row));
      const float up = finish(args_, of_up, shared_.sums[row][at + kPanel], inverse(row));
      args_.out[static_cast<int64_t>(first_row_ + row) * args_.out_stride + n] =
          simt::to_bf16(gated(args_.glu, gate, up));
    }
  }

  static constexpr int kColumns = S::kOutputs, kGroups = S::kThreads / kColumns;

  SIMT_DEV void write_others() const {
    const int column = thread_ % kColumns, panel = first_panel_ + column / kPanel;
    const int n = panel * kPanel + column % kPanel;
    if (thread_ >= kColumns * kGroups || n >= args_.n || panel >= args_.panels) return;
    const PanelPlace place = panel_place(args_, panel);
    const Finish of = finish_of(args_.parts[place.part], place.index * kPanel + column % kPanel);
    SIMT_UNROLL_BY(8)
    for (int row = thread_ / kColumns; row < rows_; row += kGroups) {
      const float value = finish(args_, of, shared_.sums[row][column], inverse(row));
      const int64_t to = first_row_ + row;
      if (args_.output == Output::kStore) {
        args_.y[to * args_.y_stride + n] = value;
      } else {
        args_.out[to * args_.out_stride + n] = simt::to_bf16(activated(args_.glu, value));
      }
    }
  }

  SIMT_DEV void write_residual() const {
    constexpr int kAtOnce = 8;
    const int column = thread_ % kColumns, panel = first_panel_ + column / kPanel;
    const int n = panel * kPanel + column % kPanel;
    if (thread_ >= kColumns * kGroups) return;
    const bool is_there = n < args_.n && panel < args_.panels;
    const PanelPlace place = panel_place(args_, is_there ? panel : args_.panels - 1);
    Finish of = {};
    if (is_there) of = finish_of(args_.parts[place.part], place.index * kPanel + column % kPanel);
    const float weight = is_there && args_.next.out != nullptr ? args_.next.weight[n] : 0.0f;
    SIMT_UNROLL_BY(1)
    for (int first = thread_ / kColumns; first < rows_; first += kGroups * kAtOnce) {
      float x[kAtOnce];
      SIMT_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        const int row = first + r * kGroups;
        x[r] = 0.0f;
        if (is_there && row < rows_) {
          x[r] = args_.y[static_cast<int64_t>(first_row_ + row) * args_.y_stride + n];
        }
      }
      SIMT_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        const int row = first + r * kGroups;
        if (row >= rows_) break;
        float square = 0.0f;
        if (is_there) {
          const float value = finish(args_, of, shared_.sums[row][column], inverse(row));
          square = add_to_stream(args_, first_row_ + row, n, x[r], weight, value);
        }
        if (args_.next.squares != nullptr) add_square(first_row_ + row, panel, square);
      }
    }
  }

  // All lanes go the same way: sums of squares are taken across them.
  SIMT_DEV void add_square(int row, int panel, float square) const {
    square = panel_sum(square);
    if (panel < args_.panels && thread_ % kPanel == 0) {
      args_.next.squares[static_cast<int64_t>(row) * args_.next.squares_stride + panel] = square;
    }
  }

  const ProductArgs& args_;
  const typename S::Shared& shared_;
  int thread_, first_row_, first_panel_, rows_;
};

}  // namespace aerie::device
