// Attention of a pass over a cache of latents (LatentAttention in model_config.h): of a position
// there is one key for all heads, and its value is the key's beginning. A block takes up to
// kLatentHeads heads of one row and one chunk of positions; parts of several chunks are put
// together as attention_parts.h says.
//
// Keys and values are the left factors of products and heads are their columns, as in
// device_attention.h. What a row does not see is not read at all, so that a row's numbers are its
// own whatever lies in the cache.
#pragma once

#include <cstdint>

#include "kernels/device/attention/attention_parts.h"
#include "kernels/device/attention/attention_scores.h"
#include "kernels/device/attention/attention_view.h"

namespace aerie::device {

template <int kTiles>
struct LatentShared {
  static constexpr int kColumns = kTiles * 8;
  // Padded so that the lanes of a load touch all banks.
  uint16_t queries[kColumns][kMostLatentDim + 32];
  uint16_t shares[kColumns][kChunk + 32];  // see AttentionShared::share_at()
  float largest[kAttentionWarps][kColumns], sums[kAttentionWarps][kColumns];
  int32_t slots[kChunk];  // of the chunk's positions; -1: the row does not see it
};
static_assert(sizeof(LatentShared<kLatentHeads / 8>) <= 99 * 1024);

template <int kTiles>
class LatentBlock {
 public:
  using Shared = LatentShared<kTiles>;

  SIMT_DEV LatentBlock(const Attend& args, Shared& shared, int row)
      : a_(args),
        shared_(shared),
        row_(args.pass.rows[row]),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32),
        row_index_(row),
        first_head_(static_cast<int>(blockIdx.y) * Shared::kColumns),
        heads_(args.heads - first_head_ < Shared::kColumns ? args.heads - first_head_
                                                           : Shared::kColumns),
        in_row_(static_cast<int>(blockIdx.x)) {
    const int first = args.window > 0 ? row_.position - args.window + 1 : 0;
    first_chunk_ = first > 0 ? first / kChunk : 0;
    chunks_ = row_.position / kChunk + 1 - first_chunk_;
    begin_ = (first_chunk_ + in_row_) * kChunk;
  }

  SIMT_DEV bool is_there() const { return in_row_ < chunks_; }

  // What does not depend on the launch before; and has keys brought near while that still runs.
  SIMT_DEV void find_slots() const {
    static_assert(kAttentionThreads == kChunk);
    const int position = begin_ + thread_;
    const bool seen =
        position <= row_.position && (a_.window == 0 || position > row_.position - a_.window);
    int32_t slot = -1;
    if (seen && (row_.linear != 0 || position < row_.committed)) {
      slot = a_.pass.indices[row_.pages + position / kPage] * kPage + position % kPage;
    } else if (seen) {
      slot = a_.pass.indices[row_.tail + position - row_.committed];
    }
    shared_.slots[thread_] = slot;
    constexpr int kLine = 64;  // elements
    for (int d = 0; slot >= 0 && d < head_dim(); d += kLine) simt::fetch_line(key_at(slot) + d);
    __syncthreads();
  }

  // What is read from afar is asked for before it is needed: the first keys beside the queries, the
  // first values while shares are made.
  SIMT_DEV void run() {
    Queries queries;
    load_queries(queries);
    Keys keys;
    if (is_seen(0)) load_keys(0, keys);
    put_queries(queries);
    __syncthreads();
    Scores scores;
    find(keys, scores);
    constexpr int kAllDims = kAttentionWarps * kWarpDims;
    Values values;
    int d = warp_ * kWarpDims;
    load_values(d + lane_ / 4 * 8, 0, values);
    put_largest(scores);
    __syncthreads();
    put_shares(scores);
    __syncthreads();
    SIMT_UNROLL_BY(1)
    for (; d < rank(); d += kAllDims) {
      Sums sums;
      add_values(d + lane_ / 4 * 8, values, sums);
      put(d + lane_ / 4 * 8, sums);
      if (d + kAllDims < rank()) load_values(d + kAllDims + lane_ / 4 * 8, 0, values);
    }
    if (chunks_ > 1) finish_chunk();
  }

 private:
  static constexpr int kWarpTiles = kChunk / 16 / kAttentionWarps;  // of 16 positions
  static constexpr int kWarpDims = 64;                              // a lane has 8 side by side
  using Scores = float[kWarpTiles][kTiles][4];
  // Of pairs of dimensions: the first of columns 2t and 2t + 1, then the second of these.
  using Sums = float[4][kTiles][4];

