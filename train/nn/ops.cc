#include "train/nn/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace aerie::train {
namespace {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// [rows, kv heads, dimension] -> [heads, rows, dimension], each kv head as often as it is used.
at::Tensor for_heads(const at::Tensor& x, int64_t heads) {
  const int64_t group = heads / x.size(1);
  at::Tensor y = x.transpose(0, 1);
  if (group > 1) {
    y = y.unsqueeze(1)
            .expand({x.size(1), group, x.size(0), x.size(2)})
            .reshape({heads, x.size(0), x.size(2)});
  }
  return y;
}

// 0 where a row sees a key of its document, -inf elsewhere: [queries, keys]. `rows`: of the
// queries, counted from the document's first.
at::Tensor visibility(const at::Tensor& rows, int64_t keys, int64_t window,
                      const at::TensorOptions& options) {
  const at::Tensor ahead = at::arange(keys, rows.options()).unsqueeze(0) - rows.unsqueeze(1);
  at::Tensor hidden = ahead > 0;
  if (window > 0 && window < keys) hidden = hidden.logical_or(ahead <= -window);
  return at::zeros(hidden.sizes(), options).masked_fill_(hidden, kUnseen);
}

// q . k of each row's own entries: [heads, rows, entries].
at::Tensor own_scores(const at::Tensor& q, std::span<const OwnEntry> own, int64_t begin,
                      int64_t rows) {
  std::vector<at::Tensor> scores;
  scores.reserve(own.size());
  for (const OwnEntry& entry : own) {
    scores.push_back((q * for_heads(entry.k.narrow(0, begin, rows), q.size(0))).sum(-1, true));
  }
  return at::cat(scores, -1);
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * (x.square().mean(-1, true) + eps).rsqrt() * weight;
}

Rotary make_rotary(const at::Tensor& positions, int64_t dimension, double base) {
  const at::Tensor exponents = at::arange(0, dimension, 2, positions.options().dtype(at::kDouble)) /
                               static_cast<double>(dimension);
  const at::Tensor angles =
      positions.to(at::kDouble).unsqueeze(1) * at::exp(exponents * -std::log(base)).unsqueeze(0);
  return {angles.cos().to(at::kFloat).unsqueeze(1), angles.sin().to(at::kFloat).unsqueeze(1)};
}

at::Tensor rotate(const at::Tensor& x, const Rotary& rotary) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat({a * rotary.cos - b * rotary.sin, b * rotary.cos + a * rotary.sin}, -1);
}

QueryRows query_rows(const Documents& documents, const at::Tensor& rows) {
  QueryRows queries;
  queries.rows = rows;
  const at::Tensor on_cpu = rows.to(at::kCPU);
  const auto* begin = on_cpu.data_ptr<int64_t>();
  const auto* end = begin + on_cpu.numel();
  for (int64_t d = 0; d < documents.count(); ++d) {
    const auto* behind = std::lower_bound(begin, end, documents.start(d) + documents.length(d));
    queries.documents.starts.push_back(behind - begin);
  }
  return queries;
}

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const Documents& documents, std::span<const OwnEntry> own, int64_t window) {
  const QueryRows all = {
      documents, at::arange(documents.rows(), q.options().dtype(at::kLong).requires_grad(false))};
  return attend_from(q, all, k, v, documents, own, window);
}

at::Tensor attend_one_by_one(const at::Tensor& q, const QueryRows& queries, const at::Tensor& k,
                             const at::Tensor& v, const Documents& documents,
                             std::span<const OwnEntry> own, int64_t window) {
  const int64_t heads = q.size(1), dimension = q.size(2);
  const at::Tensor scaled = q * (1.0 / std::sqrt(static_cast<double>(dimension)));
  std::vector<at::Tensor> parts;
  parts.reserve(static_cast<size_t>(documents.count()));
  for (int64_t d = 0; d < documents.count(); ++d) {
    const int64_t begin = documents.start(d), first = queries.documents.start(d);
    const int64_t rows = queries.documents.length(d);
    if (rows == 0) continue;
    const at::Tensor places = queries.rows.narrow(0, first, rows) - begin;
    // No query sees a key behind the last one's own.
    const int64_t seen = places[rows - 1].item<int64_t>() + 1;
    const at::Tensor own_q = scaled.narrow(0, first, rows).transpose(0, 1);
    const at::Tensor keys = for_heads(k.narrow(0, begin, seen), heads);
    const at::Tensor values = for_heads(v.narrow(0, begin, seen), heads);
    const at::Tensor bias =
        visibility(places, seen, window, q.options().requires_grad(false)).unsqueeze(0);
    at::Tensor scores = at::baddbmm(bias, own_q, keys.transpose(1, 2));
    if (!own.empty()) scores = at::cat({scores, own_scores(own_q, own, first, rows)}, -1);
    const at::Tensor weights = scores.softmax(-1);
    at::Tensor out = at::bmm(weights.narrow(-1, 0, seen), values);
    for (size_t i = 0; i < own.size(); ++i) {
      out = out + weights.narrow(-1, seen + static_cast<int64_t>(i), 1) *
                      for_heads(own[i].v.narrow(0, first, rows), heads);
    }
    parts.push_back(out.transpose(0, 1).reshape({rows, heads * dimension}));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
}

at::Tensor attend_from(const at::Tensor& q, const QueryRows& queries, const at::Tensor& k,
                       const at::Tensor& v, const Documents& documents,
                       std::span<const OwnEntry> own, int64_t window) {
  // In memory a document at a time, of which little is in the way at once; elsewhere all together.
  return q.is_cpu() ? attend_one_by_one(q, queries, k, v, documents, own, window)
                    : attend_side_by_side(q, queries, k, v, documents, own, window);
}

}  // namespace aerie::train
