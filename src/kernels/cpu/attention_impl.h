// Attention of a few queries over one chunk of keys, written over the sixteen lanes of simd_*.h.
// Keys and values are widened once for a group of queries, as many as the registers hold sums of;
// what a query computes does not depend on which others it is computed with.
#pragma once

#include "kernels/cpu/math_impl.h"

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

constexpr int kTilesPerPage = kPagePositions / kKeyTile;

// As many vectors of keys or values for each of the queries as there are registers for.
constexpr int vectors_for(int queries) {
  return queries * 4 <= kSumsTogether ? 4 : queries * 2 <= kSumsTogether ? 2 : 1;
}

template <int kValue>
struct Count {
  static constexpr int value = kValue;
};

// The size of the next group where so many queries are left: as large as the registers allow, but
// without leaving a few behind, which would wait for each other's sums.
constexpr int group_size(int queries) {
  constexpr bool kWide = kSumsTogether >= 24;
  constexpr int kMost = kWide ? 12 : 6;
  constexpr int kSizes[] = {0, 1, 2, 3, 4, 3, 6, 4, kWide ? 8 : 4, 6, 6, kWide ? 8 : 6};
  return queries <= 11 ? kSizes[queries] : kMost;
}

// body(Count<n>, i) for the queries [0, queries) in groups of n from i on.
template <typename Body>
AERIE_INLINE void for_groups(int queries, const Body& body) {
  for (int i = 0; i < queries;) {
    const int size = group_size(queries - i);
    switch (size) {
      case 1:
        body(Count<1>(), i);
        break;
      case 2:
        body(Count<2>(), i);
        break;
      case 3:
        body(Count<3>(), i);
        break;
      case 4:
        body(Count<4>(), i);
        break;
      case 6:
        body(Count<6>(), i);
        break;
      default:
        if constexpr (kSumsTogether >= 24) {
          if (size == 8) body(Count<8>(), i);
          if (size == 12) body(Count<12>(), i);
        }
    }
    i += size;
  }
}

// As many bytes as one step of a loop over kVectors vectors of keys or values reads. Without it the
// arithmetic and the wait for memory add up instead of running side by side.
template <int kVectors>
AERIE_INLINE void prefetch(const uint16_t* p) {
  __builtin_prefetch(p);
  if constexpr (kVectors > 2) __builtin_prefetch(p + 2 * kLanes);
}

// Scores of kQueries queries, which lie kMaxHeadDim floats apart, with kTiles tiles of keys; query
// i's go to scores + i * stride. `ahead` is what will be read next.
template <int kQueries, int kTiles>
AERIE_INLINE void score_tiles(const float* q, const uint16_t* keys, const uint16_t* ahead,
                              int head_dim, int64_t stride, float* scores) {
  const int64_t tile = static_cast<int64_t>(head_dim) * kKeyTile;
  Floats acc[kQueries][kTiles];
  for (int i = 0; i < kQueries; ++i) {
    for (int t = 0; t < kTiles; ++t) acc[i][t] = zero();
  }
  for (int d = 0; d < head_dim; ++d) {
    Floats key[kTiles];
    for (int t = 0; t < kTiles; ++t) key[t] = load_half(keys + t * tile + d * kKeyTile);
    prefetch<kTiles>(ahead + static_cast<int64_t>(d) * kTiles * kKeyTile);
    for (int i = 0; i < kQueries; ++i) {
      const Floats element = set1(q[i * kMaxHeadDim + d]);
      for (int t = 0; t < kTiles; ++t) acc[i][t] = fma(element, key[t], acc[i][t]);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int t = 0; t < kTiles; ++t) {
      store(scores + i * stride + t * kKeyTile, acc[i][t]);
    }
  }
}

