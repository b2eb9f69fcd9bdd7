// Attention of queries over one chunk of keys of which the values are the beginnings
// (KvLayout::value_prefix): what lies in one row of memory serves scores and sums. A score is a sum
// by lanes, so that a key may lie anywhere; for the rest as attention_impl.h.
#pragma once

#include "kernels/cpu/isa/attention/attention_impl.h"

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

// A cache of KvType::kQ8 in these loops: codes are widened to floats, which scales multiply.
struct LongCodes : Halves {
  using Element = int8_t;
  static constexpr bool kQuantized = true;
  AERIE_INLINE Floats widen(const int8_t* p) { return to_floats(load_i8(p)); }
};

// The keys that a row sees in a chunk, by position.
template <typename Cache>
struct KeyRows {
  const typename Cache::Element* keys[kAttentionChunk];
  // Of the values, and of what follows these in a key. Only with kQuantized.
  float scales[kAttentionChunk], rest_scales[kAttentionChunk];
};

template <typename Cache>
void find_keys(const ChunkShare& s, const ChunkQuery& query, KeyRows<Cache>& rows) {
  const KvLayout& layout = s.layout;
  for (int p = query.begin; p < query.end; ++p) {
    const bool paged = p < query.own;
    const int32_t slot = paged ? p : query.slots[p - query.own];
    const int offset = slot % kPagePositions;
    const std::byte* page =
        paged ? s.keys[p / kPagePositions] : s.kv + layout.keys(slot / kPagePositions, s.kv_head);
    rows.keys[p] = elements_of<Cache>(page) + layout.key_element(offset, 0);
    if constexpr (Cache::kQuantized) {
      const auto scale = [&](int d) {
        return *reinterpret_cast<const float*>(page + layout.scale_at(offset, d));
      };
      rows.scales[p] = scale(0);
      rows.rest_scales[p] = scale(layout.value_prefix);
    }
  }
}

// Scores of kQueries queries, kMaxLongKey floats apart, with kKeys keys from position p on; query
// i's go to scores + i * kAttentionChunk.
template <typename Cache, int kQueries, int kKeys>
AERIE_INLINE void score_keys(const KvLayout& layout, const float* q, const KeyRows<Cache>& rows,
                             int p, float* scores) {
  Floats sums[kQueries][kKeys];
  for (int i = 0; i < kQueries; ++i) {
    for (int t = 0; t < kKeys; ++t) sums[i][t] = zero();
  }
  const int prefix = layout.value_prefix;
  for (int d = 0; d < prefix; d += kLanes) {
    Floats key[kKeys];
    for (int t = 0; t < kKeys; ++t) key[t] = Cache::widen(rows.keys[p + t] + d);
    for (int i = 0; i < kQueries; ++i) {
      const Floats factor = load(q + i * kMaxLongKey + d);
      for (int t = 0; t < kKeys; ++t) sums[i][t] = fma(factor, key[t], sums[i][t]);
    }
  }
  if constexpr (Cache::kQuantized) {
    for (int t = 0; t < kKeys; ++t) {
      const Floats scale = set1(rows.scales[p + t]);
      for (int i = 0; i < kQueries; ++i) sums[i][t] = mul(sums[i][t], scale);
    }
  }
  for (int d = prefix; d < layout.head_dim; d += kLanes) {
    Floats key[kKeys];
    for (int t = 0; t < kKeys; ++t) {
      key[t] = Cache::widen(rows.keys[p + t] + d);
      if constexpr (Cache::kQuantized) key[t] = mul(key[t], set1(rows.rest_scales[p + t]));
    }
    for (int i = 0; i < kQueries; ++i) {
      const Floats factor = load(q + i * kMaxLongKey + d);
      for (int t = 0; t < kKeys; ++t) sums[i][t] = fma(factor, key[t], sums[i][t]);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int t = 0; t < kKeys; ++t) scores[i * kAttentionChunk + p + t] = reduce_add(sums[i][t]);
  }
}

