// Documents side by side are attended to as they are one after the other.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <vector>

#include "train/nn/ops.h"

namespace aerie::train::padded_attention_test {

constexpr int64_t kDimension = 8;

struct Case {
  std::vector<int64_t> lengths;
  int64_t heads = 1, kv_heads = 1, entries = 0, window = 0;
  double asked = 1.0;  // the share of rows that are queries
};

at::Tensor leaf(at::IntArrayRef shape, at::Generator& generator) {
  return at::randn(shape, generator, at::kDouble).set_requires_grad(true);
}

// What goes in and what comes of it: the output, and the gradients of all that went in.
struct Setting {
  explicit Setting(const Case& c) {
    at::Generator generator = at::detail::createCPUGenerator(5);
    for (const int64_t length : c.lengths) {
      documents.starts.push_back(documents.rows() + length);
    }
    const int64_t rows = documents.rows();
    queries = query_rows(documents, at::rand({rows}, generator).lt(c.asked).nonzero().squeeze(1));
    const int64_t asked = queries.rows.size(0);
    q = leaf({asked, c.heads, kDimension}, generator);
    k = leaf({rows, c.kv_heads, kDimension}, generator);
    v = leaf({rows, c.kv_heads, kDimension}, generator);
    for (int64_t i = 0; i < c.entries; ++i) {
      own.push_back({leaf({asked, c.kv_heads, kDimension}, generator),
                     leaf({asked, c.kv_heads, kDimension}, generator)});
    }
    weight = at::randn({asked, c.heads * kDimension}, generator, at::kDouble);
    window = c.window;
  }

  template <typename Attend>
  std::vector<at::Tensor> run(const Attend& attend) {
    std::vector<at::Tensor> leaves = {q, k, v};
    for (const OwnEntry& entry : own) leaves.insert(leaves.end(), {entry.k, entry.v});
    for (at::Tensor& x : leaves) x.mutable_grad() = at::Tensor();
    const at::Tensor out = attend(q, queries, k, v, documents, own, window);
    (out * weight).sum().backward();
    std::vector<at::Tensor> results = {out.detach()};
    for (const at::Tensor& x : leaves) results.push_back(x.grad());
    return results;
  }

  Documents documents;
  QueryRows queries;
  at::Tensor q, k, v, weight;
  std::vector<OwnEntry> own;
  int64_t window = 0;
};

// Documents of one row and of many, of one length and of several groups; some without queries.
TEST(PaddedAttention, IsThatOfOneDocumentAfterAnother) {
  const Case cases[] = {
      {{1}},
      {{5, 5, 5}, 2, 2},
      {{3, 70, 1, 200, 66, 64, 2}, 6, 3, 0, 0, 1.0},
      {{3, 70, 1, 200, 66, 64, 2}, 6, 3, 0, 0, 0.1},
      {{40, 90, 90, 7}, 4, 1, 3, 0, 0.6},
      {{40, 90, 600, 7}, 4, 2, 1, 11, 0.4},
  };
  for (const Case& c : cases) {
    Setting setting(c);
    const std::vector<at::Tensor> expected = setting.run(attend_one_by_one);
    const std::vector<at::Tensor> actual = setting.run(attend_side_by_side);
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(testing::Message() << c.lengths.size() << " documents, result " << i);
      ASSERT_EQ(actual[i].sizes(), expected[i].sizes());
      EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-10, 1e-12));
    }
  }
}

}  // namespace aerie::train::padded_attention_test
