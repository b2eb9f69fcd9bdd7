// Attention of a few queries over one chunk of keys, written over the sixteen lanes of simd_*.h.
// Keys and values are widened once for a group of queries, as many as the registers hold sums of;
// what a query computes does not depend on which others it is computed with.
#pragma once

#include "kernels/cpu/isa/attention/attention_tiles_impl.h"

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

constexpr int kTilesPerPage = kPagePositions / kKeyTile;

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

template <typename Cache>
AERIE_INLINE const typename Cache::Element* elements_of(const std::byte* half) {
  return reinterpret_cast<const typename Cache::Element*>(half);
}
AERIE_INLINE const float* scales_of(const ChunkShare& s, const std::byte* half) {
  return reinterpret_cast<const float*>(half + s.layout.elements());
}

// Factors that go with 32767 at the largest magnitude.
struct PairScale {
  explicit PairScale(const Extent& extent)
      : inverse(is_zero(extent) ? 0.0f : 32767.0f / extent.largest),
        unit(is_zero(extent) ? extent.zero_or_nan : extent.largest / 32767.0f) {}

  float inverse;
  // NaN if there is an infinity or a NaN, 0 if all are next to 0; then the pairs are zeros.
  float unit;

 private:
  // So that neither the unit nor its inverse leaves the range.
  static bool is_zero(const Extent& e) { return e.zero_or_nan != 0.0f || e.largest < 1e-30f; }
};

// n floats, a multiple of 16, as pairs of 16-bit numbers.
void store_pairs(const float* x, int n, float inverse, int32_t* pairs) {
  if (inverse == 0.0f) {
    for (int i = 0; i < n; i += kLanes) store_i16(pairs + i / 2, zero_ints());
    return;
  }
  for (int i = 0; i < n; i += kLanes) {
    store_i16(pairs + i / 2, to_ints(mul(load(x + i), set1(inverse))));
  }
}

// The group's queries side by side, so that one address leads to all of them; factors or units are
// times what scores would be multiplied by.
template <typename Cache>
void copy_queries(const ChunkShare& s, const ChunkQuery* query, int queries,
                  typename Cache::Factor* factors, float* units) {
  const float factor = s.soft_cap != 0.0f ? s.scale : s.scale * kLog2E;
  for (int i = 0; i < queries; ++i) {
    auto* to = factors + i * Queries<Cache>::kStride;
    if constexpr (Cache::kQuantized) {
      const PairScale scale(extent_of(query[i].q, s.layout.head_dim));
      store_pairs(query[i].q, s.layout.head_dim, scale.inverse, to);
      units[i] = factor * scale.unit;
    } else {
      for (int d = 0; d < s.layout.head_dim; d += kLanes) {
        store(to + d, mul(load(query[i].q + d), set1(factor)));
      }
      units[i] = 1.0f;
    }
  }
}

// Scores of the tiles that any of the queries sees through the chunk's pages.
template <typename Cache, int kQueries>
void score_pages(const ChunkShare& s, const ChunkQuery* query, Queries<Cache> q, float* scores) {
  constexpr int kTiles = vectors_for(kQueries);
  const int head_dim = s.layout.head_dim;
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
    const int tile = t % kTilesPerPage;
    const int64_t at = static_cast<int64_t>(tile) * head_dim * kKeyTile;
    const KeyTiles<Cache> tiles = {elements_of<Cache>(s.keys[page]) + at,
                                   scales_of(s, s.keys[page]) + tile * kKeyTile,
                                   elements_of<Cache>(s.values[page]) + at};
    float* to = scores + t * kKeyTile;
    if (left >= kTiles) {
      score_tiles<Cache, kQueries, kTiles>(q, tiles, head_dim, kAttentionChunk, to);
      t += kTiles;
    } else if (kTiles > 2 && left >= 2) {
      score_tiles<Cache, kQueries, 2>(q, tiles, head_dim, kAttentionChunk, to);
      t += 2;
    } else {
      score_tiles<Cache, kQueries, 1>(q, tiles, head_dim, kAttentionChunk, to);
      ++t;
    }
  }
}