  SIMT_DEV int rank() const { return a_.shape.value_prefix; }
  SIMT_DEV int head_dim() const { return a_.shape.head_dim; }
  SIMT_DEV const uint16_t* key_at(int32_t slot) const {
    return a_.plane + static_cast<int64_t>(slot) * head_dim();
  }
  SIMT_DEV int column_of(int tile, int i) const { return tile * 8 + lane_ % 4 * 2 + i % 2; }

  // A column has so many threads, which have pieces of 16 bytes in turn.
  static constexpr int kQueryThreads = kAttentionThreads / Shared::kColumns;
  static constexpr int kQueryPieces = (kMostLatentDim / 8 + kQueryThreads - 1) / kQueryThreads;
  using Queries = uint4[kQueryPieces];

  SIMT_DEV void load_queries(Queries& queries) const {
    const int column = thread_ / kQueryThreads, first = thread_ % kQueryThreads * 8;
    const int64_t head = static_cast<int64_t>(row_index_) * a_.heads + first_head_ + column;
    const uint16_t* q = a_.q + head * head_dim() + first;
    SIMT_UNROLL
    for (int i = 0; i < kQueryPieces; ++i) {
      const int at = i * (kQueryThreads * 8);
      queries[i] = {0, 0, 0, 0};
      if (column < heads_ && first + at < head_dim()) queries[i] = read16(q + at);
    }
  }
  SIMT_DEV void put_queries(const Queries& queries) const {
    const int column = thread_ / kQueryThreads, first = thread_ % kQueryThreads * 8;
    SIMT_UNROLL
    for (int i = 0; i < kQueryPieces; ++i) {
      const int at = first + i * (kQueryThreads * 8);
      if (at < head_dim()) *reinterpret_cast<uint4*>(&shared_.queries[column][at]) = queries[i];
    }
  }

  // Of 16 positions for each w: what the row sees of none of them is not multiplied.
  SIMT_DEV int tile_of(int w) const { return (warp_ + w * kAttentionWarps) * 16; }
  SIMT_DEV bool is_seen(int w) const {
    const int first = begin_ + tile_of(w);
    return first <= row_.position && (a_.window == 0 || first + 15 > row_.position - a_.window);
  }

  // Of 32 dimensions at a time, of which a lane has 8 side by side, 4 for each of two products; of
  // the lane's two positions of a tile. Of what is not seen the row's own key is taken, so that
  // there are numbers of the row's own alone.
  static constexpr int kKeySteps = kTiles > 2 ? 6 : 9;  // that are under way together
  using Keys = uint4[kKeySteps][2];

  SIMT_DEV int key_steps() const { return head_dim() / 32; }
  SIMT_DEV int32_t slot_of(int w, int second) const {
    return shared_.slots[tile_of(w) + lane_ / 4 + second * 8];
  }
  SIMT_DEV const uint16_t* key_of(int w, int second) const {
    const int32_t slot = slot_of(w, second);
    return key_at(slot >= 0 ? slot : row_.slot);
  }
  // Where a lane's keys of so many steps are.
  struct KeyPlace {
    const uint16_t *first = nullptr, *second = nullptr;
    int steps = 0;
  };
  SIMT_DEV KeyPlace key_place(int w, int step) const {
    const int left = key_steps() - step, at = step * 32 + lane_ % 4 * 8;
    return {key_of(w, 0) + at, key_of(w, 1) + at, left < kKeySteps ? left : kKeySteps};
  }
  SIMT_DEV static void load_step(const KeyPlace& from, int i, Keys& keys) {
    if (i >= from.steps) return;
    keys[i][0] = read16(from.first + i * 32);
    keys[i][1] = read16(from.second + i * 32);
  }
  SIMT_DEV void load_keys(int w, Keys& keys) const {
    const KeyPlace from = key_place(w, 0);
    SIMT_UNROLL
    for (int i = 0; i < kKeySteps; ++i) load_step(from, i, keys);
  }

