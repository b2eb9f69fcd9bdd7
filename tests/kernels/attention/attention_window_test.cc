// Attention that sees a window of positions, and scores with a soft cap.
#include <algorithm>
#include <cmath>

#include "tests/kernels/attention/attention_testing.h"

namespace aerie::kernels::attention_window_test {

class AttentionWindowTest : public BackendTest<std::tuple<Isa, KvType>> {
 protected:
  AttentionShape shape_of(const AttentionShape& shape) const {
    return shape.with(std::get<1>(GetParam()));
  }

  // The last `rows` tokens of a chain in one call, against double.
  void check(const AttentionShape& shape, int context, int rows) {
    SCOPED_TRACE(testing::Message()
                 << shape.name() << ", context " << context << ", " << rows << " rows");
    Random random(80 + static_cast<uint64_t>(context));
    const std::vector<Token> chain = random_tokens(random, context);
    TestCache cache(shape, context / kPagePositions + 3, 81);
    const int sequence = cache.open(context);
    const int first = shape.first_seen(context - rows);
    cache.put_chain(sequence, chain, first);
    for (int i = 0; (i + 1) * kPagePositions <= first; ++i) cache.lose_page(sequence, i);
    AttentionBatch batch(cache);
    for (int p = context - rows; p < context; ++p) {
      batch.add_linear(sequence, chain[static_cast<size_t>(p)], p, context - rows);
    }
    const std::vector<float> out = batch.run(backend(), 2);
    for (int r = 0; r < rows; ++r) {
      const DoubleAttention expected = attend_in_double(
          shape, {chain.begin(), chain.begin() + static_cast<ptrdiff_t>(context - rows + r + 1)});
      const std::span<const float> row = row_of(out, shape, static_cast<size_t>(r));
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_NEAR(double{row[i]}, expected.out[i], tolerance(shape, expected.largest_score))
            << "row " << r << " element " << i;
      }
    }
  }
};