template <typename Cache, int kQueries>
void score_row(const ChunkShare& s, const ChunkQuery* query, const KeyRows<Cache>& rows,
               float* scores) {
  constexpr int kKeys = vectors_for(kQueries);
  alignas(64) float factors[kQueries * kMaxLongKey];
  const Floats factor = set1(s.soft_cap != 0.0f ? s.scale : s.scale * kLog2E);
  for (int i = 0; i < kQueries; ++i) {
    for (int d = 0; d < s.layout.head_dim; d += kLanes) {
      store(factors + i * kMaxLongKey + d, mul(load(query[i].q + d), factor));
    }
    // Lanes beside those that are seen are read before they are hidden.
    store(scores + i * kAttentionChunk + query->begin / kLanes * kLanes, zero());
    store(scores + i * kAttentionChunk + (query->end - 1) / kLanes * kLanes, zero());
  }
  int p = query->begin;
  for (; p + kKeys <= query->end; p += kKeys) {
    score_keys<Cache, kQueries, kKeys>(s.layout, factors, rows, p, scores);
  }
  for (; p < query->end; ++p) score_keys<Cache, kQueries, 1>(s.layout, factors, rows, p, scores);
}

// Of a value, how many dimensions are summed up at a time.
constexpr int kValuePart = 256;

// Values times weights to the queries' partial results.
template <typename Cache, int kQueries>
void add_prefixes(const ChunkShare& s, const ChunkQuery* query, const KeyRows<Cache>& rows,
                  const float* weights) {
  alignas(64) float totals[kQueries * kMaxHeadDim];
  for (int from = 0; from < s.layout.value_prefix; from += kValuePart) {
    const int left = s.layout.value_prefix - from;
    const int count = left < kValuePart ? left : kValuePart;
    for (int i = 0; i < kQueries; ++i) {
      for (int d = 0; d < count; d += kLanes) store(totals + i * kMaxHeadDim + d, zero());
    }
    const auto row = [&](int p) { return rows.keys[p] + from; };
    add_all_values<Cache, kQueries>(weights, count, query->begin, query->end, row, row, totals);
    for (int i = 0; i < kQueries; ++i) {
      for (int d = 0; d < count; d += kLanes) {
        store(query[i].partial + from + d, load(totals + i * kMaxHeadDim + d));
      }
    }
  }
}

// Queries that see the same.
template <typename Cache, int kQueries>
void attend_keys(const ChunkShare& s, const ChunkQuery* query, const KeyRows<Cache>& rows) {
  alignas(64) float scores[kQueries * kAttentionChunk];
  const int begin = query->begin, end = query->end;
  score_row<Cache, kQueries>(s, query, rows, scores);
  for (int i = 0; i < kQueries; ++i) {
    float* row = scores + i * kAttentionChunk;
    if (s.soft_cap != 0.0f) cap_scores(row, begin, end, s.soft_cap);
    hide_unseen(row, begin, end);
    float* tail = query[i].partial + s.layout.value_prefix;
    tail[0] = largest_score(row, begin, end);
    tail[1] = soften(row, begin, end, tail[0]);
    if constexpr (Cache::kQuantized) {
      for (int p = begin; p < end; ++p) row[p] *= rows.scales[p];
    }
  }
  add_prefixes<Cache, kQueries>(s, query, rows, scores);
}

template <typename Cache>
void attend_rows(const ChunkShare& s) {
  KeyRows<Cache> rows;
  for (int from = 0; from < s.queries;) {
    const int to = row_end(s.query, from, s.queries);
    find_keys(s, s.query[from], rows);
    for_groups(to - from, [&](auto count, int i) {
      attend_keys<Cache, count.value>(s, s.query + from + i, rows);
    });
    from = to;
  }
}

void attention_chunk(const ChunkShare& s) {
  const bool halves = s.layout.type == KvType::kF16;
  if (s.layout.value_prefix > 0) return halves ? attend_rows<Halves>(s) : attend_rows<LongCodes>(s);
  return halves ? attend_groups<Halves>(s) : attend_groups<Codes>(s);
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
