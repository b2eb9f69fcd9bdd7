// Attention of documents of about one length side by side.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "train/nn/ops.h"

namespace aerie::train {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Documents that are padded to the longest of them.
struct Group {
  std::vector<int64_t> begins, lengths;  // of each, its rows
  std::vector<int64_t> firsts, counts;   // and its queries

  void add(int64_t begin, int64_t length, int64_t first, int64_t count) {
    begins.push_back(begin);
    lengths.push_back(length);
    firsts.push_back(first);
    counts.push_back(count);
  }
  int64_t documents() const { return static_cast<int64_t>(begins.size()); }
  int64_t most_keys() const { return *std::ranges::max_element(lengths); }
  int64_t most_queries() const { return *std::ranges::max_element(counts); }
  // [documents, 1] each: begins, lengths, firsts, counts.
  std::vector<at::Tensor> on(const at::Device& device) const {
    at::Tensor all = at::empty({4, documents(), 1}, at::kLong);
    auto* to = all.data_ptr<int64_t>();
    for (const auto* values : {&begins, &lengths, &firsts, &counts}) {
      to = std::ranges::copy(*values, to).out;
    }
    return all.to(device).unbind(0);
  }
};

// A quarter of a document's length is padding at most, or of a short one 64 rows.
int64_t group_of(int64_t length) {
  int64_t step = 64;
  while (step * 8 <= length) step *= 2;
  return (length + step - 1) / step * step;
}

// By length. Documents without queries are in none.
std::vector<Group> groups_of(const Documents& documents, const QueryRows& queries) {
  std::map<int64_t, Group> groups;
  for (int64_t d = 0; d < documents.count(); ++d) {
    const int64_t count = queries.documents.length(d);
    if (count == 0) continue;
    groups[group_of(documents.length(d))].add(documents.start(d), documents.length(d),
                                              queries.documents.start(d), count);
  }
  std::vector<Group> out;
  for (auto& [length, group] : groups) out.push_back(std::move(group));
  return out;
}

// Where each query stands among the padded ones of all groups: int64 [queries].
at::Tensor places_of_queries(const std::vector<Group>& groups, int64_t queries) {
  at::Tensor places = at::empty({queries}, at::kLong);
  auto* const place = places.data_ptr<int64_t>();
  int64_t begin = 0;
  for (const Group& group : groups) {
    const int64_t most = group.most_queries();
    for (size_t d = 0; d < group.firsts.size(); ++d, begin += most) {
      for (int64_t i = 0; i < group.counts[d]; ++i) place[group.firsts[d] + i] = begin + i;
    }
  }
  return places;
}

// Rows of a group's documents, padded with other rows of the same: [documents, most].
at::Tensor padded_rows(const at::Tensor& begins, const at::Tensor& lengths, int64_t most) {
  return begins + at::arange(most, begins.options()).unsqueeze(0).remainder(lengths);
}

// x [rows, heads, dimension] at `rows` [documents, n] -> [documents * kv heads, m * n, dimension],
// the m = heads / kv heads that share their keys one behind the other.
at::Tensor gathered(const at::Tensor& x, const at::Tensor& rows, int64_t kv_heads) {
  const int64_t documents = rows.size(0), n = rows.size(1), shared = x.size(1) / kv_heads;
  return x.index_select(0, rows.reshape(-1))
      .view({documents, n, kv_heads, shared, x.size(2)})
      .permute({0, 2, 3, 1, 4})
      .reshape({documents * kv_heads, shared * n, x.size(2)});
}

// [rows, kv heads, dimension] -> [rows, heads, dimension].
at::Tensor for_queries(const at::Tensor& x, int64_t heads) {
  const int64_t shared = heads / x.size(1);
  if (shared == 1) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), shared, x.size(2)})
      .reshape({x.size(0), heads, x.size(2)});
}

