// Products of many rows: a block has kManyRows rows and 4 * kPanels panels of outputs, a warp
// kPanels of them and half of the rows. The sums are those of product.h, in the same order: a chain
// for each segment of k, and the segments one after the other.
#pragma once

#include <cstdint>

#include "kernels/device/epilogue.h"
#include "kernels/device/tile_outputs.h"
#include "kernels/device/unpack.h"

namespace aerie::device {

// The most panels to a warp: of the largest weights no stages of more fit, of those with minima no
// registers.
template <MatrixKind kKind>
inline constexpr int kMostTilePanels =
    kKind == MatrixKind::kBf16x2 || kKind == MatrixKind::kQ4K ? 2 : 3;

// Shared memory of a block, by the panels of a warp: what any processor has, what one of sm_80 and
// one of sm_90 has.
constexpr int tile_memory(int panels) {
  return (panels == 1 ? 99 : panels == 2 ? 163 : 227) * 1024;
}

// More panels to a warp take less from shared memory and from the cache for a product.
template <MatrixKind kKind, int kPanelsOfWarp>
struct TileShape {
  using U = Unpack<kKind>;
  static constexpr int kThreads = kTileThreads, kRows = kManyRows;
  static constexpr int kPanels = kPanelsOfWarp, kTiles = 8;  // of a warp
  static constexpr int kBlockPanels = 4 * kPanels;
  static constexpr int kOutputs = kBlockPanels * kPanel;
  // Of a stage: codes, scales, supers, then the rows.
  static constexpr int kCodes = kBlockPanels * U::kCodeBytes;
  static constexpr int kScales = kBlockPanels * U::kScaleBytes;
  static constexpr int kSupers = kBlockPanels * U::kSuperBytes;
  static constexpr int kRowsAt = kCodes + kScales + kSupers;
  static constexpr int kStageBytes = kRowsAt + kManyRows * kStep * 2;
  // Sums of the segments up to now, which are too many for the registers.
  static constexpr int kTotalBytes = kTileThreads * kPanels * kTiles * 16;
  // 16 bytes of codes that a thread copies at a time.
  static constexpr int kCodeCopies = (kCodes / 16 + kTileThreads - 1) / kTileThreads;
  static constexpr int kPitch = kOutputs + 4;  // of sums: lanes touch all banks

  // Where a thread's copies come from.
  struct Sources {
    const unsigned char* codes[kCodeCopies];
    const unsigned char* factors;  // scales or supers
    const uint16_t* rows;
  };
  // In shared memory, too, where sums are on their way in registers.
  static constexpr bool kSources = U::kScaleBytes > 0;
  static constexpr int kMemory = tile_memory(kPanels) - kManyRows * 4 -
                                 kTileThreads * static_cast<int>(kSources ? sizeof(Sources) : 0);
  static constexpr int kMostDepth = (kMemory - kTotalBytes) / kStageBytes;
  static constexpr int kDepth = kMostDepth > 4 ? 4 : kMostDepth;
  static_assert(kDepth >= 2);

  struct Loop {
    unsigned char stages[kDepth][kStageBytes];
    float4 totals[kPanels * kTiles][kTileThreads];
  };
  struct Shared {
    union {
      Loop loop;
      float sums[kManyRows][kPitch];
    };
    float inverse[kManyRows];
    Sources sources[kSources ? kTileThreads : 1];
  };
};

template <MatrixKind kKind, int kPanels>
class TileBlock {
 public:
  using S = TileShape<kKind, kPanels>;
  using U = Unpack<kKind>;
  using Shared = typename S::Shared;
  using Sources = typename S::Sources;
  using Sums = float[S::kPanels][S::kTiles][4];