// Scores of a query's own positions: a tile's are computed where it lies, and those of the
// positions picked.
template <typename Cache, int kQueries>
void score_own(const ChunkShare& s, const ChunkQuery* query, Queries<Cache> q, float* scores) {
  alignas(64) float tile_scores[kQueries * kKeyTile];
  int32_t computed = -1;  // the tile whose scores are at hand
  for (int p = query->own; p < query->end; ++p) {
    const int32_t slot = query->slots[p - query->own];
    if (slot / kKeyTile != computed) {
      computed = slot / kKeyTile;
      const std::byte* page = s.kv + s.layout.keys(slot / kPagePositions, s.kv_head);
      const int first = slot % kPagePositions / kKeyTile * kKeyTile;
      const auto* keys = elements_of<Cache>(page) + s.layout.key_element(first, 0);
      score_tiles<Cache, kQueries, 1>(q, {keys, scales_of(s, page) + first, keys},
                                      s.layout.head_dim, kKeyTile, tile_scores);
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

// Scales of the values that the query sees, and 0 for the rest of the vectors that soften() visits.
// The result is NaN if one is.
float gather_scales(const ChunkShare& s, const ChunkQuery& query, float* scales) {
  // Without a position that it sees through the pages there may be no page.
  const int paged = query.begin < query.own ? query.own : 0;
  for (int i = query.begin / kLanes * kLanes; i < paged; i += kLanes) {
    store(scales + i, load(scales_of(s, s.values[i / kPagePositions]) + i % kPagePositions));
  }
  for (int p = query.own; p < query.end; ++p) {
    const int32_t slot = query.slots[p - query.own];
    const std::byte* values = s.kv + s.layout.values(slot / kPagePositions, s.kv_head);
    scales[p] = scales_of(s, values)[slot % kPagePositions];
  }
  for (int p = query.begin / kLanes * kLanes; p < query.begin; ++p) scales[p] = 0.0f;
  for (int p = query.end; p % kLanes != 0; ++p) scales[p] = 0.0f;
  Floats odd = zero();
  for (int i = query.begin / kLanes * kLanes; i < query.end; i += kLanes) {
    odd = fma(load(scales + i), zero(), odd);
  }
  return reduce_add(odd);
}

// As soften(), and the weights times the values' scales then, of which the largest.
float soften_scaled(float* scores, const float* scales, const ChunkQuery& query, float maximum,
                    float& largest_weight) {
  Floats sum = zero(), largest = zero();
  for (int i = query.begin / kLanes * kLanes; i < query.end; i += kLanes) {
    const Floats weight = exp2_nonpositive(sub(load(scores + i), set1(maximum)));
    const Floats scaled = mul(weight, load(scales + i));
    store(scores + i, scaled);
    sum = add(sum, weight);
    largest = max(largest, scaled);
  }
  largest_weight = reduce_max(largest);
  return reduce_add(sum);
}

// A query's weights as pairs, zeros where it sees nothing.
void store_weights(const ChunkQuery& query, const float* weights, float inverse, int32_t* pairs) {
  const int begin = query.begin / kLanes * kLanes;
  const int end = (query.end + kLanes - 1) / kLanes * kLanes;
  store_pairs(weights, begin, 0.0f, pairs);
  store_pairs(weights + begin, end - begin, inverse, pairs + begin / 2);
  store_pairs(weights + end, kAttentionChunk - end, 0.0f, pairs + end / 2);
}

// Values of positions [from, to) of the pages, but for those that are null. Where positions are
// multiplied together, the first and the last may come with another.
template <typename Cache, int kQueries>
void add_page_values(const ChunkShare& s, const typename Cache::Factor* weights, int from, int to,
                     typename Cache::Total* totals) {
  constexpr int kTogether = Cache::kTogether;
  constexpr int kSteps = kPagePositions / kTogether;
  const int64_t step = static_cast<int64_t>(s.layout.head_dim) * kTogether;
  to = (to + kTogether - 1) / kTogether;
  for (int j = from / kTogether; j < to;) {
    const int page = j / kSteps, start = page * kSteps;
    const int end = to - start < kSteps ? to : start + kSteps;
    const std::byte* next = s.next[page] != nullptr ? s.next[page] : s.values[page];
    const auto row = [=, values = elements_of<Cache>(s.values[page])](int n) {
      return values + (n - start) * step;
    };
    const auto ahead = [=, keys = elements_of<Cache>(next)](int n) {
      return keys + (n - start) * step;
    };
    if (s.keys[page] != nullptr) {
      add_all_values<Cache, kQueries>(weights, s.layout.head_dim, j, end, row, ahead, totals);
    }
    j = end;
  }
}

// Values of the own positions of a row's queries, one after the other.
template <typename Cache, int kQueries>
void add_own_values(const ChunkShare& s, const ChunkQuery& query,
                    const typename Cache::Factor* weights, typename Cache::Total* totals) {
  constexpr int kMost = kWeightStride<Cache>;
  typename Cache::Factor factors[kQueries * kMost];
  for (int from = query.own; from < query.end; from += kMost) {
    const int32_t* slots = query.slots + (from - query.own);
    const int count = query.end - from < kMost ? query.end - from : kMost;
    for (int i = 0; i < kQueries; ++i) {
      for (int n = 0; n < count; ++n) {
        factors[i * kMost + n] = Cache::weight_at(weights + i * kMost, from + n, slots[n]);
      }
    }
    const auto row = [&](int j) {
      const int32_t slot = slots[j];
      const int first = slot % kPagePositions / Cache::kTogether * Cache::kTogether;
      return elements_of<Cache>(s.kv + s.layout.values(slot / kPagePositions, s.kv_head)) +
             s.layout.value_element(first, 0);
    };
    add_all_values<Cache, kQueries>(factors, s.layout.head_dim, 0, count, row, row, totals);
  }
}

// Values through the pages. First what some see before the others, then what all see, then what
// some see beyond: a value that a query does not see must not be touched for it, not even with
// weight 0, since it may be anything.
template <int kQueries>
void add_seen_values(const ChunkShare& s, const ChunkQuery* query, const float* weights,
                     float* totals) {
  int begin = 0, end = kAttentionChunk;
  for (int i = 0; i < kQueries; ++i) {
    begin = query[i].begin > begin ? query[i].begin : begin;
    end = query[i].own < end ? query[i].own : end;
  }
  if (begin > end) begin = end;
  const auto add = [&](auto count, int i, int from, int to) {
    add_page_values<Halves, count.value>(s, weights + i * kWeightStride<Halves>, from, to,
                                         totals + i * kMaxHeadDim);
  };
  for_rows(query, kQueries, [&](auto count, int i) {
    add(count, i, query[i].begin, query[i].own < begin ? query[i].own : begin);
  });
  add(Count<kQueries>(), 0, begin, end);
  for_rows(query, kQueries, [&](auto count, int i) {
    add(count, i, query[i].begin > end ? query[i].begin : end, query[i].own);
  });
}

// Codes are numbers whatever they are, and 0 times a number is 0: all queries go over what any
// sees.
template <int kQueries>
void add_seen_values(const ChunkShare& s, const ChunkQuery* query, const int32_t* weights,
                     int32_t* totals) {
  int begin = kAttentionChunk, end = 0;
  for (int i = 0; i < kQueries; ++i) {
    begin = query[i].begin < begin ? query[i].begin : begin;
    end = query[i].own > end ? query[i].own : end;
  }
  add_page_values<Codes, kQueries>(s, weights, begin, end, totals);
}

// Through the pages the query sees nothing at its own positions.
void hide_own(const ChunkQuery& query, int32_t* pairs) {
  for (int p = query.own; p < query.end; ++p) {
    pairs[p / 2] &= static_cast<int32_t>(p % 2 == 0 ? 0xFFFF0000u : 0x0000FFFFu);
  }
}

template <typename Cache, int kQueries>
void add_all_own_values(const ChunkShare& s, const ChunkQuery* query,
                        const typename Cache::Factor* weights, typename Cache::Total* totals) {
  for_rows(query, kQueries, [&](auto count, int i) {
    if (query[i].own == query[i].end) return;
    add_own_values<Cache, count.value>(s, query[i], weights + i * kWeightStride<Cache>,
                                       totals + i * kMaxHeadDim);
  });
}

// Scores to weights, and the values that go with them to the totals.
template <int kQueries>
void add_weighted_values(const ChunkShare& s, const ChunkQuery* query, const float* maximum,
                         float* scores, float* totals, float* units) {
  for (int i = 0; i < kQueries; ++i) {
    float* row = scores + i * kAttentionChunk;
    query[i].partial[s.layout.head_dim + 1] = soften(row, query[i].begin, query[i].end, maximum[i]);
    units[i] = 1.0f;
  }
  add_seen_values<kQueries>(s, query, scores, totals);
  add_all_own_values<Halves, kQueries>(s, query, scores, totals);
}

template <int kQueries>
void add_weighted_values(const ChunkShare& s, const ChunkQuery* query, const float* maximum,
                         float* scores, int32_t* totals, float* units) {
  alignas(64) float scales[kAttentionChunk];
  alignas(64) int32_t pairs[kQueries * kWeightStride<Codes>];
  float inverses[kQueries];
  Extent extent = {};
  for (int i = 0; i < kQueries; ++i) {
    if (i == 0 || row_end(query, i - 1, kQueries) == i) {
      extent.zero_or_nan = gather_scales(s, query[i], scales);
    }
    query[i].partial[s.layout.head_dim + 1] =
        soften_scaled(scores + i * kAttentionChunk, scales, query[i], maximum[i], extent.largest);
    const PairScale scale(extent);
    inverses[i] = scale.inverse;
    units[i] = scale.unit;
  }
  for (int i = 0; i < kQueries; ++i) {
    store_weights(query[i], scores + i * kAttentionChunk, inverses[i],
                  pairs + i * kWeightStride<Codes>);
  }
  // Integers add up to the same in any order.
  add_all_own_values<Codes, kQueries>(s, query, pairs, totals);
  for (int i = 0; i < kQueries; ++i) hide_own(query[i], pairs + i * kWeightStride<Codes>);
  add_seen_values<kQueries>(s, query, pairs, totals);
}

template <typename Cache, int kQueries>
void score_group(const ChunkShare& s, const ChunkQuery* query, float* scores) {
  alignas(64) typename Cache::Factor factors[kQueries * Queries<Cache>::kStride];
  float units[kQueries];
  copy_queries<Cache>(s, query, kQueries, factors, units);
  const Queries<Cache> q = {factors, units};
  score_pages<Cache, kQueries>(s, query, q, scores);
  for_rows(query, kQueries, [&](auto count, int i) {
    if (query[i].own == query[i].end) return;
    score_own<Cache, count.value>(s, query + i, q.from(i), scores + i * kAttentionChunk);
  });
}

template <typename Cache, int kQueries>
void attend_group(const ChunkShare& s, const ChunkQuery* query) {
  const int head_dim = s.layout.head_dim;
  alignas(64) float scores[kQueries * kAttentionChunk];
  alignas(64) typename Cache::Total totals[kQueries * kMaxHeadDim];
  float maximum[kQueries], units[kQueries];
  score_group<Cache, kQueries>(s, query, scores);
  for (int i = 0; i < kQueries; ++i) {
    float* row = scores + i * kAttentionChunk;
    if (s.soft_cap != 0.0f) cap_scores(row, query[i].begin, query[i].end, s.soft_cap);
    hide_unseen(row, query[i].begin, query[i].end);
    maximum[i] = largest_score(row, query[i].begin, query[i].end);
    query[i].partial[head_dim] = maximum[i];
    for (int d = 0; d < head_dim; d += kLanes) {
      store(totals + i * kMaxHeadDim + d, Cache::zero_sum());
    }
  }
  add_weighted_values<kQueries>(s, query, maximum, scores, totals, units);
  for (int i = 0; i < kQueries; ++i) {
    for (int d = 0; d < head_dim; d += kLanes) {
      store(query[i].partial + d, Cache::result(load(totals + i * kMaxHeadDim + d), units[i]));
    }
  }
}

template <typename Cache>
void attend_groups(const ChunkShare& s) {
  for_groups(s.queries,
             [&](auto count, int i) { attend_group<Cache, count.value>(s, s.query + i); });
}

void attention_merge(float* into, const float* from, int64_t count, int64_t stride, int value_dim) {
  for (int64_t first = 0; first < count; first += kLanes) {
    const int n = count - first < kLanes ? static_cast<int>(count - first) : kLanes;
    alignas(64) float a[kLanes] = {}, b[kLanes] = {}, maxima[kLanes];
    for (int i = 0; i < n; ++i) {
      const float x = into[(first + i) * stride + value_dim];
      const float y = from[(first + i) * stride + value_dim];
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
      for (int d = 0; d < value_dim; d += kLanes) {
        store(x + d, fma(load(y + d), y_factor, mul(load(x + d), x_factor)));
      }
      x[value_dim] = maxima[i];
      x[value_dim + 1] = __builtin_fmaf(y[value_dim + 1], b[i], x[value_dim + 1] * a[i]);
    }
  }
}

// What a partial result is multiplied by, given its maximum, its sum and the sink's score. Both are
// taken relative to the larger of maximum and sink, so that neither overflows.
float inverse_with_sink(float maximum, float sum, float sink) {
  // 0 if no score was a number; the sink must not make one of them.
  if (!(sum > 0.0f)) return __builtin_nanf("");
  const float above = maximum - sink * kLog2E;
  alignas(64) float shares[kLanes] = {above > 0.0f ? 0.0f : above, above < 0.0f ? 0.0f : -above};
  store(shares, exp2_nonpositive(load(shares)));
  return shares[0] / __builtin_fmaf(sum, shares[0], shares[1]);
}

void attention_finish(const float* partial, const float* sinks, float* out, int64_t count,
                      int64_t stride, int value_dim) {
  for (int64_t i = 0; i < count; ++i, partial += stride, out += value_dim) {
    const float maximum = partial[value_dim], sum = partial[value_dim + 1];
    const Floats inverse =
        set1(sinks != nullptr ? inverse_with_sink(maximum, sum, sinks[i]) : 1.0f / sum);
    for (int d = 0; d < value_dim; d += kLanes) store(out + d, mul(load(partial + d), inverse));
  }
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