// Scores of the tiles that any of the queries sees through the chunk's pages.
template <int kQueries>
void score_pages(const ChunkShare& s, const ChunkQuery* query, const float* q, float* scores) {
  constexpr int kTiles = vectors_for(kQueries);
  int begin = kAttentionChunk, end = 0;
  for (int i = 0; i < kQueries; ++i) {
    begin = query[i].begin < begin ? query[i].begin : begin;
    end = query[i].own > end ? query[i].own : end;
  }
  const int last = (end + kKeyTile - 1) / kKeyTile;
  for (int t = begin / kKeyTile; t < last;) {
    const int page = t / kTilesPerPage;
    const int page_end = (page + 1) * kTilesPerPage;
    const int left = (last < page_end ? last : page_end) - t;
    if (s.keys[page] == nullptr) {
      t += left;
      continue;
    }
    const int64_t at = static_cast<int64_t>(t % kTilesPerPage) * s.layout.head_dim * kKeyTile;
    const uint16_t* keys = s.keys[page] + at;
    const uint16_t* ahead = s.values[page] + at;
    if (left >= kTiles) {
      score_tiles<kQueries, kTiles>(q, keys, ahead, s.layout.head_dim, kAttentionChunk,
                                    scores + t * kKeyTile);
      t += kTiles;
    } else if (kTiles > 2 && left >= 2) {
      score_tiles<kQueries, 2>(q, keys, ahead, s.layout.head_dim, kAttentionChunk,
                               scores + t * kKeyTile);
      t += 2;
    } else {
      score_tiles<kQueries, 1>(q, keys, ahead, s.layout.head_dim, kAttentionChunk,
                               scores + t * kKeyTile);
      ++t;
    }
  }
}

// Scores of a query's own positions: a tile's are computed where it lies, and those of the
// positions picked.
template <int kQueries>
void score_own(const ChunkShare& s, const ChunkQuery* query, const float* q, float* scores) {
  alignas(64) float tile_scores[kQueries * kKeyTile];
  int32_t computed = -1;  // the tile whose scores are at hand
  for (int p = query->own; p < query->end; ++p) {
    const int32_t slot = query->slots[p - query->own];
    if (slot / kKeyTile != computed) {
      computed = slot / kKeyTile;
      const uint16_t* keys = s.kv + s.layout.keys(slot / kPagePositions, s.kv_head) +
                             s.layout.key_element(slot % kPagePositions / kKeyTile * kKeyTile, 0);
      score_tiles<kQueries, 1>(q, keys, keys, s.layout.head_dim, kKeyTile, tile_scores);
    }
    for (int i = 0; i < kQueries; ++i) {
      scores[i * kAttentionChunk + p] = tile_scores[i * kKeyTile + slot % kKeyTile];
    }
  }
}

// The lanes that a query does not see become lower than all that it may see.
void hide_unseen(float* scores, int begin, int end) {
  const Floats lowest = set1(-__builtin_inff());
  float* first = scores + begin / kLanes * kLanes;
  store(first, select_first(begin % kLanes, lowest, load(first)));
  if (end % kLanes == 0) return;
  float* last = scores + end / kLanes * kLanes;
  store(last, select_first(end % kLanes, load(last), lowest));
}

void cap_scores(float* scores, int begin, int end, float cap) {
  for (int i = begin / kLanes * kLanes; i < end; i += kLanes) {
    store(scores + i, mul(soft_capped(load(scores + i), cap), set1(kLog2E)));
  }
}

float largest_score(const float* scores, int begin, int end) {
  Floats largest = set1(-__builtin_inff());
  for (int i = begin / kLanes * kLanes; i < end; i += kLanes) {
    largest = max(largest, load(scores + i));
  }
  return reduce_max(largest);
}

// Scores to weights 2^(score - maximum) in place; the result is their sum. A lane adds up the same
// positions wherever the query begins.
float soften(float* scores, int begin, int end, float maximum) {
  Floats sum = zero();
  for (int i = begin / kLanes * kLanes; i < end; i += kLanes) {
    const Floats weight = exp2_nonpositive(sub(load(scores + i), set1(maximum)));
    store(scores + i, weight);
    sum = add(sum, weight);
  }
  return reduce_add(sum);
}