TEST_P(AttentionWindowTest, CloseToDouble) {
  for (const float cap : {0.0f, 2.0f, 50.0f}) {
    for (const int window :
         test::sampled({0, 1, 2, 15, 16, 17, 64, 100, 255, 256, 257, 512, 1000}, 3)) {
      const AttentionShape shape = shape_of({6, 2, 32, window, cap});
      for (const int context : test::sampled({1, 16, 17, 255, 256, 257, 300, 513, 1100}, 4)) {
        check(shape, context, 1);
        if (HasFatalFailure()) return;
      }
      check(shape, 40, 40);
      check(shape, 530, 25);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(AttentionWindowTest, HeadsOfEverySizeAndGroup) {
  for (const int head_dim : {16, 64, 80, 96, 128, 256, 512}) {
    for (const auto& [heads, kv_heads] :
         {std::pair{1, 1}, {4, 2}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {14, 2}, {8, 1}, {30, 1}}) {
      check(shape_of({heads, kv_heads, head_dim, 90, 30.0f}), 300, 2);
      if (HasFatalFailure()) return;
    }
  }
}

// Rows that see all there is know no window.
TEST_P(AttentionWindowTest, ShortContextsGiveTheBitsOfNone) {
  Random random(82);
  for (const float cap : {0.0f, 20.0f}) {
    for (const int length : {1, 16, 100, 256, 257, 600}) {
      const std::vector<Token> chain = random_tokens(random, length);
      const std::vector<float> expected =
          attend_alone(backend(), shape_of({6, 2, 32, 0, cap}), chain);
      for (const int window : {length, length + 1, 100000, 1 << 30}) {
        EXPECT_TRUE(
            same_bits(attend_alone(backend(), shape_of({6, 2, 32, window, cap}), chain), expected))
            << length << " positions, window " << window;
      }
    }
  }
}

TEST_P(AttentionWindowTest, WindowOfOneIsTheRowItself) {
  const AttentionShape shape = shape_of({4, 2, 32, 1, 0.0f});
  Random random(83);
  for (const int length : {1, 2, 64, 65, 257, 500}) {
    const std::vector<Token> chain = random_tokens(random, length);
    const std::vector<float> out = attend_alone(backend(), shape, chain);
    const std::vector<float> value = rounded(shape, value_of(shape, chain.back()));
    // A scale is rounded on the way.
    const float error = shape.type == KvType::kF16 ? 0.0f : 3e-7f;
    for (size_t i = 0; i < out.size(); ++i) {
      const float expected = value[i / 32 / 2 * 32 + i % 32];
      EXPECT_NEAR(out[i], expected, error * std::fabs(expected));
    }
  }
}

// Rows of one sequence that share a block, with pages between their windows that nobody sees and
// that are gone, and with tokens there that would spoil any sum.
TEST_P(AttentionWindowTest, NothingOutsideAnyWindowIsTouched) {
  Random random(84);
  for (const int window : {3, 20, 64, 150}) {
    const AttentionShape shape = shape_of({6, 2, 32, window, 0.0f});
    const int length = 1000;
    const std::vector<Token> chain = random_tokens(random, length);
    for (const std::vector<int>& positions : {std::vector<int>{30, 800},
                                              {200, 201, 500, 990},
                                              {255, 256, 511, 512, 640},
                                              {30, 90, 160, 240, 900, 903}}) {
      std::vector<bool> seen(static_cast<size_t>(length), false);
      for (const int p : positions) {
        std::fill(seen.begin() + shape.first_seen(p), seen.begin() + p + 1, true);
      }
      std::vector<std::vector<float>> expected;
      for (const int p : positions) {
        expected.push_back(attend_alone(backend(), shape, {chain.begin(), chain.begin() + p + 1}));
      }
      for (const Token odd : {kNanToken, kInfToken}) {
        TestCache cache(shape, length / kPagePositions + 3, 85);
        const int sequence = cache.open(length);
        AttentionBatch batch(cache);
        for (int p = 0; p < length; ++p) {
          const auto at = static_cast<size_t>(p);
          cache.put(cache.slot(sequence, p), seen[at] ? chain[at] : odd);
        }
        for (const int p : positions) {
          batch.add_linear(sequence, chain[static_cast<size_t>(p)], p, p);
        }
        for (int page = 0; page * kPagePositions < length; ++page) {
          const auto begin = seen.begin() + page * kPagePositions;
          const auto end = seen.begin() + std::min(length, (page + 1) * kPagePositions);
          if (std::find(begin, end, true) == end) cache.lose_page(sequence, page);
        }
        for (const int threads : test::sampled(kThreadCounts, 1)) {
          const std::vector<float> out = batch.run(backend(), threads);
          for (size_t r = 0; r < positions.size(); ++r) {
            ASSERT_TRUE(same_bits(row_of(out, shape, r), expected[r]))
                << "window " << window << " position " << positions[r];
          }
        }
      }
    }
  }
}

// A window that moves along a long prompt in one call: rows of a block begin in different places of
// a chunk, and in different chunks.
TEST_P(AttentionWindowTest, PromptsInOneCall) {
  Random random(86);
  const int length = isa() == Isa::kReference ? 300 : 700;
  const std::vector<Token> chain = random_tokens(random, length);
  for (const int window : test::sampled({1, 3, 16, 50, 256, 290}, 2)) {
    const AttentionShape shape = shape_of({4, 2, 16, window, 8.0f});
    TestCache cache(shape, length / kPagePositions + 3, 87);
    const int sequence = cache.open(length);
    cache.put_chain(sequence, chain);
    AttentionBatch batch(cache);
    for (int p = 0; p < length; ++p) {
      batch.add_linear(sequence, chain[static_cast<size_t>(p)], p, 0);
    }
    const std::vector<float> out = batch.run(backend(), 2);
    for (int p = 0; p < length; p += 1 + p / 300) {
      const std::vector<float> expected =
          attend_alone(backend(), shape, {chain.begin(), chain.begin() + p + 1});
      ASSERT_TRUE(same_bits(row_of(out, shape, static_cast<size_t>(p)), expected))
          << "window " << window << " position " << p;
    }
  }
}

// A cap bounds what a score can do: however large the scores, weights differ by e^(2 cap) at most.
TEST_P(AttentionWindowTest, CapsBoundTheScores) {
  const AttentionShape shape = shape_of({2, 1, 16, 0, 1.0f});
  const int context = 300;
  Random random(88);
  const std::vector<Token> chain = random_tokens(random, context);
  TestCache cache(shape, 8, 89);
  const int sequence = cache.open(context);
  cache.put_chain(sequence, chain);
  AttentionBatch batch(cache);
  batch.add_linear(sequence, chain.back(), context - 1, context - 1);
  std::vector<float> query = query_of(shape, chain.back());
  for (float& q : query) q *= 1e6f;
  batch.set_query(0, query);
  const std::vector<float> out = batch.run(backend());
  for (size_t h = 0; h < 2; ++h) {
    // Scores are 1 or -1 now, by their sign.
    double total = 0.0;
    std::vector<double> sums(16, 0.0);
    for (const Token token : chain) {
      const std::vector<float> key = rounded(shape, key_of(shape, token));
      const std::vector<float> value = rounded(shape, value_of(shape, token));
      double score = 0.0;
      for (size_t d = 0; d < 16; ++d) {
        score += double{query[h * 16 + d]} * double{key[d]};
      }
      const double weight = std::exp(score > 0.0 ? 1.0 : -1.0);
      total += weight;
      for (size_t d = 0; d < 16; ++d) {
        sums[d] += weight * double{value[d]};
      }
    }
    for (size_t d = 0; d < 16; ++d) {
      EXPECT_NEAR(double{out[h * 16 + d]}, sums[d] / total,
                  shape.type == KvType::kF16 ? 2e-6 : 5e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionWindowTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::ValuesIn(kAllKvTypes)),
                         isa_type_test_name);

}  // namespace aerie::kernels::attention_window_test
