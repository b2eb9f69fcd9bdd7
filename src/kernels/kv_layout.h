// How keys and values lie in a page of the cache.
//
// A page holds kPagePositions positions of one layer. For each key/value head: the keys in tiles of
// 16 positions, [tile][head_dim][16], so that 16 scores are computed side by side; then the values,
// [position][head_dim]. All in binary16.
#pragma once

#include <cstdint>

namespace aerie::kernels {

inline constexpr int kPagePositions = 64;
inline constexpr int kKeyTile = 16;
inline constexpr int kMaxHeadDim = 256;  // and a multiple of 16
// Attention's unit of work and of merging; a whole number of pages.
inline constexpr int kAttentionChunk = 256;

struct KvLayout {
  int kv_heads = 0;
  int head_dim = 0;  // a multiple of 16

  // In uint16_t.
  int64_t half_head() const { return int64_t{kPagePositions} * head_dim; }
  int64_t head() const { return 2 * half_head(); }
  int64_t page() const { return kv_heads * head(); }

  // Of the keys and values of `head` in a page, from the start of a layer's plane.
  int64_t keys(int64_t page_index, int head_index) const {
    return page_index * page() + head_index * head();
  }
  int64_t values(int64_t page_index, int head_index) const {
    return keys(page_index, head_index) + half_head();
  }
  // Of dimension d of the key at `offset` in its page, from keys().
  int64_t key_element(int offset, int d) const {
    return (int64_t{offset / kKeyTile} * head_dim + d) * kKeyTile + offset % kKeyTile;
  }
};

// Copies the keys and values of slot `from` to slot `to` (slot = page * kPagePositions + offset)
// within one layer's plane.
void copy_kv(const KvLayout& layout, uint16_t* kv, int32_t from, int32_t to);

}  // namespace aerie::kernels
