// The share of one thread in what machine_peak.h measures.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aerie::kernels {

// Inputs are [row][kPeakDepth].
inline constexpr int64_t kPeakDepth = 16;
inline constexpr int64_t kPeakUnroll = 8;  // as a group of weights has words

// Rows and vectors of outputs whose sums sit in registers.
struct PeakTile {
  int columns;
  int rows;
};
inline constexpr PeakTile kPeakTiles[] = {{1, 2}, {1, 4}, {2, 2}, {1, 6}, {2, 8}, {1, 12}, {2, 12}};
inline constexpr int kPeakTileCount = 7;
inline constexpr int kPeakMaxColumns = 2;
inline constexpr int kPeakMaxRows = 12;

enum class PeakKind : uint8_t { kRead, kInt8, kFloat };

struct PeakShare {
  PeakKind kind = PeakKind::kRead;
  int variant = 0;                  // of dots: index of kPeakTiles; of reads: 2^variant streams
  const std::byte* data = nullptr;  // of dots: enough for weights and inputs, all the same
  int64_t bytes = 0;                // to read
  int64_t ahead = 0;                // bytes from what is read to what is prefetched
  int64_t steps = 0;                // of dots; a multiple of kPeakUnroll
  float* result = nullptr;
};
inline constexpr int kPeakStreamVariants = 4;

// Of bfloat16, for the x86 processors that have them. A step is a product for each sum and lane, of
// pairs.
void run_bfloat_dots(const PeakShare& share);
inline constexpr int kBfloatSums = 16;

}  // namespace aerie::kernels
