// Products of few rows: what takes the time is to stream the weights. A block stays on its
// processor and takes its share of the panels of outputs, a unit of kPanels after another, or of
// half as many where its share ends, so that all blocks end together; each of its warps has one of
// kSegments of k, whose sums are added up in the order of k. Weights come by asynchronous copies,
// kDepth stages ahead and over the ends of units, into memory that is the warp's own: they do not
// wait for the kernel before this one, nor for each other. Activations, which are many warps' and
// near, are in registers half a step or a whole one before they are used, or come with the weights.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/device/epilogue.h"
#include "kernels/device/unpack.h"

namespace aerie::device {

inline constexpr int kProductThreads = kSegments * 32;

// KiB of shared memory of a block: what Hopper gives, what Ampere does, and what any GPU does;
// kGroupsMemory is of kernels that use what GPUs with simt::kHasGroups have besides. Where the
// stages of the first do not fit there are fewer, if there is room for one of them.
inline constexpr int kLargeMemory = 227, kMediumMemory = 163, kSmallMemory = 99;
inline constexpr int kGroupsMemory = 226;

// kStagedRows: 8 where activations come with the codes, 0 where each warp loads them.
template <MatrixKind kTheKind, int kThePanels, int kTheTiles, int kMemory, int kStagedRows>
struct ProductShape {
  static constexpr MatrixKind kKind = kTheKind;
  static constexpr int kPanels = kThePanels, kTiles = kTheTiles;
  using U = Unpack<kKind>;
  using Sums = float[kPanels][kTiles][4];
  static constexpr int kRows = kTiles * 8;
  static constexpr int kOutputs = kPanels * kPanel;
  static constexpr bool kRowsInStage = kStagedRows > 0;
  // A stage has as many steps as make 2 KiB of codes (1 KiB beside activations): what there is to
  // do for each costs slots.
  static constexpr int kCodeRoom = kRowsInStage ? 1024 : 2048;
  static constexpr int kSteps = kTiles == 1 && U::kSuperBytes == 0 && U::kScaleBytes > 0 &&
                                        kPanels* U::kCodeBytes < kCodeRoom
                                    ? kCodeRoom / (kPanels * U::kCodeBytes)
                                    : 1;
  // The panels' codes, then all their scales, then all their supers.
  static constexpr int kScalesAt = kPanels * kSteps * U::kCodeBytes;
  static constexpr int kSupersAt = kScalesAt + kPanels * kSteps * U::kScaleBytes;
  static constexpr int kRowsAt = kSupersAt + kPanels * U::kSuperBytes;
  static constexpr int kStageBytes = kRowsAt + (kRowsInStage ? kSteps * kRows * kStep * 2 : 0);
  static constexpr int kAllStages = kSegments * kStageBytes;  // of all warps
  static constexpr int kPitch = kOutputs + 4;                 // of sums: lanes touch all banks
  static constexpr int kUnitSumBytes = kSegments * kRows * kPitch * 4;
  // Sums of many rows take the place of the stages; such a block has one unit.
  static constexpr bool kStays = kTiles <= 2;
  // Of a launch of more rows, those of a block.
  static constexpr int kBlockRows = kStays ? 0 : kRows;
  // Two blocks share a processor where their registers and memory allow it. The level-one cache,
  // which is of what they leave, has the activations.
  static constexpr int kBlocks =
      kTiles == 1 && kPanels <= 2 && 2 * kAllStages + kUnitSumBytes <= 111 * 1024 ? 2 : 1;
  // Where a block is alone on its processor, nothing is computed while its warps wait for each
  // other at the ends of units. Of 16 rows that is a good part of the time: there the sums of two
  // units have room, and a warp goes on with the next one before it adds up what all left of the
  // last.
  static constexpr bool kGoesOn = kMemory == kGroupsMemory && kTiles == 2 && kPanels == 2 &&
                                  U::kScaleBytes > 0 &&
                                  2 * kUnitSumBytes + 3 * kAllStages <= 160 * 1024;
  static constexpr int kSumUnits = kGoesOn ? 2 : 1;
  static constexpr int kSumBytes = kSumUnits * kUnitSumBytes;
  static constexpr int kTaken =
      (kStays ? kSumBytes : 0) + kRows * 4 + 8 + 2 * static_cast<int>(sizeof(simt::Barrier));
  static constexpr int kMostRoom =
      (kMemory > kMediumMemory ? 224 / kBlocks : kMemory) * 1024 - kTaken;
  // The level-one cache, of what memory is left, has to have the activations of 16 rows.
  static constexpr int kStageRoom = (kMemory == kSmallMemory ? kSmallMemory
                                     : kBlocks == 2          ? 92
                                     : kTiles > 1            ? (kGoesOn ? 134 : 98)
                                                             : 150) *
                                        1024 -
                                    kTaken;
  static constexpr int kLeastDepth = kMostRoom / kAllStages > 3 ? 3 : kMostRoom / kAllStages;
  static constexpr int kMostDepth = kStageRoom / kAllStages;
  static constexpr bool kFits = kLeastDepth > 0;
  static constexpr int kDepth = kMostDepth > 6             ? 6
                                : kMostDepth < kLeastDepth ? kLeastDepth
                                                           : kMostDepth;
  // Whether a lane's registers suffice for a whole step of activations.
  static constexpr bool kAhead = kTiles <= (U::kSuperBytes > 0 ? 2 : 4);

