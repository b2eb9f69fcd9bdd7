// P-EAGLE's rows and what they see, against the rules written out.
#include "train/methods/peagle/peagle_elements.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/train/methods/masked_attention.h"
#include "train/methods/peagle/peagle_attention.h"
#include "train/nn/ops.h"

namespace aerie::train::peagle_elements_test {

Documents documents_of(const std::vector<int64_t>& lengths) {
  Documents documents;
  for (const int64_t length : lengths) documents.starts.push_back(documents.rows() + length);
  return documents;
}

int64_t document_of(const Documents& documents, int64_t row) {
  int64_t d = 0;
  while (row >= documents.start(d) + documents.length(d)) ++d;
  return d;
}

struct Case {
  std::vector<int64_t> lengths;
  double supervised = 1.0;  // share of the rows, in runs
  DepthSampling sampling = {};
};

const Case kCases[] = {
    {{200}, 1.0},
    {{200}, 0.4},
    {{90, 1, 2, 60, 33}, 0.7},
    {{5, 4, 3, 2, 1}, 1.0},
    {{150, 40}, 0.8, {4, 0.8, 0.2}},
    {{150, 40}, 0.8, {12, 0.5, 0.05}},
    {{64}, 1.0, {1}},
    {{64}, 0.9, {8, 1.0, 1.0}},
    {{64}, 0.9, {8, 0.0, 0.0}},
};

// Runs of a few rows, so that many a chain meets one that is not supervised.
at::Tensor made_mask(const Case& c, int64_t rows, at::Generator& generator) {
  return at::rand({(rows + 4) / 5}, generator).repeat_interleave(5).narrow(0, 0, rows) <
         c.supervised;
}

Chains sample(const Case& c, const at::Tensor& mask, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return sample_chains(documents_of(c.lengths), mask, c.sampling, generator);
}

std::set<int64_t> kept_at(const Chains& chains, int64_t depth) {
  std::set<int64_t> kept;
  for (int64_t i = 0; i < chains.count(); ++i) {
    const auto place = static_cast<size_t>(i);
    if (chains.depths[place] >= depth) kept.insert(chains.anchors[place] + depth);
  }
  return kept;
}

// As the paper's authors have it: places that are supervised, of which later depths take the
// successors of what was kept; none has an anchor before its document.
TEST(PEagleElements, AreDrawnFromTheirPools) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  int64_t deepest = 0;
  for (const Case& c : kCases) {
    const Documents documents = documents_of(c.lengths);
    const at::Tensor mask = made_mask(c, documents.rows(), generator);
    const auto asked = [&](int64_t row) { return mask[row].item<bool>(); };
    const auto n = mask.sum().item<int64_t>();
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const Chains chains = sample(c, mask, seed);
      EXPECT_TRUE(std::is_sorted(chains.anchors.begin(), chains.anchors.end()));
      std::set<int64_t> before;
      for (int64_t depth = 1; depth < c.sampling.depths; ++depth) {
        std::set<int64_t> pool;
        for (int64_t row = 0; row < documents.rows(); ++row) {
          const bool same =
              row > 0 && document_of(documents, row) == document_of(documents, row - 1);
          if (asked(row) && same && (depth == 1 || before.contains(row - 1))) pool.insert(row);
        }
        const double share = std::max(std::pow(c.sampling.kept, depth), c.sampling.least);
        const auto count = static_cast<int64_t>(static_cast<double>(n - depth) * share);
        const std::set<int64_t> kept = kept_at(chains, depth);
        EXPECT_EQ(static_cast<int64_t>(kept.size()),
                  std::clamp<int64_t>(count, 0, static_cast<int64_t>(pool.size())));
        EXPECT_TRUE(std::includes(pool.begin(), pool.end(), kept.begin(), kept.end()));
        if (!kept.empty()) deepest = std::max(deepest, depth);
        before = kept;
      }
      EXPECT_TRUE(kept_at(chains, c.sampling.depths).empty());
    }
  }
  EXPECT_EQ(deepest, 11);
}

// 64 rows, all supervised: 63 can be asked at depth 1, int(63 * 0.7) of them are.
TEST(PEagleElements, AreDrawnEvenly) {
  constexpr int kDraws = 600;
  const Case c = {{64}};
  std::vector<int> times(64, 0);
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const Chains chains = sample(c, at::ones({64}, at::kBool), seed);
    for (const int64_t row : kept_at(chains, 1)) ++times[static_cast<size_t>(row)];
  }
  EXPECT_EQ(times[0], 0);
  const double share = 44.0 / 63.0;
  const double deviation = std::sqrt(kDraws * share * (1.0 - share));
  for (size_t row = 1; row < times.size(); ++row) {
    EXPECT_NEAR(times[row], kDraws * share, 5.0 * deviation) << row;
  }
}

