// How rows of activations are grouped for the kernels: tiles of a few rows that share the weights
// that a kernel has loaded and unpacked. The split is even, nine rows as 5 + 4, since a tile of one
// row costs as much to unpack as one of eight. Weights in floats take more rows: their sums are all
// that a kernel keeps in registers.
//
// With `rows` rows in a tile, its activations lie one after the other as
//   ordered      float [k][rows]
// for weights in floats, for all others as
//   codes        int8  [k / 32][rows][32]
//   scales       float [k / 32][rows]
//   sums         int32 [kGroupSums][k / 32][rows]: minus the sums of the codes of a group's first
//                half, of its second, of all
//   scaled_sums  float, the same shape: the sums times the scale
// so that a kernel finds all of a group at fixed distances from one address, and rows of a length
// that is a power of two do not fall on the same lines of the cache.
#pragma once

#include <cstdint>

namespace aerie::kernels {

inline constexpr int kMaxTile = 8;       // rows
inline constexpr int kMaxWideTile = 16;  // with AMX
inline constexpr int kMaxFloatTile = 16;
inline constexpr int kGroupSums = 3;
// Panels that kernels work through side by side: a piece of a matrix has a multiple of them.
inline constexpr int kPanelsTogether = 4;

// Internal to each file that includes it: files of one instruction set share no code with others.
// Of `rows` rows in tiles of at most `most`.
static inline int64_t tile_count(int64_t rows, int64_t most) {
  return (rows + most - 1) / most;
}
// First row of a tile; of tile_count(): `rows`.
static inline int64_t tile_begin(int64_t rows, int64_t most, int64_t tile) {
  return rows * tile / tile_count(rows, most);
}

}  // namespace aerie::kernels