// Adds weights times values to the partials of kQueries queries, kVectors * 16 dimensions from `d`
// on. row(j) is where the values of position j begin, ahead(j) what will be read later.
template <int kQueries, int kVectors, typename Row, typename Ahead>
AERIE_INLINE void add_values(const ChunkQuery* query, const float* weights, int d, int from, int to,
                             const Row& row, const Ahead& ahead) {
  Floats acc[kQueries][kVectors];
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) acc[i][v] = load(query[i].partial + d + v * kLanes);
  }
  for (int j = from; j < to; ++j) {
    const uint16_t* at = row(j) + d;
    Floats value[kVectors];
    for (int v = 0; v < kVectors; ++v) value[v] = load_half(at + v * kLanes);
    prefetch<kVectors>(ahead(j) + d);
    for (int i = 0; i < kQueries; ++i) {
      const Floats weight = set1(weights[i * kAttentionChunk + j]);
      for (int v = 0; v < kVectors; ++v) acc[i][v] = fma(weight, value[v], acc[i][v]);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) store(query[i].partial + d + v * kLanes, acc[i][v]);
  }
}

template <int kQueries, typename Row, typename Ahead>
AERIE_INLINE void add_all_values(const ChunkShare& s, const ChunkQuery* query, const float* weights,
                                 int from, int to, const Row& row, const Ahead& ahead) {
  constexpr int kVectors = vectors_for(kQueries);
  int d = 0;
  for (; d + kVectors * kLanes <= s.layout.head_dim; d += kVectors * kLanes) {
    add_values<kQueries, kVectors>(query, weights, d, from, to, row, ahead);
  }
  for (; d < s.layout.head_dim; d += kLanes) {
    add_values<kQueries, 1>(query, weights, d, from, to, row, ahead);
  }
}

// Values of positions [from, to), which all the queries see through the pages.
template <int kQueries>
void add_page_values(const ChunkShare& s, const ChunkQuery* query, const float* weights, int from,
                     int to) {
  const int64_t head_dim = s.layout.head_dim;
  while (from < to) {
    const int page = from / kPagePositions, start = page * kPagePositions;
    const int end = to - start < kPagePositions ? to : start + kPagePositions;
    const uint16_t* values = s.values[page];
    const uint16_t* next = s.next[page] != nullptr ? s.next[page] : values;
    add_all_values<kQueries>(
        s, query, weights, from, end, [&](int j) { return values + (j - start) * head_dim; },
        [&](int j) { return next + (j - start) * head_dim; });
    from = end;
  }
}

template <int kQueries>
void add_own_values(const ChunkShare& s, const ChunkQuery* query, const float* weights) {
  const auto row = [&](int j) {
    const int32_t slot = query->slots[j - query->own];
    return s.kv + s.layout.values(slot / kPagePositions, s.kv_head) +
           static_cast<int64_t>(slot % kPagePositions) * s.layout.head_dim;
  };
  add_all_values<kQueries>(s, query, weights, query->own, query->end, row, row);
}

// The first query from `i` on that is not of the same row, which sees other positions.
int row_end(const ChunkQuery* query, int i, int queries) {
  int end = i + 1;
  while (end < queries && query[end].begin == query[i].begin && query[end].end == query[i].end &&
         query[end].slots == query[i].slots) {
    ++end;
  }
  return end;
}

template <typename Body>
AERIE_INLINE void for_rows(const ChunkQuery* query, int queries, const Body& body) {
  for (int from = 0; from < queries;) {
    const int to = row_end(query, from, queries);
    for_groups(to - from, [&](auto count, int i) { body(count, from + i); });
    from = to;
  }
}

// First what some see before the others, then what all see, then what some see beyond: a value
// that a query does not see must not be touched for it, not even with weight 0, since it may be
// anything.
template <int kQueries>
void add_seen_values(const ChunkShare& s, const ChunkQuery* query, const float* weights) {
  int begin = 0, end = kAttentionChunk;
  for (int i = 0; i < kQueries; ++i) {
    begin = query[i].begin > begin ? query[i].begin : begin;
    end = query[i].own < end ? query[i].own : end;
  }
  if (begin > end) begin = end;
  for_rows(query, kQueries, [&](auto count, int i) {
    const int to = query[i].own < begin ? query[i].own : begin;
    add_page_values<count.value>(s, query + i, weights + i * kAttentionChunk, query[i].begin, to);
  });
  add_page_values<kQueries>(s, query, weights, begin, end);
  for_rows(query, kQueries, [&](auto count, int i) {
    const float* own = weights + i * kAttentionChunk;
    const int from = query[i].begin > end ? query[i].begin : end;
    add_page_values<count.value>(s, query + i, own, from, query[i].own);
    if (query[i].own < query[i].end) add_own_values<count.value>(s, query + i, own);
  });
}