  using UnitSums = float[kSegments][kRows][kPitch];
  struct Both {
    unsigned char stages[kSegments][kDepth][kStageBytes];
    UnitSums sums[kSumUnits];
  };
  union Either {
    unsigned char stages[kSegments][kDepth][kStageBytes];
    UnitSums sums[kSumUnits];
  };
  struct Shared {
    std::conditional_t<kStays, Both, Either> memory;
    float inverse[kRows];
    int rows;                 // without kGoesOn
    simt::Barrier handed[2];  // with kGoesOn: all warps' sums of a unit, in turn
  };
};

// A block's share of the panels, unit by unit: see ProductArgs.
class PanelShare {
 public:
  SIMT_DEV PanelShare(const ProductArgs& args, int unit) : unit_(unit) {
    const int block = static_cast<int>(blockIdx.x), more = args.more;
    begin_ = block * args.each + (block < more ? block : more) * args.group;
    end_ = begin_ + args.each + (block < more ? args.group : 0);
  }
  SIMT_DEV int begin() const { return begin_; }
  SIMT_DEV int end() const { return end_; }
  // Of the unit that begins there; 0: there is none.
  SIMT_DEV int count(int panel) const {
    const int left = end_ - panel;
    return left < unit_ ? left : unit_;
  }

 private:
  int unit_, begin_, end_;
};

// What a block multiplies, and which rows: here those of the arguments, or kBlockRows of them for
// each blockIdx.y if that is not 0. Experts have another one.
template <int kBlockRows>
class WholeProduct {
 public:
  SIMT_DEV explicit WholeProduct(const ProductArgs& args) : args_(args) {}
  SIMT_DEV const ProductArgs::Part& part(int index) const { return args_.parts[index]; }
  // Rows that there may be, and once the launch before has ended, those that are there.
  SIMT_DEV int most_rows() const { return args_.most_rows - first(); }
  SIMT_DEV int rows() const { return *args_.rows - first(); }
  // The row of x and norm, and of what comes out, that a row is.
  SIMT_DEV int source_row(int row) const { return first() + row; }
  SIMT_DEV int target_row(int row) const { return first() + row; }
  // Elements of x from a row of one tile of eight to the same of the next.
  template <int kTiles>
  SIMT_DEV int64_t eight_rows(const ProductArgs& args, int) const {
    return static_cast<int64_t>(8) * args.x_stride;
  }

 private:
  SIMT_DEV static int first() {
    return kBlockRows > 0 ? static_cast<int>(blockIdx.y) * kBlockRows : 0;
  }

