#include "train/methods/peagle/peagle_elements.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace aerie::train {
namespace {

// Rows whose scores are there at once. Many heads see thousands of keys each.
constexpr int64_t kRunRows = 64;

at::Tensor on_device(const std::vector<int64_t>& values, const at::Device& device) {
  return at::tensor(at::IntArrayRef(values), at::kLong).to(device);
}

// The row behind the last one of each row's document.
std::vector<int64_t> document_ends(const Documents& documents) {
  std::vector<int64_t> ends(static_cast<size_t>(documents.rows()));
  for (int64_t d = 0; d < documents.count(); ++d) {
    const int64_t end = documents.start(d) + documents.length(d);
    std::fill(ends.begin() + documents.start(d), ends.begin() + end, end);
  }
  return ends;
}

// `count` of the pool at random, in their order.
std::vector<int64_t> draw(const std::vector<int64_t>& pool, int64_t count,
                          at::Generator& generator) {
  const auto size = static_cast<int64_t>(pool.size());
  if (count >= size) return pool;
  const at::Tensor order = at::randperm(size, generator, at::TensorOptions(at::kLong));
  const int64_t* places = order.data_ptr<int64_t>();
  std::vector<int64_t> drawn(static_cast<size_t>(count));
  std::transform(places, places + count, drawn.begin(),
                 [&pool](int64_t place) { return pool[static_cast<size_t>(place)]; });
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

ElementRows make_rows(const Documents& documents, const std::vector<int64_t>& anchors,
                      const std::vector<int64_t>& depths, const std::vector<int64_t>& begins,
                      const std::vector<int64_t>& ends, const at::Device& device) {
  std::vector<int64_t> runs;
  const auto rows = static_cast<int64_t>(anchors.size());
  int64_t document = 0;
  for (int64_t begin = 0; begin < rows;) {
    const int64_t first = anchors[static_cast<size_t>(begin)];
    while (first >= documents.start(document) + documents.length(document)) ++document;
    const int64_t context = documents.start(document);
    const int64_t behind = context + documents.length(document);
    int64_t end = begin;
    while (end < rows && end < begin + kRunRows && anchors[static_cast<size_t>(end)] < behind) {
      ++end;
    }
    const int64_t last = anchors[static_cast<size_t>(end - 1)];
    runs.insert(runs.end(),
                {begin, end - begin, context, first + 1 - context, last + 1 - context,
                 begins[static_cast<size_t>(begin)], ends[static_cast<size_t>(end - 1)]});
    begin = end;
  }
  ElementRows out;
  out.anchors = on_device(anchors, device);
  out.depths = on_device(depths, device);
  out.begins = on_device(begins, device);
  out.ends = on_device(ends, device);
  out.runs = on_device(runs, at::kCPU).view({-1, 7});
  return out;
}

}  // namespace

int64_t Chains::rows() const {
  return std::accumulate(depths.begin(), depths.end(), int64_t{0});
}

Chains sample_chains(const Documents& documents, const at::Tensor& supervised,
                     const DepthSampling& sampling, at::Generator& generator) {
  const at::Tensor mask = supervised.to(at::kCPU, at::kBool).contiguous();
  const bool* asked = mask.data_ptr<bool>();
  const std::vector<int64_t> ends = document_ends(documents);
  const auto all = static_cast<double>(std::count(asked, asked + documents.rows(), true));
  std::vector<int64_t> pool;
  for (int64_t d = 0; d < documents.count(); ++d) {
    for (int64_t t = 1; t < documents.length(d); ++t) {
      if (asked[documents.start(d) + t]) pool.push_back(documents.start(d) + t);
    }
  }
  std::vector<int64_t> deepest(ends.size(), 0);  // by anchor
  for (int64_t depth = 1; depth < sampling.depths; ++depth) {
    const double share = std::max(std::pow(sampling.kept, depth), sampling.least);
    const auto count = static_cast<int64_t>((all - static_cast<double>(depth)) * share);
    if (count <= 0) break;
    const std::vector<int64_t> kept = draw(pool, count, generator);
    pool.clear();
    for (const int64_t row : kept) {
      deepest[static_cast<size_t>(row - depth)] = depth;
      if (row + 1 < ends[static_cast<size_t>(row)] && asked[row + 1]) pool.push_back(row + 1);
    }
  }
  Chains chains;
  for (size_t a = 0; a < deepest.size(); ++a) {
    if (deepest[a] == 0) continue;
    chains.anchors.push_back(static_cast<int64_t>(a));
    chains.depths.push_back(deepest[a]);
  }
  return chains;
}

std::vector<std::pair<int64_t, int64_t>> cut_chains(const Chains& chains, int64_t rows,
                                                    int64_t segments) {
  std::vector<std::pair<int64_t, int64_t>> cuts;
  int64_t begin = 0;
  for (int64_t i = 1; i <= segments; ++i) {
    // The first masked row stands behind the anchor.
    const auto end =
        std::lower_bound(chains.anchors.begin(), chains.anchors.end(), i * rows / segments - 1);
    cuts.emplace_back(begin, end - chains.anchors.begin());
    begin = cuts.back().second;
  }
  return cuts;
}

ElementRows context_rows(const Documents& documents, const at::Device& device) {
  std::vector<int64_t> rows(static_cast<size_t>(documents.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  return make_rows(documents, rows, std::vector<int64_t>(rows.size(), 0), rows, rows, device);
}

ElementRows chain_rows(const Documents& documents, const Chains& chains, int64_t begin, int64_t end,
                       const at::Device& device, bool whole) {
  std::vector<int64_t> anchors, depths, begins, ends;
  for (int64_t i = begin; i < end; ++i) {
    const auto first = static_cast<int64_t>(anchors.size());
    const int64_t length = chains.depths[static_cast<size_t>(i)];
    for (int64_t depth = 1; depth <= length; ++depth) {
      ends.push_back(first + (whole ? length : depth));
      anchors.push_back(chains.anchors[static_cast<size_t>(i)]);
      depths.push_back(depth);
      begins.push_back(first);
    }
  }
  ElementRows rows = make_rows(documents, anchors, depths, begins, ends, device);
  rows.chained = true;
  return rows;
}

}  // namespace aerie::train
