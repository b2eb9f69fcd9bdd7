// The inner loops of attention: scores of a few queries with tiles of keys, sums of weights times
// values. Written over the sixteen lanes of simd_*.h, for each type that a cache may have.
#pragma once

#include "kernels/cpu/isa/math_impl.h"

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

// As many vectors of keys or values for each of the queries as there are registers for.
constexpr int vectors_for(int queries) {
  return queries * 4 <= kSumsTogether ? 4 : queries * 2 <= kSumsTogether ? 2 : 1;
}

// What the loops do with a cache of KvType::kF16. A factor is what elements are multiplied with: an
// element of a query, or a weight.
struct Halves {
  using Element = uint16_t;
  using Factor = float;
  using Total = float;  // a lane of the sums

  static constexpr int kTogether = 1;  // elements that are multiplied at a time
  static constexpr bool kQuantized = false;

  AERIE_INLINE Floats zero_sum() { return zero(); }
  AERIE_INLINE Floats widen(const uint16_t* p) { return load_half(p); }
  AERIE_INLINE Floats broadcast(const float* factor) { return set1(*factor); }
  AERIE_INLINE Floats add_product(Floats sum, Floats factor, Floats elements) {
    return fma(factor, elements, sum);
  }
  AERIE_INLINE Floats score(Floats sum, float, const float*) { return sum; }
  AERIE_INLINE Floats result(Floats sum, float) { return sum; }
  static float weight_at(const float* weights, int position, int32_t) { return weights[position]; }
};

// The same with KvType::kQ8. Factors are pairs of 16-bit numbers with a unit for each query, so
// that the sums are integers and exact: 127 of an element, 32767 of a factor and 512 of them (of
// dimensions, or of positions in a chunk) fit 31 bits.
struct Codes {
  using Element = int8_t;
  using Factor = int32_t;
  using Total = int32_t;

  static constexpr int kTogether = 2;
  static constexpr bool kQuantized = true;
  static_assert(int64_t{127} * 32767 *
                    (kMaxHeadDim > kAttentionChunk ? kMaxHeadDim : kAttentionChunk) <
                int64_t{1} << 31);

  AERIE_INLINE Ints zero_sum() { return zero_ints(); }
  AERIE_INLINE Ints widen(const int8_t* p) { return load_i8_pairs(p); }
  AERIE_INLINE Ints broadcast(const int32_t* factor) { return set1_at(factor); }
  AERIE_INLINE Ints add_product(Ints sum, Ints factor, Ints elements) {
    return dot2(sum, elements, factor);
  }
  AERIE_INLINE Floats score(Ints sum, float unit, const float* scales) {
    return mul(to_floats(sum), mul(load(scales), set1(unit)));
  }
  AERIE_INLINE Floats result(Ints sum, float unit) { return mul(to_floats(sum), set1(unit)); }
  // The weight of a position for the half of a pair in which its slot lies.
  static int32_t weight_at(const int32_t* weights, int position, int32_t slot) {
    const auto pair = static_cast<uint32_t>(weights[position / 2]);
    const uint32_t weight = (position % 2 == 0 ? pair : pair >> 16) & 0xFFFF;
    return static_cast<int32_t>(slot % 2 == 0 ? weight : weight << 16);
  }
};

// A group's queries as factors.
template <typename Cache>
struct Queries {
  static constexpr int kStride = kMaxHeadDim / Cache::kTogether;
  const typename Cache::Factor* factors;
  const float* units;
  Queries from(int i) const { return {factors + i * kStride, units + i}; }
};

template <typename Cache>
struct KeyTiles {
  const typename Cache::Element* keys;
  const float* scales;                   // of the positions; unused unless kQuantized
  const typename Cache::Element* ahead;  // what will be read next
};

// As many bytes as one step of a loop over kVectors vectors of keys or values reads. Without it the
// arithmetic and the wait for memory add up instead of running side by side.
template <int kVectors>
AERIE_INLINE void prefetch(const void* p) {
  constexpr int kLine = 64, kVectorBytes = 32;
  __builtin_prefetch(p);
  if constexpr (kVectors * kVectorBytes > kLine) {
    __builtin_prefetch(static_cast<const std::byte*>(p) + kLine);
  }
}