  SIMT_DEV TileBlock(const ProductArgs& args, Shared& shared)
      : args_(args),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32),
        first_row_(static_cast<int>(blockIdx.x) * kManyRows),
        first_panel_(static_cast<int>(blockIdx.y) * S::kBlockPanels) {
    Sources from;
    from.factors = nullptr;
    SIMT_UNROLL
    for (int i = 0; i < S::kCodeCopies; ++i) {
      const int at = (i * kTileThreads + thread_) * 16;
      from.codes[i] = of_panel(at / U::kCodeBytes, U::kCodeBytes, 1, &ProductArgs::Part::codes) +
                      at % U::kCodeBytes;
    }
    const int at = thread_ * 16, of_supers = at - S::kScales;
    if constexpr (S::kScales > 0) {
      if (at < S::kScales) {
        from.factors =
            of_panel(at / U::kScaleBytes, U::kScaleBytes, 1, &ProductArgs::Part::scales) +
            at % U::kScaleBytes;
      }
    }
    if constexpr (S::kSupers > 0) {
      if (of_supers >= 0 && of_supers < S::kSupers) {
        from.factors =
            of_panel(of_supers / U::kSuperBytes, U::kSuperBytes, 4, &ProductArgs::Part::supers) +
            of_supers % U::kSuperBytes;
      }
    }
    from.rows =
        args.x + static_cast<int64_t>(first_row_ + thread_ / 8) * args.x_stride + thread_ % 8 * 8;
    if constexpr (S::kSources) {
      shared.sources[thread_] = from;
    } else {
      sources_ = from;
    }
  }