// The group's queries side by side, so that one address leads to all of them, times what their
// scores would be multiplied by.
void copy_queries(const ChunkShare& s, const ChunkQuery* query, int queries, float* q) {
  const Floats factor = set1(s.soft_cap != 0.0f ? s.scale : s.scale * kLog2E);
  for (int i = 0; i < queries; ++i) {
    for (int d = 0; d < s.layout.head_dim; d += kLanes) {
      store(q + i * kMaxHeadDim + d, mul(load(query[i].q + d), factor));
    }
  }
}

template <int kQueries>
void attend_group(const ChunkShare& s, const ChunkQuery* query) {
  alignas(64) float q[kQueries * kMaxHeadDim];
  alignas(64) float scores[kQueries * kAttentionChunk];
  copy_queries(s, query, kQueries, q);
  score_pages<kQueries>(s, query, q, scores);
  for_rows(query, kQueries, [&](auto count, int i) {
    if (query[i].own == query[i].end) return;
    score_own<count.value>(s, query + i, q + i * kMaxHeadDim, scores + i * kAttentionChunk);
  });
  float maximum[kQueries];
  for (int i = 0; i < kQueries; ++i) {
    float* row = scores + i * kAttentionChunk;
    const int begin = query[i].begin, end = query[i].end;
    if (s.soft_cap != 0.0f) cap_scores(row, begin, end, s.soft_cap);
    hide_unseen(row, begin, end);
    maximum[i] = largest_score(row, begin, end);
  }
  for (int i = 0; i < kQueries; ++i) {
    float* tail = query[i].partial + s.layout.head_dim;
    tail[0] = maximum[i];
    tail[1] = soften(scores + i * kAttentionChunk, query[i].begin, query[i].end, maximum[i]);
    for (int d = 0; d < s.layout.head_dim; d += kLanes) store(query[i].partial + d, zero());
  }
  add_seen_values<kQueries>(s, query, scores);
}

void attention_chunk(const ChunkShare& s) {
  for_groups(s.queries, [&](auto count, int i) { attend_group<count.value>(s, s.query + i); });
}

void attention_merge(float* into, const float* from, int64_t count, int64_t stride, int head_dim) {
  for (int64_t first = 0; first < count; first += kLanes) {
    const int n = count - first < kLanes ? static_cast<int>(count - first) : kLanes;
    alignas(64) float a[kLanes] = {}, b[kLanes] = {}, maxima[kLanes];
    for (int i = 0; i < n; ++i) {
      const float x = into[(first + i) * stride + head_dim];
      const float y = from[(first + i) * stride + head_dim];
      maxima[i] = x > y ? x : y;
      a[i] = x - maxima[i];
      b[i] = y - maxima[i];
    }
    store(a, exp2_nonpositive(load(a)));
    store(b, exp2_nonpositive(load(b)));
    for (int i = 0; i < n; ++i) {
      float* x = into + (first + i) * stride;
      const float* y = from + (first + i) * stride;
      const Floats x_factor = set1(a[i]), y_factor = set1(b[i]);
      for (int d = 0; d < head_dim; d += kLanes) {
        store(x + d, fma(load(y + d), y_factor, mul(load(x + d), x_factor)));
      }
      x[head_dim] = maxima[i];
      x[head_dim + 1] = __builtin_fmaf(y[head_dim + 1], b[i], x[head_dim + 1] * a[i]);
    }
  }
}

void attention_finish(const float* partial, float* out, int64_t count, int64_t stride,
                      int head_dim) {
  for (int64_t i = 0; i < count; ++i, partial += stride, out += head_dim) {
    const Floats inverse = set1(1.0f / partial[head_dim + 1]);
    for (int d = 0; d < head_dim; d += kLanes) store(out + d, mul(load(partial + d), inverse));
  }
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