// Scores of kQueries queries with kTiles tiles of keys; query i's go to scores + i * stride.
template <typename Cache, int kQueries, int kTiles>
AERIE_INLINE void score_tiles(Queries<Cache> q, const KeyTiles<Cache>& tiles, int head_dim,
                              int64_t stride, float* scores) {
  constexpr int kVector = kLanes * Cache::kTogether;
  const int64_t tile = static_cast<int64_t>(head_dim) * kKeyTile;
  decltype(Cache::zero_sum()) sums[kQueries][kTiles];
  for (int i = 0; i < kQueries; ++i) {
    for (int t = 0; t < kTiles; ++t) sums[i][t] = Cache::zero_sum();
  }
  for (int step = 0; step < head_dim / Cache::kTogether; ++step) {
    decltype(Cache::zero_sum()) key[kTiles];
    for (int t = 0; t < kTiles; ++t) {
      key[t] = Cache::widen(tiles.keys + t * tile + static_cast<int64_t>(step) * kVector);
    }
    prefetch<kTiles>(tiles.ahead + static_cast<int64_t>(step) * kTiles * kVector);
    for (int i = 0; i < kQueries; ++i) {
      const auto factor = Cache::broadcast(q.factors + i * Queries<Cache>::kStride + step);
      for (int t = 0; t < kTiles; ++t) {
        sums[i][t] = Cache::add_product(sums[i][t], factor, key[t]);
      }
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int t = 0; t < kTiles; ++t) {
      const int at = t * kKeyTile;
      store(scores + i * stride + at, Cache::score(sums[i][t], q.units[i], tiles.scales + at));
    }
  }
}

template <typename Cache>
constexpr int kWeightStride = kAttentionChunk / Cache::kTogether;

// Adds factors [from, to) times values to the totals of kQueries queries, kVectors * 16 dimensions
// from `d` on. row(j) is where the values begin that go with factor j, ahead(j) what will be read
// later.
template <typename Cache, int kQueries, int kVectors, typename Row, typename Ahead>
AERIE_INLINE void add_values(const typename Cache::Factor* weights, int d, int from, int to,
                             const Row& row, const Ahead& ahead, typename Cache::Total* totals) {
  constexpr int kVector = kLanes * Cache::kTogether;
  decltype(Cache::zero_sum()) sums[kQueries][kVectors];
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) sums[i][v] = load(totals + i * kMaxHeadDim + d + v * kLanes);
  }
  for (int j = from; j < to; ++j) {
    const typename Cache::Element* at = row(j) + d * Cache::kTogether;
    decltype(Cache::zero_sum()) value[kVectors];
    for (int v = 0; v < kVectors; ++v) value[v] = Cache::widen(at + v * kVector);
    prefetch<kVectors>(ahead(j) + d * Cache::kTogether);
    for (int i = 0; i < kQueries; ++i) {
      const auto weight = Cache::broadcast(weights + i * kWeightStride<Cache> + j);
      for (int v = 0; v < kVectors; ++v) {
        sums[i][v] = Cache::add_product(sums[i][v], weight, value[v]);
      }
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) store(totals + i * kMaxHeadDim + d + v * kLanes, sums[i][v]);
  }
}

template <typename Cache, int kQueries, typename Row, typename Ahead>
AERIE_INLINE void add_all_values(const typename Cache::Factor* weights, int head_dim, int from,
                                 int to, const Row& row, const Ahead& ahead,
                                 typename Cache::Total* totals) {
  constexpr int kVectors = vectors_for(kQueries);
  int d = 0;
  for (; d + kVectors * kLanes <= head_dim; d += kVectors * kLanes) {
    add_values<Cache, kQueries, kVectors>(weights, d, from, to, row, ahead, totals);
  }
  for (; d < head_dim; d += kLanes) {
    add_values<Cache, kQueries, 1>(weights, d, from, to, row, ahead, totals);
  }
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
