// Attention of a few queries over one chunk of keys, written over the sixteen lanes of simd_*.h.
// Keys and values are widened once and used for several queries; what a query computes does not
// depend on which others it is computed with.
#pragma once

#include "kernels/cpu/math_impl.h"

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

constexpr int kTilesPerPage = kPagePositions / kKeyTile;
constexpr int kScoreQueries = 6;
constexpr int kValueQueries = 4;
constexpr int kValueLanes = 4;  // vectors of a value row held in registers at a time

template <int kQueries>
void score_tiles(const ChunkShare& s, int query, int begin, int end, float* scores) {
  for (int t = begin; t < end; ++t) {
    const uint16_t* page = s.keys[t / kTilesPerPage];
    if (page == nullptr) continue;
    const uint16_t* keys = page + static_cast<int64_t>(t % kTilesPerPage) * s.head_dim * kKeyTile;
    Floats acc[kQueries];
    for (int i = 0; i < kQueries; ++i) acc[i] = zero();
    for (int d = 0; d < s.head_dim; ++d) {
      const Floats key = load_half(keys + static_cast<int64_t>(d) * kKeyTile);
      for (int i = 0; i < kQueries; ++i) acc[i] = fma(set1(s.q[query + i][d]), key, acc[i]);
    }
    for (int i = 0; i < kQueries; ++i) {
      store(scores + static_cast<int64_t>(query + i) * kAttentionChunk + t * kKeyTile,
            mul(acc[i], set1(s.scale)));
    }
  }
}

// Lanes of `x`, the sixteen from `i` on, that lie in [begin, end); `other` in the rest.
AERIE_INLINE Floats select_seen(int i, int begin, int end, Floats x, Floats other) {
  if (begin > i) x = select_first(begin - i, other, x);
  return select_first(end - i < kLanes ? end - i : kLanes, x, other);
}

void cap_scores(float* scores, int begin, int end, float cap) {
  for (int i = begin / kLanes * kLanes; i < end; i += kLanes) {
    store(scores + i, soft_capped(load(scores + i), cap));
  }
}

// Scores to weights e^(score - maximum) in place; writes maximum and sum to the partial's tail. A
// lane adds up the same positions wherever the query begins.
void soften(float* scores, int begin, int end, float* tail) {
  const int first = begin / kLanes * kLanes;
  const Floats lowest = set1(-__builtin_inff());
  Floats largest = lowest;
  for (int i = first; i < end; i += kLanes) {
    largest = max(largest, select_seen(i, begin, end, load(scores + i), lowest));
  }
  const float maximum = reduce_max(largest);
  Floats sum = zero();
  for (int i = first; i < end; i += kLanes) {
    const Floats e = exp_nonpositive(sub(load(scores + i), set1(maximum)));
    const Floats weight = select_seen(i, begin, end, e, zero());
    store(scores + i, weight);
    sum = add(sum, weight);
  }
  tail[0] = maximum;
  tail[1] = reduce_add(sum);
}

// Adds weights [from, to) times values to the partials of kQueries queries, kVectors * 16
// dimensions from `d` on.
template <int kQueries, int kVectors>
AERIE_INLINE void add_values(const ChunkShare& s, int query, int d, int from, int to,
                             const float* scores) {
  Floats acc[kQueries][kVectors];
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) acc[i][v] = load(s.partial[query + i] + d + v * kLanes);
  }
  for (int j = from; j < to;) {
    const int page = j / kPagePositions, start = page * kPagePositions;
    const int end = to - start < kPagePositions ? to : start + kPagePositions;
    const uint16_t* row = s.values[page] + static_cast<int64_t>(j - start) * s.head_dim + d;
    for (; j < end; ++j, row += s.head_dim) {
      Floats value[kVectors];
      for (int v = 0; v < kVectors; ++v) value[v] = load_half(row + v * kLanes);
      for (int i = 0; i < kQueries; ++i) {
        const Floats weight = set1(scores[static_cast<int64_t>(query + i) * kAttentionChunk + j]);
        for (int v = 0; v < kVectors; ++v) acc[i][v] = fma(weight, value[v], acc[i][v]);
      }
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int v = 0; v < kVectors; ++v) store(s.partial[query + i] + d + v * kLanes, acc[i][v]);
  }
}