// Of a group: q [queries, heads, dimension], scaled, and own scores [queries, heads, entries], if
// there are any. Padded queries' outputs [padded, heads, dimension] and their weights of own
// entries [padded, heads, entries].
struct Attended {
  at::Tensor out, own;
};
Attended attend_group(const Group& group, const at::Tensor& q, const at::Tensor& query_rows,
                      const at::Tensor& k, const at::Tensor& v, const at::Tensor& own_scores,
                      int64_t window) {
  const int64_t documents = group.documents(), keys = group.most_keys();
  const int64_t queries = group.most_queries();
  const int64_t heads = q.size(1), kv_heads = k.size(1), dimension = q.size(2);
  const std::vector<at::Tensor> at = group.on(q.device());
  const at::Tensor key_rows = padded_rows(at[0], at[1], keys);
  const at::Tensor places_of = padded_rows(at[2], at[3], queries);
  // Of queries in their documents; what is behind a document's end is behind them, too.
  const at::Tensor places =
      query_rows.index_select(0, places_of.reshape(-1)).view_as(places_of) - at[0];
  const at::Tensor ahead =
      at::arange(keys, places.options()).view({1, 1, keys}) - places.unsqueeze(-1);
  at::Tensor hidden = ahead > 0;
  if (window > 0) hidden = hidden.logical_or_(ahead <= -window);
  at::Tensor scores =
      at::bmm(gathered(q, places_of, kv_heads), gathered(k, key_rows, kv_heads).transpose(1, 2))
          .view({documents, heads, queries, keys})
          .masked_fill(hidden.unsqueeze(1), kHidden);
  if (own_scores.defined()) {
    const at::Tensor own = own_scores.index_select(0, places_of.reshape(-1))
                               .view({documents, queries, heads, -1})
                               .permute({0, 2, 1, 3});
    scores = at::cat({scores, own.to(scores.scalar_type())}, -1);
  }
  const at::Tensor weights = scores.softmax(-1);
  Attended result;
  result.out = at::bmm(weights.narrow(-1, 0, keys)
                           .reshape({documents * kv_heads, heads / kv_heads * queries, keys}),
                       gathered(v, key_rows, kv_heads))
                   .view({documents, heads, queries, dimension})
                   .permute({0, 2, 1, 3})
                   .reshape({documents * queries, heads, dimension});
  if (own_scores.defined()) {
    result.own = weights.narrow(-1, keys, own_scores.size(-1))
                     .permute({0, 2, 1, 3})
                     .reshape({documents * queries, heads, own_scores.size(-1)});
  }
  return result;
}

}  // namespace

at::Tensor attend_side_by_side(const at::Tensor& q, const QueryRows& queries, const at::Tensor& k,
                               const at::Tensor& v, const Documents& documents,
                               std::span<const OwnEntry> own, int64_t window) {
  const int64_t heads = q.size(1), dimension = q.size(2);
  const at::Tensor scaled = q * (1.0 / std::sqrt(static_cast<double>(dimension)));
  std::vector<at::Tensor> own_list;
  for (const OwnEntry& entry : own) {
    own_list.push_back((scaled * for_queries(entry.k, heads)).sum(-1));
  }
  const at::Tensor own_scores = own_list.empty() ? at::Tensor() : at::stack(own_list, -1);
  const std::vector<Group> groups = groups_of(documents, queries);
  std::vector<at::Tensor> outs, weights;
  for (const Group& group : groups) {
    const Attended attended = attend_group(group, scaled, queries.rows, k, v, own_scores, window);
    outs.push_back(attended.out);
    weights.push_back(attended.own);
  }
  const at::Tensor places = places_of_queries(groups, q.size(0)).to(q.device());
  at::Tensor out = at::cat(outs).index_select(0, places);
  if (own_scores.defined()) {
    const at::Tensor shares = at::cat(weights).index_select(0, places);
    for (size_t i = 0; i < own.size(); ++i) {
      out = out + shares.narrow(-1, static_cast<int64_t>(i), 1) * for_queries(own[i].v, heads);
    }
  }
  return out.reshape({q.size(0), heads * dimension});
}

}  // namespace aerie::train