  const ProductArgs& args_;
};

template <typename S, typename Place>
class ProductWarp {
 public:
  using U = typename S::U;
  using Shared = typename S::Shared;
  using Sums = typename S::Sums;
  static constexpr MatrixKind kKind = S::kKind;
  static constexpr int kPanels = S::kPanels, kTiles = S::kTiles, kSteps = S::kSteps;
  static constexpr int kScaleLanes = kSteps * 4;             // that copy a panel's
  static constexpr int kRowLanes = S::kRowsInStage ? 8 : 4;  // that load or copy a row's
  static constexpr int kSuperLanes = U::kSuperBytes > 0 ? U::kSuperBytes / 16 : 1;

  SIMT_DEV ProductWarp(const ProductArgs& args, const Place& place, const PanelShare& share,
                       Shared& shared)
      : args_(args),
        place_(place),
        shared_(shared),
        share_(share),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        begin_(segment_begin(args.steps, warp_)),
        end_(segment_begin(args.steps, warp_ + 1)),
        copy_panel_(share.begin()),
        copy_step_(begin_),
        row_(reinterpret_cast<const unsigned char*>(
                 args.x + static_cast<int64_t>(place.source_row(first_row_of(lane_ / kRowLanes))) *
                              args.x_stride) +
             lane_ % kRowLanes * (U::kGroupsOf16 ? 8 : 16)),
        eight_rows_(place.template eight_rows<kTiles>(args, lane_ / kRowLanes)),
        tiles_((place.most_rows() - lane_ / 4 + 7) / 8) {
    if constexpr (S::kAhead && !S::kRowsInStage) {
      for (Inputs<kTiles>& inputs : inputs_) clear(inputs);
    }
  }

  // Asks for the first of what run() needs.
  SIMT_DEV void start() {
    find_weights();
    copy_count_ = begin_ < end_ ? share_.count(copy_panel_) : 0;
    int filled = 0;
    while (filled < S::kDepth && copy_count_ > 0) {
      const int left = end_ - copy_step_, room = S::kDepth - filled;
      const int stages = (left + kSteps - 1) / kSteps;
      const int last = filled + (stages < room ? stages : room);
      SIMT_UNROLL_BY(1)
      for (; filled < last; ++filled) copy(filled);
      if (copy_step_ >= end_) find_next_weights();
    }
    SIMT_UNROLL_BY(1)
    for (; filled < S::kDepth; ++filled) simt::copy_commit();
    simt::wait_for_previous();
    if constexpr (S::kRowsInStage) {
      int step = begin_;
      SIMT_UNROLL_BY(1)
      for (int i = 0; i < S::kDepth; ++i) {
        copy_rows(begin_ < end_, step, shared_.memory.stages[warp_][i]);
        step = step + kSteps < end_ ? step + kSteps : begin_;
      }
      simt::copy_commit();
    } else if constexpr (S::kAhead) {
      SIMT_UNROLL
      for (int half = 0; half < 2; ++half) load_rows(x_of(begin_), half, inputs_[half]);
    }
    const int left = place_.rows();
    find_norms();
    const int rows = left < S::kRows ? left : S::kRows;
    if constexpr (S::kGoesOn) {
      rows_ = rows;
    } else if (threadIdx.x == 0) {
      shared_.rows = rows;
    }
    if constexpr (S::kRowsInStage) simt::copy_wait<0>();  // from now on rows are of a stage's group
  }

  // Of those that are there, as many as the block can have. Without kGoesOn once all warps have
  // met.
  SIMT_DEV int rows() const {
    if constexpr (S::kGoesOn) {
      return rows_;
    } else {
      return shared_.rows;
    }
  }