TEST(PEagleElements, HangOnTheSeedAlone) {
  const Case c = {{100, 30}};
  const at::Tensor mask = at::ones({130}, at::kBool);
  EXPECT_EQ(sample(c, mask, 3).anchors, sample(c, mask, 3).anchors);
  EXPECT_NE(sample(c, mask, 3).anchors, sample(c, mask, 4).anchors);
}

TEST(PEagleElements, AreOfTheSegmentOfTheirFirstMaskedRow) {
  const Case c = {{90, 1, 2, 60, 33}};
  const int64_t rows = 186;
  const Chains chains = sample(c, at::ones({rows}, at::kBool), 1);
  for (const int64_t segments : {1, 2, 3, 7, 186, 400}) {
    const auto cuts = cut_chains(chains, rows, segments);
    ASSERT_EQ(static_cast<int64_t>(cuts.size()), segments);
    int64_t seen = 0;
    for (int64_t s = 0; s < segments; ++s) {
      const auto [begin, end] = cuts[static_cast<size_t>(s)];
      EXPECT_EQ(begin, seen);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = chains.anchors[static_cast<size_t>(i)] + 1;
        EXPECT_GE(first, s * rows / segments);
        EXPECT_LT(first, (s + 1) * rows / segments);
      }
      seen = end;
    }
    EXPECT_EQ(seen, chains.count());
  }
}

// All rows one below the other, the context's first, and who sees whom.
at::Tensor visible_by_rule(const Documents& documents, const ElementRows& context,
                           const ElementRows& chains) {
  const at::Tensor anchors = at::cat({context.anchors, chains.anchors});
  const at::Tensor depths = at::cat({context.depths, chains.depths});
  const int64_t rows = anchors.size(0);
  at::Tensor visible = at::zeros({rows, rows}, at::kBool);
  auto out = visible.accessor<bool, 2>();
  const auto a = anchors.accessor<int64_t, 1>(), d = depths.accessor<int64_t, 1>();
  for (int64_t q = 0; q < rows; ++q) {
    for (int64_t k = 0; k < rows; ++k) {
      out[q][k] = document_of(documents, a[q]) == document_of(documents, a[k]) &&
                  ((d[k] == 0 && a[k] <= a[q]) || (a[k] == a[q] && d[k] <= d[q]));
    }
  }
  return visible;
}

at::Tensor leaf(at::IntArrayRef shape, at::Generator& generator) {
  return at::randn(shape, generator, at::kDouble).requires_grad_(true);
}

// Rows of q, k and v: the context's, then the chains'.
class PEagleAttention : public testing::TestWithParam<int> {};

TEST_P(PEagleAttention, IsTheRuleWrittenOut) {
  const int64_t heads = GetParam(), kv_heads = heads > 1 ? heads / 2 : 1, dimension = 8;
  for (const Case& c : kCases) {
    const Documents documents = documents_of(c.lengths);
    at::Generator generator = at::detail::createCPUGenerator(2);
    const at::Tensor mask = made_mask(c, documents.rows(), generator);
    const Chains chains = sample(c, mask, 1);
    const ElementRows context = context_rows(documents, at::kCPU);
    const ElementRows masked = chain_rows(documents, chains, 0, chains.count(), at::kCPU);
    const int64_t first = context.rows(), rest = masked.rows();
    EXPECT_EQ(rest, chains.rows());
    const at::Tensor q = leaf({first + rest, heads, dimension}, generator);
    const at::Tensor k = leaf({first + rest, kv_heads, dimension}, generator);
    const at::Tensor v = leaf({first + rest, kv_heads, dimension}, generator);
    const at::Tensor weight = at::randn({first + rest, heads * dimension}, generator, at::kDouble);

    const at::Tensor expected =
        test::attend_masked(q, k, v, visible_by_rule(documents, context, masked));
    (expected * weight).sum().backward();
    const std::vector<at::Tensor> gradients = {q.grad().clone(), k.grad().clone(),
                                               v.grad().clone()};
    for (const at::Tensor& x : {q, k, v}) x.mutable_grad() = at::Tensor();

    const Keys all = {k.narrow(0, 0, first), v.narrow(0, 0, first)};
    const Keys own = {k.narrow(0, first, rest), v.narrow(0, first, rest)};
    std::vector<at::Tensor> parts;
    parts.push_back(attend_elements(q.narrow(0, 0, first), all, {}, context));
    if (rest > 0) {
      parts.push_back(attend_elements(q.narrow(0, first, rest), all, own, masked));
    }
    const at::Tensor actual = at::cat(parts, 0);
    (actual * weight).sum().backward();
    EXPECT_TRUE(at::allclose(actual, expected, 1e-10, 1e-12));
    EXPECT_TRUE(at::allclose(q.grad(), gradients[0], 1e-10, 1e-12));
    EXPECT_TRUE(at::allclose(k.grad(), gradients[1], 1e-10, 1e-12));
    EXPECT_TRUE(at::allclose(v.grad(), gradients[2], 1e-10, 1e-12));
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, PEagleAttention, testing::Values(1, 2, 6));

}  // namespace aerie::train::peagle_elements_test
