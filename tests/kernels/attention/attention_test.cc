// Attention against a computation in double and against the reference backend.
#include <algorithm>
#include <cmath>

#include "tests/kernels/attention/attention_testing.h"

namespace aerie::kernels::attention_test {

constexpr int kContexts[] = {1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 511, 700, 1500};
constexpr AttentionShape kGroups[] = {{2, 2, 0},  {4, 2, 0},  {6, 2, 0}, {5, 1, 0},
                                      {14, 2, 0}, {16, 2, 0}, {32, 1, 0}};

using Param = std::tuple<Isa, int, KvType>;

class AttentionTest : public BackendTest<Param> {
 protected:
  // One of kGroups.
  AttentionShape shape_of(AttentionShape shape) const {
    shape.head_dim = std::get<1>(GetParam());
    shape.type = std::get<2>(GetParam());
    return shape;
  }

  // Rows for the last tokens of a chain, as one chain after `committed` positions.
  void check(const AttentionShape& shape, int context, int rows) {
    SCOPED_TRACE(testing::Message() << shape.heads << " heads over " << shape.kv_heads
                                    << ", context " << context << ", " << rows << " rows");
    Random random(50 + static_cast<uint64_t>(context));
    const std::vector<Token> chain = random_tokens(random, context);
    TestCache cache(shape, context / kPagePositions + 3, 51);
    const int sequence = cache.open(context);
    cache.put_chain(sequence, chain);
    AttentionBatch batch(cache);
    for (int p = context - rows; p < context; ++p) {
      batch.add_linear(sequence, chain[static_cast<size_t>(p)], p, context - rows);
    }
    const std::vector<float> out = batch.run(backend(), 2);
    for (int r = 0; r < rows; ++r) {
      const auto seen = static_cast<size_t>(context - rows + r + 1);
      const DoubleAttention expected =
          attend_in_double(shape, {chain.begin(), chain.begin() + static_cast<ptrdiff_t>(seen)});
      const std::span<const float> row = row_of(out, shape, static_cast<size_t>(r));
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_NEAR(double{row[i]}, expected.out[i], tolerance(shape, expected.largest_score))
            << "row " << r << " element " << i;
      }
    }
  }
};

