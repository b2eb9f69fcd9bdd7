// Attention with sinks: a score more for each head, which has no value.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/attention/attention_testing.h"

namespace aerie::kernels::attention_sinks_test {

constexpr float kInf = std::numeric_limits<float>::infinity();

class AttentionSinksTest : public BackendTest<std::tuple<Isa, KvType>> {
 protected:
  AttentionShape shape_of(AttentionShape shape) const {
    shape.sinks = true;
    return shape.with(std::get<1>(GetParam()));
  }

  // The last `rows` tokens of a chain in one call, against double.
  void check(const AttentionShape& shape, int context, int rows, int threads) {
    SCOPED_TRACE(testing::Message()
                 << shape.name() << ", context " << context << ", " << rows << " rows");
    Random random(90 + static_cast<uint64_t>(context));
    const std::vector<Token> chain = random_tokens(random, context);
    TestCache cache(shape, context / kPagePositions + 3, 91);
    const int sequence = cache.open(context);
    cache.put_chain(sequence, chain, shape.first_seen(context - rows));
    AttentionBatch batch(cache);
    for (int p = context - rows; p < context; ++p) {
      batch.add_linear(sequence, chain[static_cast<size_t>(p)], p, context - rows);
    }
    const std::vector<float> out = batch.run(backend(), threads);
    for (int r = 0; r < rows; ++r) {
      const DoubleAttention expected = attend_in_double(
          shape, {chain.begin(), chain.begin() + static_cast<ptrdiff_t>(context - rows + r + 1)});
      const std::span<const float> row = row_of(out, shape, static_cast<size_t>(r));
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_NEAR(double{row[i]}, expected.out[i],
                    tolerance(shape, std::max(9.0, expected.largest_score)))
            << "row " << r << " element " << i;
      }
    }
  }

  // One row whose query is 0, so that its `context` scores are, with these sinks.
  std::vector<float> of_equal_scores(const AttentionShape& shape, int context,
                                     const std::vector<float>& sinks, float query = 0.0f) const {
    Random random(92);
    const std::vector<Token> chain = random_tokens(random, context);
    TestCache cache(shape, context / kPagePositions + 2, 93);
    const int sequence = cache.open(context);
    cache.put_chain(sequence, chain);
    AttentionBatch batch(cache);
    batch.add_linear(sequence, chain.back(), context - 1, context - 1);
    batch.set_query(0, std::vector<float>(static_cast<size_t>(shape.query_width()), query));
    batch.set_sinks(sinks);
    return batch.run(backend(), 2);
  }
};

// Heads that fill no vector, more than a share takes, one to many for a head of keys; one chunk and
// several; chunks in turn and shared out.
TEST_P(AttentionSinksTest, CloseToDouble) {
  size_t pair = 0;
  for (const int head_dim : {16, 64, 80, 256}) {
    for (const auto& [heads, kv_heads] :
         {std::pair{1, 1}, {4, 2}, {3, 1}, {8, 1}, {14, 2}, {34, 1}}) {
      for (const int window : {0, 128}) {
        for (const int context : {1, 17, 256, 257, 700}) {
          if (!test::in_turn(pair++, 3)) continue;
          const int rows = std::min(context, 1 + context % 5);
          check(shape_of({heads, kv_heads, head_dim, window}), context, rows,
                context > 600 ? 3 : 1);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(AttentionSinksTest, BesideCappedScores) {
  for (const int context : {1, 100, 300}) {
    check(shape_of({6, 2, 32, 90, 3.0f}), context, 1, 1);
  }
}

// The share that a sink takes, and whose it is.
TEST_P(AttentionSinksTest, EachHeadHasItsOwn) {
  const AttentionShape shape = shape_of({4, 2, 16});
  constexpr int kContext = 300;
  const std::vector<float> sinks = {-2.0f, 0.0f, 3.0f, 6.0f};
  const std::vector<float> none(4, -kInf);
  const std::vector<float> with = of_equal_scores(shape, kContext, sinks);
  const std::vector<float> without = of_equal_scores(shape, kContext, none);
  for (size_t i = 0; i < with.size(); ++i) {
    const double share = kContext / (kContext + std::exp(double{sinks[i / 16]}));
    EXPECT_NEAR(double{with[i]}, share * double{without[i]}, 3e-7);
  }
}

TEST_P(AttentionSinksTest, OfMinusInfinityIsNone) {
  const AttentionShape shape = shape_of({4, 2, 16});
  AttentionShape plain = shape;
  plain.sinks = false;
  const std::vector<float> none(4, -kInf);
  for (const int context : {1, 300}) {
    EXPECT_TRUE(same_bits(of_equal_scores(shape, context, none, 0.5f),
                          of_equal_scores(plain, context, none, 0.5f)));
  }
}

TEST_P(AttentionSinksTest, OfAnySize) {
  const AttentionShape shape = shape_of({4, 2, 16});
  const std::vector<float> out =
      of_equal_scores(shape, 20, {1e30f, 3e38f, -3e38f, std::nanf("")}, 0.5f);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 0.0f) << i;
  for (size_t i = 32; i < 48; ++i) EXPECT_TRUE(std::isfinite(out[i]) && out[i] != 0.0f) << i;
  for (size_t i = 48; i < 64; ++i) EXPECT_TRUE(std::isnan(out[i])) << i;
}

// With a sink there is a number to divide by, which must not hide that no score is one.
TEST_P(AttentionSinksTest, DoNotHideWhatIsNoNumber) {
  const AttentionShape shape = shape_of({4, 2, 16});
  for (const float query : {std::nanf(""), kInf}) {
    for (const float x : of_equal_scores(shape, 300, {0.0f, -2.0f, 5.0f, 100.0f}, query)) {
      EXPECT_TRUE(std::isnan(x));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionSinksTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::ValuesIn(kAllKvTypes)),
                         isa_type_test_name);

}  // namespace aerie::kernels::attention_sinks_test