  // The sums of the segment in the next unit, of kNow panels.
  template <int kNow>
  SIMT_DEV void run(Sums& sums) {
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      SIMT_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        SIMT_UNROLL
        for (int j = 0; j < 4; ++j) sums[p][i][j] = 0.0f;
      }
    }
    for (int step = begin_; step < end_;) {
      // Until the segment ends, or that of the unit that is being copied.
      int count = end_ - step;
      if (copy_count_ > 0 && end_ - copy_step_ < count) count = end_ - copy_step_;
      for (const int last = step + count; step < last; step += kSteps) {
        simt::copy_wait<S::kDepth - 1>();
        __syncwarp();
        add_stage<kNow>(step, sums);
        slot_ = slot_ + 1 == S::kDepth ? 0 : slot_ + 1;
      }
      if (copy_step_ >= end_) find_next_weights();
    }
  }

 private:
  template <int kNow>
  SIMT_DEV void add_stage(int step, Sums& sums) {
    if constexpr (!S::kAhead) {
      add_as_loaded<kNow>(step, sums);
    } else if (kSteps == 1 || step + kSteps <= end_) {
      const unsigned char* x = x_of(step);
      SIMT_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        add<kNow>(i, i + 1 < kSteps ? x + (i + 1) * (kStep * 2) : x_behind(step + i), sums);
      }
      if constexpr (kSteps > 1) copy_again();
    } else {
      SIMT_UNROLL_BY(1)
      for (int i = 0; step + i < end_; ++i) add<kNow>(i, x_behind(step + i), sums);
      copy_again();
    }
  }

  // The activations of a step, and of the one behind it; behind the last comes the first, of the
  // next unit.
  SIMT_DEV const unsigned char* x_of(int step) const {
    return row_ + uint64_t{static_cast<uint32_t>(step)} * (kStep * 2);
  }
  SIMT_DEV const unsigned char* x_behind(int step) const {
    return x_of(step + 1 < end_ ? step + 1 : begin_);
  }

  // Panel by panel, of which one's codes are in registers.
  template <int kNow>
  SIMT_DEV void add(int in_stage, const unsigned char* next_x, Sums& sums) {
    if constexpr (S::kRowsInStage) {
      const unsigned char* rows =
          shared_.memory.stages[warp_][slot_] + S::kRowsAt + in_stage * (S::kRows * kStep * 2);
      SIMT_UNROLL
      for (int half = 0; half < 2; ++half) {
        read_row<U::kGroupsOf16>(rows, lane_ / 4, half, lane_ % 4, inputs_[half].b[0]);
      }
    }
    SIMT_UNROLL
    for (Inputs<kTiles>& inputs : inputs_) {
      if constexpr (Panel<kKind, kTiles>::kHasMinima) inputs.add_up();
    }
    SIMT_UNROLL
    for (int p = 0; p < kNow; ++p) {
      Codes<U> codes;
      read(p, in_stage, codes);
      if (kSteps == 1 && p == kNow - 1) copy_again();
      SIMT_UNROLL
      for (int half = 0; half < 2; ++half) {
        Panel<kKind, kTiles>::add(codes, half, inputs_[half], sums[p]);
      }
    }
    if constexpr (!S::kRowsInStage) {
      SIMT_UNROLL
      for (int half = 0; half < 2; ++half) load_rows(next_x, half, inputs_[half]);
    }
  }

  // Half by half, of which one's activations are in registers.
  template <int kNow>
  SIMT_DEV void add_as_loaded(int step, Sums& sums) {
    Codes<U> codes[kNow];
    SIMT_UNROLL
    for (int p = 0; p < kNow; ++p) read(p, 0, codes[p]);
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      Inputs<kTiles> inputs;
      clear(inputs);
      load_rows(x_of(step), half, inputs);
      if constexpr (Panel<kKind, kTiles>::kHasMinima) inputs.add_up();
      SIMT_UNROLL
      for (int p = 0; p < kNow; ++p) {
        Panel<kKind, kTiles>::add(codes[p], half, inputs, sums[p]);
      }
    }
    copy_again();
  }

  SIMT_DEV void read(int p, int in_stage, Codes<U>& codes) const {
    const unsigned char* stage = shared_.memory.stages[warp_][slot_];
    const int at = p * kSteps + in_stage;
    Reader<kKind>::read(stage + at * U::kCodeBytes, stage + S::kScalesAt + at * U::kScaleBytes,
                        stage + S::kSupersAt + p * U::kSuperBytes, lane_, codes);
  }

  // The stage has been read.
  SIMT_DEV void copy_again() {
    __syncwarp();
    if constexpr (S::kRowsInStage) {
      copy_rows(copy_count_ > 0, copy_step_, shared_.memory.stages[warp_][slot_]);
    }
    copy(slot_);
  }

  // Rows that are not there are zeros.
  SIMT_DEV static void clear(Inputs<kTiles>& inputs) {
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) inputs.b[i][j] = 0;
    }
  }

  SIMT_DEV void load_rows(const unsigned char* of_step, int half, Inputs<kTiles>& inputs) const {
    const auto* x = reinterpret_cast<const uint16_t*>(of_step) + half * 32;
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) load_row(i, x + i * eight_rows_, inputs.b[i]);
  }

  // Of one tile, rows that are not there are taken for the last one, without a branch.
  SIMT_DEV int first_row_of(int row) const {
    return kTiles > 1 || S::kRowsInStage || row < place_.most_rows() ? row : place_.most_rows() - 1;
  }
  // Of a tile's row of the lane, if there can be one.
  SIMT_DEV void load_row(int tile, const uint16_t* x, uint32_t (&b)[4]) const {
    if (kTiles > 1 && tile >= tiles_) return;
    if constexpr (U::kGroupsOf16) {
      const uint2 first = *reinterpret_cast<const uint2*>(x);
      const uint2 second = *reinterpret_cast<const uint2*>(x + 16);
      b[0] = first.x, b[1] = first.y, b[2] = second.x, b[3] = second.y;
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(x);
      b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
    }
  }

  // Where the weights of the unit that is to be copied lie.
  SIMT_DEV void find_weights() {
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      int index = copy_panel_ + p;
      if (index >= args_.panels) index = args_.panels - 1;  // computed for nothing
      const PanelPlace place = panel_place(args_, index);
      const ProductArgs::Part& part = place_.part(place.part);
      const int64_t first = static_cast<int64_t>(place.index) * args_.steps;
      codes_[p] = part.codes + first * U::kCodeBytes + lane_ * 16;
      // A lane has 16 bytes of one panel's scales, or of its super.
      if constexpr (U::kScaleBytes > 0) {
        if (lane_ / kScaleLanes == p) {
          scales_ = part.scales + first * U::kScaleBytes + lane_ % kScaleLanes * 16;
        }
      }
      if constexpr (U::kSuperBytes > 0) {
        if (lane_ >= 16 && (lane_ - 16) / kSuperLanes == p) {
          scales_ = part.supers + first / 4 * U::kSuperBytes + lane_ % kSuperLanes * 16;
        }
      }
    }
  }

  // The same of the unit after it, if there is one.
  SIMT_DEV void find_next_weights() {
    copy_panel_ += kPanels;
    copy_step_ = begin_;
    const bool is_there = copy_count_ > 0 && copy_panel_ < share_.end();
    copy_count_ = is_there ? share_.count(copy_panel_) : 0;
    if (copy_count_ == 0) return;
    const bool is_last = copy_panel_ + kPanels > args_.panels;
    if (is_last || (!args_.paired && args_.parts[0].panels < args_.panels)) {
      find_weights();
      return;
    }
    // Those of pairs have as many panels of each part.
    const int64_t steps = static_cast<int64_t>(args_.paired ? kPanels / 2 : kPanels) * args_.steps;
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) codes_[p] += steps * U::kCodeBytes;
    if constexpr (U::kSuperBytes > 0) {
      scales_ += lane_ < 16 ? steps * U::kScaleBytes : steps / 4 * U::kSuperBytes;
    } else {
      scales_ += steps * U::kScaleBytes;
    }
  }

  // The next stage that has not been copied, if there is one.
  SIMT_DEV void copy(int slot) {
    unsigned char* stage = shared_.memory.stages[warp_][slot];
    const auto step = static_cast<uint32_t>(copy_step_);
    SIMT_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      constexpr int kBytes = kSteps * U::kCodeBytes;
      const unsigned char* codes = codes_[p] + uint64_t{step} * U::kCodeBytes;
      SIMT_UNROLL
      for (int at = 0; at < kBytes; at += 512) {
        const bool is_asked = at < U::kCodeBytes || copy_step_ + at / U::kCodeBytes < end_;
        simt::copy_async16_if(p < copy_count_ && is_asked && (at + 512 <= kBytes || lane_ < 16),
                              stage + p * kBytes + at + lane_ * 16, codes + at);
      }
    }
    if constexpr (U::kSuperBytes > 0) {
      const bool is_scale = lane_ < 16;
      const bool is_asked =
          is_scale ? lane_ < copy_count_ * 4 : lane_ - 16 < copy_count_ * kSuperLanes;
      // A super is of four steps.
      simt::copy_async16_if(
          is_asked,
          stage + (is_scale ? S::kScalesAt + lane_ * 16 : S::kSupersAt + (lane_ - 16) * 16),
          scales_ + (is_scale ? step * U::kScaleBytes : step / 4 * U::kSuperBytes));
    } else if constexpr (U::kScaleBytes > 0) {
      const bool is_asked = kSteps == 1 || copy_step_ + lane_ % kScaleLanes / 4 < end_;
      simt::copy_async16_if(lane_ < copy_count_ * kScaleLanes && is_asked,
                            stage + S::kScalesAt + lane_ * 16,
                            scales_ + uint64_t{step} * U::kScaleBytes);
    }
    simt::copy_commit();
    copy_step_ += kSteps;
  }

  // Of a stage: a lane has 16 bytes of rows lane / 8 and lane / 8 + 4. What is not there stays as
  // it was: other rows do not depend on it.
  SIMT_DEV void copy_rows(bool is_there, int step, unsigned char* stage) const {
    const unsigned char* x = x_of(step);
    unsigned char* to = stage + S::kRowsAt + piece_at(lane_ / kRowLanes, lane_ % kRowLanes);
    SIMT_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      const bool is_asked = is_there && (i == 0 || step + i < end_);
      const int at = i * (kStep * 2), row = lane_ / kRowLanes;
      simt::copy_async16_if(is_asked && row < place_.most_rows(), to + at * S::kRows, x + at);
      // Four rows on: eight_rows_ counts elements, of 2 bytes.
      simt::copy_async16_if(is_asked && row + 4 < place_.most_rows(),
                            to + at * S::kRows + 4 * kStep * 2, x + eight_rows_ + at);
    }
  }

  // Of all rows that there may be, as how many there are is on its way.
  SIMT_DEV void find_norms() {
    if (args_.norm.squares == nullptr) return;
    for (int row = warp_; row < place_.most_rows() && row < S::kRows; row += kSegments) {
      const float inverse = inverse_rms(args_.norm, place_.source_row(row));
      if (lane_ == 0) shared_.inverse[row] = inverse;
    }
  }

  const ProductArgs& args_;
  const Place& place_;
  Shared& shared_;
  PanelShare share_;
  int warp_, lane_, begin_, end_;
  int copy_panel_, copy_step_;  // to be copied: the first of a unit, of so many
  int copy_count_ = 0;          // 0: no more
  int slot_ = 0;
  [[maybe_unused]] int rows_ = 0;  // with kGoesOn
  const unsigned char* row_;       // the lane's, of the first tile
  int64_t eight_rows_;             // elements to the next tile's row
  int tiles_;                      // in which there can be a row of the lane's
  const unsigned char* codes_[kPanels];
  const unsigned char* scales_ = place_.part(0).codes;
  Inputs<kTiles> inputs_[2];
};