TEST_P(AttentionTest, CloseToDouble) {
  size_t first = 0;
  for (const AttentionShape& group : test::sampled(kGroups, 2)) {
    const AttentionShape shape = shape_of(group);
    size_t pair = first++;
    for (const int context : test::sampled(kContexts, 3)) {
      if (!test::in_turn(pair++, 3)) continue;
      check(shape, context, 1);
      if (HasFatalFailure()) return;
    }
    check(shape, 20, 20);
    check(shape, 258, 4);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, CloseToTheReference) {
  const Backend& reference = *aerie::kernels::backend(Isa::kReference);
  Random random(52);
  for (const AttentionShape& group : test::sampled(kGroups, 2)) {
    const AttentionShape shape = shape_of(group);
    const int context = 300, rows = 3;
    const std::vector<Token> chain = random_tokens(random, context);
    TestCache cache(shape, 9, 53);
    const int sequence = cache.open(context);
    cache.put_chain(sequence, chain);
    AttentionBatch batch(cache);
    for (int p = context - rows; p < context; ++p) {
      batch.add_linear(sequence, chain[static_cast<size_t>(p)], p, context - rows);
    }
    const std::vector<float> a = batch.run(backend()), b = batch.run(reference);
    const double largest = attend_in_double(shape, chain).largest_score;
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(double{a[i]}, double{b[i]}, tolerance(shape, 1.5 * largest + 8.0));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::Values(16, 32, 64, 80, 96, 128, 256),
                                          testing::ValuesIn(kAllKvTypes)),
                         [](const testing::TestParamInfo<Param>& param) {
                           return std::string(isa_name(std::get<0>(param.param))) + "_" +
                                  std::to_string(std::get<1>(param.param)) + "_" +
                                  kv_type_name(std::get<2>(param.param));
                         });

class LongKeysTest : public AttentionTest {};

TEST_P(LongKeysTest, CloseToDouble) {
  const AttentionShape shape = kLongKeys[std::get<1>(GetParam())].with(std::get<2>(GetParam()));
  for (const int context : {1, 17, 256, 300, 700}) {
    check(shape, context, std::min(context, 5));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LongKeysTest,
    testing::Combine(testing::ValuesIn(kAllIsas), testing::Range(0, int{std::size(kLongKeys)}),
                     testing::ValuesIn(kAllKvTypes)),
    [](const testing::TestParamInfo<Param>& param) {
      return std::string(isa_name(std::get<0>(param.param))) + "_" +
             kLongKeys[std::get<1>(param.param)].with(std::get<2>(param.param)).name();
    });

class AttentionValuesTest : public BackendTest<std::tuple<Isa, KvType>> {
 protected:
  KvType type() const { return std::get<1>(GetParam()); }
  // Relative error of a value times a weight of 1: its scale is rounded on the way.
  float value_error() const { return type() == KvType::kF16 ? 0.0f : 3e-7f; }
};

// All keys alike: the mean of the values, which shows a position too many or too few at once.
TEST_P(AttentionValuesTest, EqualScoresGiveTheMean) {
  const AttentionShape shape = AttentionShape{4, 2, 32}.with(type());
  for (const int context : {1, 2, 15, 16, 17, 64, 65, 256, 257, 600}) {
    Random random(54);
    const std::vector<Token> chain = random_tokens(random, context);
    TestCache cache(shape, context / kPagePositions + 2, 55);
    const int sequence = cache.open(context);
    cache.put_chain(sequence, chain);
    AttentionBatch batch(cache);
    batch.add_linear(sequence, chain.back(), context - 1, context - 1);
    batch.set_query(0, std::vector<float>(static_cast<size_t>(shape.query_width()), 0.0f));
    const std::vector<float> out = batch.run(backend());
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t column = i / 32 / 2 * 32 + i % 32;
      double mean = 0.0;
      for (const Token token : chain) {
        mean += double{rounded(shape, value_of(shape, token))[column]} / context;
      }
      ASSERT_NEAR(double{out[i]}, mean, type() == KvType::kF16 ? 2e-6 : 5e-5)
          << "context " << context;
    }
  }
}

// Scores so far apart that all but one weight vanish: within a chunk, and when chunks merge.
TEST_P(AttentionValuesTest, OneLargeScoreTakesAll) {
  const AttentionShape shape = AttentionShape{1, 1, 16}.with(type());
  const int context = 600;
  Random random(56);
  const std::vector<Token> chain = random_tokens(random, context);
  TestCache cache(shape, 12, 57);
  const int sequence = cache.open(context);
  cache.put_chain(sequence, chain);
  for (const int winner : {0, 100, 255, 256, 511, 512, 599}) {
    const std::vector<float> key = key_of(shape, chain[static_cast<size_t>(winner)]);
    std::vector<float> query = key;
    for (float& q : query) q *= 1e4f;
    AttentionBatch batch(cache);
    batch.add_linear(sequence, chain.back(), context - 1, context - 1);
    batch.set_query(0, query);
    const std::vector<float> out = batch.run(backend());
    // The key of largest product with the query, which need not be the query's own.
    int best = 0;
    double most = -1e300;
    for (int p = 0; p < context; ++p) {
      const std::vector<float> other = rounded(shape, key_of(shape, chain[static_cast<size_t>(p)]));
      double score = 0.0;
      for (size_t d = 0; d < 16; ++d) score += double{query[d]} * double{other[d]};
      if (score > most) {
        most = score;
        best = p;
      }
    }
    const std::vector<float> value =
        rounded(shape, value_of(shape, chain[static_cast<size_t>(best)]));
    for (size_t d = 0; d < 16; ++d) {
      EXPECT_NEAR(out[d], value[d], value_error() * std::fabs(value[d]));
    }
  }
}

TEST_P(AttentionValuesTest, NoRows) {
  const AttentionShape shape = AttentionShape{2, 1, 16}.with(type());
  const TestCache cache(shape, 1, 58);
  AttentionWorkspace workspace;
  AttentionArgs args;
  args.heads = shape.heads;
  args.layout = shape.layout();
  args.kv = cache.data();
  args.workspace = &workspace;
  backend().attention(pool_of(2), args);
}

INSTANTIATE_TEST_SUITE_P(All, AttentionValuesTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::ValuesIn(kAllKvTypes)),
                         isa_type_test_name);

}  // namespace aerie::kernels::attention_test
