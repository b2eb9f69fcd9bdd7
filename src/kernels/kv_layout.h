// How keys and values lie in a page of the cache.
//
// A page holds kPagePositions positions of one layer. For each key/value head: the keys in tiles of
// 16 positions, [tile][head_dim][16], so that 16 scores are computed side by side; then the values,
// [position][head_dim]. With KvType::kQ8 two dimensions of a key and two positions' values lie side
// by side, since they are multiplied at a time: keys [tile][head_dim / 2][16][2], values
// [position / 2][head_dim][2], each followed by their scales, float [position].
//
// Where values are the beginnings of keys (KvLayout::value_prefix) there are keys alone,
// [position][head_dim]; with KvType::kQ8 followed by two scales for each, float [2][position]: of
// the value, and of the rest of the key.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aerie::kernels {

inline constexpr int kPagePositions = 64;
inline constexpr int kKeyTile = 16;
inline constexpr int kMaxHeadDim = 512;  // and a multiple of 16
inline constexpr int kMaxLongKey = 576;  // the same for keys of which values are the beginnings
// Attention's unit of work and of merging; a whole number of pages.
inline constexpr int kAttentionChunk = 256;

// What a key or a value is rounded to.
enum class KvType : uint8_t {
  kF16,  // binary16
  kQ8,   // int8, -127 to 127, times a scale for each position and head
};
inline constexpr KvType kAllKvTypes[] = {KvType::kF16, KvType::kQ8};
const char* kv_type_name(KvType type);  // "f16", "q8"

struct KvLayout {
  int kv_heads = 0;
  int head_dim = 0;  // a multiple of 16
  KvType type = KvType::kF16;
  // A position's value is so many first elements of its key, and not kept beside it (multi-head
  // latent attention: DeepSeek-AI 2024, 2405.04434). A multiple of 16 below head_dim; 0: values are
  // of their own, as long as keys.
  int value_prefix = 0;
  // Where several processes share a model: of `all_heads` heads this one keeps kv_heads, from
  // `first_head` on. 0: there are no others.
  int first_head = 0;
  int all_heads = 0;

  int value_dim() const { return value_prefix > 0 ? value_prefix : head_dim; }

  // In bytes: the elements of the keys, or of the values, of a head in a page; these with scales.
  int64_t elements() const {
    return int64_t{kPagePositions} * head_dim * (type == KvType::kF16 ? 2 : 1);
  }
  int64_t half_head() const {
    const int scales = type == KvType::kF16 ? 0 : value_prefix > 0 ? 2 : 1;
    return elements() + int64_t{kPagePositions} * 4 * scales;
  }
  int64_t head() const { return value_prefix > 0 ? half_head() : 2 * half_head(); }
  int64_t page() const { return kv_heads * head(); }

  // Of the keys and values of `head` in a page, in bytes from the start of a layer's plane. Scales
  // come elements() after them (scale_at()).
  int64_t keys(int64_t page_index, int head_index) const {
    return page_index * page() + head_index * head();
  }
  int64_t values(int64_t page_index, int head_index) const {
    return keys(page_index, head_index) + (value_prefix > 0 ? 0 : half_head());
  }
  // Of the scale of dimension d at `offset` in its page, in bytes from there.
  int64_t scale_at(int offset, int d) const {
    const bool rest = value_prefix > 0 && d >= value_prefix;
    return elements() + int64_t{rest ? kPagePositions : 0} * 4 + int64_t{offset} * 4;
  }
  // Of dimension d of the key or value at `offset` in its page, in elements.
  int64_t key_element(int offset, int d) const {
    if (value_prefix > 0) return int64_t{offset} * head_dim + d;
    const int n = together();
    return (int64_t{offset / kKeyTile} * head_dim + d / n * n) * kKeyTile + offset % kKeyTile * n +
           d % n;
  }
  int64_t value_element(int offset, int d) const {
    if (value_prefix > 0) return key_element(offset, d);
    const int n = together();
    return int64_t{offset / n * n} * head_dim + int64_t{d} * n + offset % n;
  }
  // Dimensions of a key, positions' values that lie side by side.
  int together() const { return type == KvType::kF16 ? 1 : 2; }
};

// Some of a number of things.
struct Share {
  int begin = 0;
  int count = 0;
};
// What `rank` of `ranks` has of `count` things that are dealt out as evenly as they can be.
Share share_of(int count, int rank, int ranks);

// The heads that a rank keeps of a layout that has all of them: its share, or all if there are
// fewer heads than ranks.
KvLayout layout_of_rank(const KvLayout& whole, int rank, int ranks);

// Rounds a key or value as kQ8 has it; the result is the scale. Zeros with a scale of NaN if an
// element is infinite or NaN; of 0 if all are next to 0.
float quantize_kv(const float* x, int head_dim, int8_t* codes);

// Copies the keys and values of slot `from` to slot `to` (slot = page * kPagePositions + offset)
// within one layer's plane.
void copy_kv(const KvLayout& layout, std::byte* kv, int32_t from, int32_t to);

}  // namespace aerie::kernels