// A unit of the block's share, and what becomes of it.
struct ProductUnit {
  int first, count;  // panels
  int rows;
  int thread;  // the calling one's number among those that share the work
};

// The segments' sums of an output, one after the other.
template <typename S>
SIMT_DEV float added_up(const typename S::UnitSums& sums, int row, int output) {
  float sum = 0.0f;
  SIMT_UNROLL
  for (int segment = 0; segment < kSegments; ++segment) sum += sums[segment][row][output];
  return sum;
}

template <typename S, typename Place>
SIMT_DEV void write_pairs(const ProductArgs& a, const Place& of, const ProductUnit& unit,
                          const typename S::UnitSums& sums, const float* inverses) {
  constexpr int kHalf = S::kOutputs / 2;
  for (int i = unit.thread; i < S::kRows * kHalf; i += kProductThreads) {
    const int row = i / kHalf, of_pair = i % kHalf, pair = of_pair / kPanel;
    const int n = (unit.first / 2 + pair) * kPanel + of_pair % kPanel;
    if (row >= unit.rows || pair * 2 >= unit.count || n >= a.n) continue;
    const float inverse = a.norm.squares != nullptr ? inverses[row] : 1.0f;
    const int at = pair * 2 * kPanel + of_pair % kPanel;
    const float gate = finish(a, of.part(0), n, added_up<S>(sums, row, at), inverse);
    const float up = finish(a, of.part(1), n, added_up<S>(sums, row, at + kPanel), inverse);
    a.out[static_cast<int64_t>(of.target_row(row)) * a.out_stride + n] =
        simt::to_bf16(gated(a.glu, gate, up));
  }
}