  // The sums, to shared memory; false: the block has no rows.
  SIMT_DEV bool run() {
    const Sources from = sources();
    for (int i = 0; i < S::kDepth - 1; ++i) {
      if (i < args_.steps) copy_weights(from, i, i);
    }
    // Weights are there before the kernel that makes the activations is done.
    simt::wait_for_previous();
    const int rows = *args_.rows;
    for (int i = 0; i < S::kDepth - 1; ++i) {
      if (i < args_.steps) copy_rows(from, i, i);
      simt::copy_commit();
    }
    if (first_row_ >= rows) {
      simt::copy_wait<0>();
      return false;
    }
    find_norms(rows);
    Sums sums;
    clear(sums);
    add_up(sums);
    simt::copy_wait<0>();
    __syncthreads();
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      SIMT_UNROLL
      for (int i = 0; i < S::kTiles; ++i) {
        SIMT_UNROLL
        for (int j = 0; j < 4; ++j) {
          shared_.sums[warp_ % 2 * 64 + i * 8 + lane_ % 4 * 2 + j % 2]
                      [(warp_ / 2 * kPanels + p) * kPanel + lane_ / 4 + j / 2 * 8] = sums[p][i][j];
        }
      }
    }
    __syncthreads();
    return true;
  }

 private:
  SIMT_DEV static void clear(Sums& sums) {
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      SIMT_UNROLL
      for (int i = 0; i < S::kTiles; ++i) {
        SIMT_UNROLL
        for (int j = 0; j < 4; ++j) sums[p][i][j] = 0.0f;
      }
    }
  }

  SIMT_DEV Sources sources() const {
    if constexpr (S::kSources) {
      return shared_.sources[thread_];
    } else {
      return sources_;
    }
  }

  SIMT_DEV void add_up(Sums& sums) {
    int step = 0, slot = 0;
    bool is_first = true;
    SIMT_UNROLL_BY(1)
    for (int segment = 0; segment < kSegments; ++segment) {
      const int end = segment_begin(args_.steps, segment + 1);
      if (step == end) continue;  // adds nothing
      SIMT_UNROLL_BY(1)
      for (; step < end; ++step) {
        const int free = slot == 0 ? S::kDepth - 1 : slot - 1, next = step + S::kDepth - 1;
        simt::copy_wait<S::kDepth - 2>();
        __syncthreads();
        add(shared_.loop.stages[slot], 0, sums);
        if (next < args_.steps) copy(sources(), next, free);
        simt::copy_commit();
        add(shared_.loop.stages[slot], 1, sums);
        slot = slot == S::kDepth - 1 ? 0 : slot + 1;
      }
      add_segment(is_first, end == args_.steps, sums);
      is_first = false;
    }
  }

  // The totals += sums; of the last segment the sums are the totals.
  SIMT_DEV void add_segment(bool is_first, bool is_last, Sums& sums) {
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      SIMT_UNROLL
      for (int i = 0; i < S::kTiles; ++i) {
        // No more than these are loaded at once: there are no registers for them.
        if (i % 4 == 0) __syncwarp();
        float4& total = shared_.loop.totals[p * S::kTiles + i][thread_];
        float(&s)[4] = sums[p][i];
        float4 t = {0.0f, 0.0f, 0.0f, 0.0f};
        if (!is_first) t = total;
        t.x += s[0], t.y += s[1], t.z += s[2], t.w += s[3];
        if (!is_last) total = t;
        s[0] = is_last ? t.x : 0.0f, s[1] = is_last ? t.y : 0.0f;
        s[2] = is_last ? t.z : 0.0f, s[3] = is_last ? t.w : 0.0f;
      }
    }
  }

  // Of a panel and the first `unit` steps; of one that is not there those of the last one, computed
  // for nothing.
  SIMT_DEV const unsigned char* of_panel(int in_block, int bytes, int unit,
                                         const unsigned char* ProductArgs::Part::*data) const {
    int index = first_panel_ + in_block;
    if (index >= args_.panels) index = args_.panels - 1;
    const PanelPlace place = panel_place(args_, index);
    return args_.parts[place.part].*data +
           static_cast<int64_t>(place.index) * (args_.steps / unit) * bytes;
  }

  SIMT_DEV void copy_weights(const Sources& source, int step, int slot) {
    unsigned char* stage = shared_.loop.stages[slot];
    SIMT_UNROLL
    for (int i = 0; i < S::kCodeCopies; ++i) {
      const int at = (i * kTileThreads + thread_) * 16;
      if (at < S::kCodes) {
        simt::copy_async16(stage + at,
                           source.codes[i] + static_cast<int64_t>(step) * U::kCodeBytes);
      }
    }
    if constexpr (S::kScales > 0) {
      const int at = thread_ * 16;
      if (at < S::kScales + S::kSupers) {
        const int offset = at < S::kScales ? step * U::kScaleBytes : step / 4 * U::kSuperBytes;
        simt::copy_async16(stage + S::kCodes + at, source.factors + offset);
      }
    }
  }

  SIMT_DEV void copy(const Sources& source, int step, int slot) {
    copy_weights(source, step, slot);
    copy_rows(source, step, slot);
  }

  SIMT_DEV void copy_rows(const Sources& source, int step, int slot) {
    unsigned char* to = shared_.loop.stages[slot] + S::kRowsAt;
    const uint16_t* from = source.rows + step * kStep;
    SIMT_UNROLL
    for (int i = 0; i < kManyRows * 8 / kTileThreads; ++i) {
      const int rows = i * (kTileThreads / 8);
      simt::copy_async16(to + piece_at(thread_ / 8, thread_ % 8) + rows * 128,
                         from + static_cast<int64_t>(rows) * args_.x_stride);
    }
  }

  SIMT_DEV void add(const unsigned char* stage, int half, Sums& sums) {
    const int first = warp_ / 2 * kPanels;
    const unsigned char* rows = stage + S::kRowsAt + warp_ % 2 * (64 * 128);
    Inputs<S::kTiles> inputs;
    SIMT_UNROLL
    for (int i = 0; i < S::kTiles; ++i) {
      read_row<U::kGroupsOf16>(rows + i * 1024, lane_ / 4, half, lane_ % 4, inputs.b[i]);
    }
    if constexpr (Panel<kKind, S::kTiles>::kHasMinima) inputs.add_up();
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      Codes<U> codes;
      Reader<kKind>::read(
          stage + (first + p) * U::kCodeBytes, stage + S::kCodes + (first + p) * U::kScaleBytes,
          stage + S::kCodes + S::kScales + (first + p) * U::kSuperBytes, lane_, codes);
      Panel<kKind, S::kTiles>::add(codes, half, inputs, sums[p]);
    }
  }

  SIMT_DEV void find_norms(int rows) {
    if (args_.norm.squares == nullptr) return;
    constexpr int kWarps = kTileThreads / 32, kAtOnce = 8;
    SIMT_UNROLL_BY(1)
    for (int i = warp_; i < kManyRows; i += kWarps * kAtOnce) {
      float inverse[kAtOnce];
      inverse_rms(args_.norm, first_row_ + i, kWarps, rows, inverse);
      SIMT_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        if (lane_ == 0) shared_.inverse[i + r * kWarps] = inverse[r];
      }
    }
  }

  const ProductArgs& args_;
  Shared& shared_;
  int thread_, lane_, warp_, first_row_, first_panel_;
  Sources sources_;
};

template <MatrixKind kKind, int kPanels>
__global__ void __launch_bounds__(kTileThreads, 1)
    tile_product_kernel(const __grid_constant__ ProductArgs args) {
  using S = TileShape<kKind, kPanels>;
  auto& shared = simt::shared<typename S::Shared>();
  simt::release_dependents();
  TileBlock<kKind, kPanels> block(args, shared);
  if (block.run()) TileOutputs<S>(args, shared).write();
}

}  // namespace aerie::device