  // Of the warp's positions; -infinity where the row does not see one. `keys`: the first ones of
  // the first tile, if it is seen.
  SIMT_DEV void find(Keys& keys, Scores& scores) const {
    SIMT_UNROLL
    for (int w = 0; w < kWarpTiles; ++w) {
      SIMT_UNROLL
      for (int i = 0; i < kTiles * 4; ++i) scores[w][i / 4][i % 4] = 0.0f;
      if (is_seen(w)) {
        if (w > 0 && !is_seen(w - 1)) load_keys(w, keys);
        multiply_keys(w, keys, scores[w]);
      }
      SIMT_UNROLL
      for (int i = 0; i < kTiles * 4; ++i) {
        float& s = scores[w][i / 4][i % 4];
        s = slot_of(w, i % 4 / 2) >= 0 ? s * a_.scale : -infinity();
      }
    }
  }

  // Behind the last keys of a tile come the first ones of the next, if that is seen.
  SIMT_DEV void multiply_keys(int w, Keys& keys, float (&sums)[kTiles][4]) const {
    const int steps = key_steps();
    SIMT_UNROLL_BY(1)
    for (int step = 0; step < steps; step += kKeySteps) {
      KeyPlace next;
      if (step + kKeySteps < steps) {
        next = key_place(w, step + kKeySteps);
      } else if (w + 1 < kWarpTiles && is_seen(w + 1)) {
        next = key_place(w + 1, 0);
      }
      if (step + kKeySteps <= steps) {
        multiply_steps<true>(step, next, keys, sums);
      } else {
        multiply_steps<false>(step, next, keys, sums);
      }
    }
    if (steps * 32 < head_dim()) multiply_rest(w, sums);
  }
  // kAll: there are so many steps. The next ones take the place of keys that are multiplied.
  template <bool kAll>
  SIMT_DEV void multiply_steps(int step, const KeyPlace& next, Keys& keys,
                               float (&sums)[kTiles][4]) const {
    const uint16_t* queries = &shared_.queries[lane_ / 4][step * 32 + lane_ % 4 * 8];
    constexpr int kStride = sizeof(shared_.queries[0]) / 2;
    SIMT_UNROLL
    for (int s = 0; s < kKeySteps; ++s) {
      if (kAll || step + s < key_steps()) {
        const uint4 &k0 = keys[s][0], &k1 = keys[s][1];
        const uint32_t a0[4] = {k0.x, k1.x, k0.y, k1.y}, a1[4] = {k0.z, k1.z, k0.w, k1.w};
        SIMT_UNROLL
        for (int i = 0; i < kTiles; ++i) {
          const uint4 q = *reinterpret_cast<const uint4*>(queries + i * (8 * kStride) + s * 32);
          const uint32_t b0[2] = {q.x, q.y}, b1[2] = {q.z, q.w};
          simt::mma_f16(sums[i], a0, b0);
          simt::mma_f16(sums[i], a1, b1);
        }
      }
      load_step(next, s, keys);
    }
  }
  // The last 16 dimensions.
  SIMT_DEV void multiply_rest(int w, float (&sums)[kTiles][4]) const {
    const int whole = key_steps() * 32, t = lane_ % 4, g = lane_ / 4;
    const uint2 k0 = read8(key_of(w, 0) + whole + t * 4), k1 = read8(key_of(w, 1) + whole + t * 4);
    const uint32_t a[4] = {k0.x, k1.x, k0.y, k1.y};
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const uint2 q = *reinterpret_cast<const uint2*>(&shared_.queries[i * 8 + g][whole + t * 4]);
      const uint32_t b[2] = {q.x, q.y};
      simt::mma_f16(sums[i], a, b);
    }
  }

  // To shared memory: the largest of each column over the warp's positions.
  SIMT_DEV void put_largest(const Scores& scores) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 2; ++i) {
      float largest = -infinity();
      SIMT_UNROLL
      for (int w = 0; w < kWarpTiles * 2; ++w) {
        largest = simt::max(scores[w / 2][i / 2][w % 2 * 2 + i % 2], largest);
      }
      SIMT_UNROLL
      for (int mask = 4; mask < 32; mask *= 2) {
        largest = simt::max(simt::shuffle_xor(largest, mask), largest);
      }
      if (lane_ < 4) shared_.largest[warp_][column_of(i / 2, i)] = largest;
    }
  }

  // To shared memory: the softmax over the chunk, shares that are not divided by their sum yet, and
  // the sums over the warp's positions.
  SIMT_DEV void put_shares(const Scores& scores) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 2; ++i) {
      const int column = column_of(i / 2, i);
      const float largest = largest_of(column);
      float sum = 0.0f;
      SIMT_UNROLL
      for (int w = 0; w < kWarpTiles * 2; ++w) {
        const float score = scores[w / 2][i / 2][w % 2 * 2 + i % 2];
        const int at = (warp_ + w / 2 * kAttentionWarps) * 16 + lane_ / 4 + w % 2 * 8;
        const uint16_t share =
            score == -infinity() ? uint16_t{0} : simt::to_f16(simt::exp(score - largest));
        shared_.shares[column][AttentionShared<kTiles, 0>::share_at(column, at)] = share;
        sum += simt::from_f16(share);
      }
      SIMT_UNROLL
      for (int mask = 4; mask < 32; mask *= 2) sum += simt::shuffle_xor(sum, mask);
      if (lane_ < 4) shared_.sums[warp_][column] = sum;
    }
  }

  // Over the chunk, once all warps have put theirs.
  SIMT_DEV float largest_of(int column) const {
    float largest = -infinity();
    SIMT_UNROLL
    for (int w = 0; w < kAttentionWarps; ++w) {
      largest = simt::max(shared_.largest[w][column], largest);
    }
    return largest;
  }
  SIMT_DEV float sum_of(int column) const {
    float sum = 0.0f;
    SIMT_UNROLL
    for (int w = 0; w < kAttentionWarps; ++w) sum += shared_.sums[w][column];
    return sum;
  }

  // Of 32 positions a lane has 8 side by side, and of a position the lane's 8 dimensions.
  using Values = uint4[8];

  // Zeros where the row does not see a position.
  SIMT_DEV void load_values(int d, int at, Values& values) const {
    SIMT_UNROLL
    for (int p = 0; p < 8; ++p) {
      const int32_t slot = shared_.slots[at + lane_ % 4 * 8 + p];
      values[p] = {0, 0, 0, 0};
      if (slot >= 0 && d < rank()) values[p] = read16(key_at(slot) + d);
    }
  }

  // Sums of values by shares, of the lane's dimensions [d, d + 8), of which `next` has the first
  // positions' values. The next ones are on their way while some are multiplied.
  SIMT_DEV void add_values(int d, Values& next, Sums& sums) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 16; ++i) sums[i / (kTiles * 4)][i / 4 % kTiles][i % 4] = 0.0f;
    const int seen = row_.position - begin_ + 1, end = seen < kChunk ? seen : kChunk;
    SIMT_UNROLL_BY(1)
    for (int at = 0; at < end; at += 32) {
      uint32_t words[8][4];
      SIMT_UNROLL
      for (int p = 0; p < 8; ++p) {
        words[p][0] = next[p].x;
        words[p][1] = next[p].y;
        words[p][2] = next[p].z;
        words[p][3] = next[p].w;
      }
      if (at + 32 < end) load_values(d, at + 32, next);
      SIMT_UNROLL
      for (int j = 0; j < 4; ++j) multiply_pairs(at, words, j, sums[j]);
    }
  }

  // A word of a key has two dimensions, and products take two positions in one: of a pair of
  // positions lower and upper halves change places.
  SIMT_DEV void multiply_pairs(int at, const uint32_t (&words)[8][4], int j,
                               float (&sums)[kTiles][4]) const {
    uint32_t a[2][4];
    SIMT_UNROLL
    for (int p = 0; p < 8; p += 2) {
      const uint32_t v0 = words[p][j], v1 = words[p + 1][j];
      a[p / 4][p / 2 % 2 * 2] = (v0 & 0xffffu) | v1 << 16;
      a[p / 4][p / 2 % 2 * 2 + 1] = v0 >> 16 | (v1 & 0xffff0000u);
    }
    multiply_shares(at, a, sums);
  }

  SIMT_DEV void multiply_shares(int at, const uint32_t (&a)[2][4], float (&sums)[kTiles][4]) const {
    SIMT_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const int column = i * 8 + lane_ / 4;
      const uint4 p = *reinterpret_cast<const uint4*>(
          &shared_
               .shares[column][AttentionShared<kTiles, 0>::share_at(column, at + lane_ % 4 * 8)]);
      const uint32_t b0[2] = {p.x, p.y}, b1[2] = {p.z, p.w};
      simt::mma_f16(sums[i], a[0], b0);
      simt::mma_f16(sums[i], a[1], b1);
    }
  }

  // The lane's dimensions, of the columns that it has.
  SIMT_DEV void put(int d, const Sums& sums) const {
    if (d >= rank()) return;
    SIMT_UNROLL
    for (int i = 0; i < kTiles * 2; ++i) {
      const int column = column_of(i / 2, i);
      if (column >= heads_) continue;
      float own[8];
      SIMT_UNROLL
      for (int n = 0; n < 8; ++n) own[n] = sums[n / 2][i / 2][n % 2 * 2 + i % 2];
      if (chunks_ > 1) {
        float* part = parts_of_column(column).part(in_row_) + d;
        *reinterpret_cast<float4*>(part) = {own[0], own[1], own[2], own[3]};
        *reinterpret_cast<float4*>(part + 4) = {own[4], own[5], own[6], own[7]};
        continue;
      }
      const float share = simt::reciprocal(sum_of(column));
      uint32_t words[4];
      SIMT_UNROLL
      for (int n = 0; n < 4; ++n) {
        words[n] = simt::pack_bf16(own[2 * n] * share, own[2 * n + 1] * share);
      }
      *reinterpret_cast<uint4*>(out_of(column) + d) = {words[0], words[1], words[2], words[3]};
    }
  }

  SIMT_DEV uint16_t* out_of(int column) const {
    return a_.out + static_cast<int64_t>(row_index_) * a_.out_stride +
           static_cast<int64_t>(first_head_ + column) * a_.out_head;
  }

  SIMT_DEV Parts parts_of_column(int column) const {
    const int64_t row = row_index_ - a_.first_tile;
    const int64_t first = (row * a_.heads + first_head_ + column) * parts_of(a_.most_chunks);
    return {a_.partials + first * part_floats(rank()), rank()};
  }

  // As AttentionBlock's: the group's chunks, then, unless it is the only one, all groups.
  SIMT_DEV void finish_chunk() const {
    if (thread_ < heads_) {
      float* part = parts_of_column(thread_).part(in_row_) + rank();
      part[0] = largest_of(thread_);
      part[1] = sum_of(thread_);
    }
    const int first = first_chunk_, end = first + chunks_;
    const int first_group = first / kGroupChunks, group = (first + in_row_) / kGroupChunks;
    const int groups = (end - 1) / kGroupChunks + 1 - first_group, at = group - first_group;
    const int from = group * kGroupChunks > first ? group * kGroupChunks : first;
    const int to = (group + 1) * kGroupChunks < end ? (group + 1) * kGroupChunks : end;
    const int most = a_.most_chunks;
    const int64_t row = row_index_ - a_.first_tile;
    unsigned* counters = a_.arrived + (row * gridDim.y + blockIdx.y) * counters_of(most);
    int part = from - first, count = to - from;
    SIMT_UNROLL_BY(1)
    for (int stage = groups > 1 ? 0 : 1; stage < 2; ++stage) {
      unsigned* counter = part == most ? counters : counters + 1 + at;
      if (!simt::arrive_last(counter, static_cast<unsigned>(count))) return;
      SIMT_UNROLL_BY(1)
      for (int c = warp_; c < heads_; c += kAttentionWarps) {
        MergeWarp(parts_of_column(c), part, count)
            .run(stage == 0 ? most + at : -1, -infinity(), out_of(c));
      }
      part = most;
      count = groups;
    }
  }

  const Attend& a_;
  Shared& shared_;
  const PassRow row_;
  const int thread_, lane_, warp_, row_index_;
  const int first_head_, heads_;  // of the block
  const int in_row_;              // number of the chunk among those of the row
  int first_chunk_, chunks_, begin_;
};

template <int kTiles>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    latent_attention_kernel(const __grid_constant__ Attend a) {
  auto& shared = simt::shared<LatentShared<kTiles>>();
  simt::release_dependents();
  const int row = a.first_tile + static_cast<int>(blockIdx.z);
  if (row >= a.pass.counts[kRowCount]) return simt::wait_for_previous();
  LatentBlock<kTiles> block(a, shared, row);
  if (block.is_there()) block.find_slots();
  simt::wait_for_previous();
  if (block.is_there()) block.run();
}

}  // namespace aerie::device