// What a thread's first output is added to, asked for while the sums are made.
struct StreamPlace {
  float x = 0.0f, weight = 0.0f;
};
template <typename S, typename Place>
SIMT_DEV StreamPlace stream_place(const ProductArgs& a, const Place& of, int panel) {
  StreamPlace place;
  if constexpr (S::kOutputs > kPanel) return place;  // registers are few
  const int row = static_cast<int>(threadIdx.x) / S::kOutputs;
  const int n = panel * kPanel + static_cast<int>(threadIdx.x) % S::kOutputs;
  if (a.output != Output::kResidual || row >= of.most_rows() || row >= S::kRows || n >= a.n) {
    return place;
  }
  place.x = a.y[static_cast<int64_t>(of.target_row(row)) * a.y_stride + n];
  if (a.next.out != nullptr) place.weight = a.next.weight[n];
  return place;
}

template <typename S, typename Place>
SIMT_DEV void write_outputs(const ProductArgs& a, const Place& of, const ProductUnit& unit,
                            const typename S::UnitSums& sums, const float* inverses,
                            const StreamPlace& stream) {
  // All lanes go the same way: sums of squares are taken across them.
  for (int i = unit.thread; i < S::kRows * S::kOutputs; i += kProductThreads) {
    const int row = i / S::kOutputs, output = i % S::kOutputs;
    const int panel = unit.first + output / kPanel;
    const int n = panel * kPanel + output % kPanel, to = of.target_row(row);
    const bool is_there =
        row < unit.rows && n < a.n && panel < a.panels && panel < unit.first + unit.count;
    float square = 0.0f;
    if (is_there) {
      const PanelPlace place = panel_place(a, panel);
      const float inverse = a.norm.squares != nullptr ? inverses[row] : 1.0f;
      const float value = finish(a, of.part(place.part), place.index * kPanel + output % kPanel,
                                 added_up<S>(sums, row, output), inverse);
      if (a.output == Output::kResidual) {
        const bool is_known = S::kOutputs == kPanel && i < kProductThreads;
        square = is_known ? add_to_stream(a, to, n, stream.x, stream.weight, value)
                          : add_to_stream(a, to, n, value);
      } else if (a.output == Output::kStore) {
        a.y[static_cast<int64_t>(to) * a.y_stride + n] = value;
      } else {
        a.out[static_cast<int64_t>(to) * a.out_stride + n] = simt::to_bf16(activated(a.glu, value));
      }
    }
    if (a.output != Output::kResidual || a.next.squares == nullptr) continue;
    square = panel_sum(square);
    if (is_there && output % kPanel == 0) {
      a.next.squares[static_cast<int64_t>(to) * a.next.squares_stride + panel] = square;
    }
  }
}