template <int kQueries>
void add_all_values(const ChunkShare& s, int query, int from, int to, const float* scores) {
  int d = 0;
  for (; d + kValueLanes * kLanes <= s.head_dim; d += kValueLanes * kLanes) {
    add_values<kQueries, kValueLanes>(s, query, d, from, to, scores);
  }
  for (; d < s.head_dim; d += kLanes) add_values<kQueries, 1>(s, query, d, from, to, scores);
}

// Values of kQueries queries. First what some see before the others, then what all see, then what
// some see beyond: a value that a query does not see must not be touched for it, not even with
// weight 0, since it may be anything.
template <int kQueries>
void add_seen_values(const ChunkShare& s, int query, const float* scores) {
  int begin = s.begin[query], end = s.end[query];
  for (int i = query + 1; i < query + kQueries; ++i) {
    begin = s.begin[i] > begin ? s.begin[i] : begin;
    end = s.end[i] < end ? s.end[i] : end;
  }
  if (begin >= end) {
    for (int i = query; i < query + kQueries; ++i) {
      add_all_values<1>(s, i, s.begin[i], s.end[i], scores);
    }
    return;
  }
  for (int i = query; i < query + kQueries; ++i) {
    if (s.begin[i] < begin) add_all_values<1>(s, i, s.begin[i], begin, scores);
  }
  add_all_values<kQueries>(s, query, begin, end, scores);
  for (int i = query; i < query + kQueries; ++i) {
    if (s.end[i] > end) add_all_values<1>(s, i, end, s.end[i], scores);
  }
}

void attention_chunk(const ChunkShare& s) {
  alignas(64) float scores[kMaxChunkQueries * kAttentionChunk];
  int begin = kAttentionChunk, end = 0;
  for (int i = 0; i < s.queries; ++i) {
    begin = s.begin[i] < begin ? s.begin[i] : begin;
    end = s.end[i] > end ? s.end[i] : end;
  }
  const int first = begin / kKeyTile, last = (end + kKeyTile - 1) / kKeyTile;
  int query = 0;
  for (; query + kScoreQueries <= s.queries; query += kScoreQueries) {
    score_tiles<kScoreQueries>(s, query, first, last, scores);
  }
  for (; query + 3 <= s.queries; query += 3) score_tiles<3>(s, query, first, last, scores);
  for (; query < s.queries; ++query) score_tiles<1>(s, query, first, last, scores);

  for (int i = 0; i < s.queries; ++i) {
    float* row = scores + i * kAttentionChunk;
    if (s.soft_cap != 0.0f) cap_scores(row, s.begin[i], s.end[i], s.soft_cap);
    soften(row, s.begin[i], s.end[i], s.partial[i] + s.head_dim);
    for (int d = 0; d < s.head_dim; d += kLanes) store(s.partial[i] + d, zero());
  }
  query = 0;
  for (; query + kValueQueries <= s.queries; query += kValueQueries) {
    add_seen_values<kValueQueries>(s, query, scores);
  }
  for (; query < s.queries; ++query) add_seen_values<1>(s, query, scores);
}

void attention_merge(float* into, const float* from, int head_dim) {
  float* tail = into + head_dim;
  const float* other = from + head_dim;
  const float maximum = tail[0] > other[0] ? tail[0] : other[0];
  alignas(64) float factors[kLanes] = {};
  factors[0] = tail[0] - maximum;
  factors[1] = other[0] - maximum;
  store(factors, exp_nonpositive(load(factors)));
  const Floats a = set1(factors[0]), b = set1(factors[1]);
  for (int d = 0; d < head_dim; d += kLanes) {
    store(into + d, fma(load(from + d), b, mul(load(into + d), a)));
  }
  tail[0] = maximum;
  tail[1] = __builtin_fmaf(other[1], factors[1], tail[1] * factors[0]);
}

void attention_finish(const float* partial, float* out, int head_dim) {
  const Floats inverse = set1(1.0f / partial[head_dim + 1]);
  for (int d = 0; d < head_dim; d += kLanes) store(out + d, mul(load(partial + d), inverse));
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