template <typename S, typename Place>
SIMT_DEV void write_unit(const ProductArgs& args, const Place& place, const ProductUnit& unit,
                         const typename S::UnitSums& sums, const float* inverses,
                         const StreamPlace& stream) {
  if (args.paired) {
    write_pairs<S>(args, place, unit, sums, inverses);
  } else {
    write_outputs<S>(args, place, unit, sums, inverses, stream);
  }
}

// The warp's sums, to where those of all segments meet. Rows that are not there stay away: with one
// row that is most of what there is to store.
template <typename S>
SIMT_DEV void hand_over(const typename S::Sums& sums, int rows, typename S::UnitSums& to) {
  const int segment = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  SIMT_UNROLL
  for (int p = 0; p < S::kPanels; ++p) {
    SIMT_UNROLL
    for (int i = 0; i < S::kTiles; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int row = i * 8 + lane % 4 * 2 + j % 2;
        if (row >= rows) continue;
        to[segment][row][p * kPanel + lane / 4 + j / 2 * 8] = sums[p][i][j];
      }
    }
  }
}

template <typename S, typename Warp>
SIMT_DEV void run_unit(Warp& warp, int count, typename S::Sums& sums) {
  constexpr int kHalf = (S::kPanels + 1) / 2;
  if (S::kPanels == 1 || count > kHalf) {
    warp.template run<S::kPanels>(sums);
  } else {
    warp.template run<kHalf>(sums);
  }
}

// Unit by unit, at whose end all warps meet.
template <typename S, typename Place, typename Warp>
SIMT_DEV void run_units(const ProductArgs& args, const Place& place, const PanelShare& share,
                        Warp& warp, typename S::Shared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int panel = share.begin(); panel < share.end(); panel += S::kPanels) {
    typename S::Sums sums;
    const StreamPlace stream = stream_place<S>(args, place, panel);
    const int count = share.count(panel);
    run_unit<S>(warp, count, sums);
    __syncthreads();  // the sums of the unit before have been read
    hand_over<S>(sums, warp.rows(), shared.memory.sums[0]);
    __syncthreads();
    write_unit<S>(args, place, {panel, count, warp.rows(), thread}, shared.memory.sums[0],
                  shared.inverse, stream);
  }
}

// A unit is added up when the warp's sums of the next one are made: by then all others have handed
// over theirs. Other warps have that work in each.
template <typename S, typename Place, typename Warp>
SIMT_DEV void run_on(const ProductArgs& args, const Place& place, const PanelShare& share,
                     Warp& warp, typename S::Shared& shared) {
  ProductUnit unit = {0, 0, warp.rows(), static_cast<int>(threadIdx.x)};
  int index = 0;
  const auto finish_last = [&] {
    const int turn = (index - 1) % 2;
    simt::barrier_wait(shared.handed[turn], (index - 1) / 2 % 2);
    write_unit<S>(args, place, unit, shared.memory.sums[turn], shared.inverse, {});
    unit.thread = (unit.thread + S::kOutputs) % kProductThreads;
  };
  SIMT_UNROLL_BY(1)
  for (int panel = share.begin(); panel < share.end(); panel += S::kPanels) {
    typename S::Sums sums;
    const int count = share.count(panel);
    run_unit<S>(warp, count, sums);
    if (index > 0) finish_last();
    hand_over<S>(sums, unit.rows, shared.memory.sums[index % 2]);
    __syncwarp();
    if (threadIdx.x % 32 == 0) simt::barrier_arrive(shared.handed[index % 2]);
    unit.first = panel;
    unit.count = count;
    ++index;
  }
  if (index > 0) finish_last();
}

// The block's share of a product.
template <typename S, typename Place>
SIMT_DEV void run_product(const ProductArgs& args, const Place& place, typename S::Shared& shared) {
  const PanelShare share(args, S::kPanels);
  ProductWarp<S, Place> warp(args, place, share, shared);
  if constexpr (S::kGoesOn) {
    if (threadIdx.x == 0) {
      for (simt::Barrier& handed : shared.handed) simt::barrier_begin(handed, kSegments);
      simt::barriers_begun();
    }
    __syncthreads();
  }
  warp.start();
  if constexpr (S::kGoesOn) {
    run_on<S>(args, place, share, warp, shared);
  } else {
    run_units<S>(args, place, share, warp, shared);
  }
  simt::copy_wait<0>();
}

template <MatrixKind kKind, int kPanels, int kTiles, int kMemory, int kStagedRows>
__global__ void __launch_bounds__(
    kProductThreads, (ProductShape<kKind, kPanels, kTiles, kMemory, kStagedRows>::kBlocks))
    product_kernel(const __grid_constant__ ProductArgs args) {
  using S = ProductShape<kKind, kPanels, kTiles, kMemory, kStagedRows>;
  simt::release_dependents();
  if constexpr (simt::kHasGroups || !S::kGoesOn) {
    const WholeProduct<S::kBlockRows> place(args);
    run_product<S>(args, place, simt::shared<typename S::Shared>());
  }
}

}  // namespace aerie::device
