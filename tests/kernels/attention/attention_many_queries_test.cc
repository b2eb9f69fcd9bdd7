// Rows of a verify pass give the bits that each gives alone, however many queries share a chunk:
// few of them and many take different kernels.
#include "tests/kernels/attention/attention_testing.h"

namespace aerie::kernels::attention_many_queries_test {

class ManyQueriesTest : public BackendTest<std::tuple<Isa, KvType>> {
 protected:
  // `rows` rows at the end of a chain, the last `tail` of them through slots of their own.
  void check(const AttentionShape& shape, int context, int rows, int tail) {
    SCOPED_TRACE(testing::Message() << shape.name() << ", context " << context << ", " << rows
                                    << " rows, tail " << tail);
    Random random(90 + static_cast<uint64_t>(context));
    const std::vector<Token> chain = random_tokens(random, context);
    TestCache cache(shape, context / kPagePositions + 3, 91);
    const int sequence = cache.open(context);
    const int committed = context - tail;
    cache.put_chain(sequence, {chain.begin(), chain.begin() + committed});
    std::vector<int32_t> slots;
    for (int p = committed; p < context; ++p) {
      slots.push_back(cache.stray_slot());
      cache.put(slots.back(), chain[static_cast<size_t>(p)]);
    }
    AttentionBatch batch(cache);
    for (int p = context - rows; p < context; ++p) {
      const Token token = chain[static_cast<size_t>(p)];
      if (p < committed) {
        batch.add_linear(sequence, token, p, context - rows);
      } else {
        const auto own = static_cast<size_t>(p - committed + 1);
        batch.add_tail(sequence, token, committed, std::span<const int32_t>(slots).first(own));
      }
    }
    const std::vector<float> out = batch.run(backend(), 2);
    for (int r = 0; r < rows; ++r) {
      const std::vector<Token> seen(chain.begin(), chain.end() - (rows - 1 - r));
      ASSERT_TRUE(same_bits(row_of(out, shape, static_cast<size_t>(r)),
                            attend_alone(backend(), shape, seen)))
          << "row " << r;
    }
  }
};

TEST_P(ManyQueriesTest, GiveTheBitsOfARowAlone) {
  constexpr int kRows[] = {2, 5, 8, 16, 19};
  constexpr int kContexts[] = {19, 64, 250, 257, 300, 520};
  constexpr int kHeadDims[] = {64, 80, 128};
  size_t turn = 0;
  for (int group = 1; group <= 8; ++group) {
    for (const int rows : kRows) {
      const int context = kContexts[turn % std::size(kContexts)];
      const int head_dim = kHeadDims[turn % std::size(kHeadDims)];
      ++turn;
      const AttentionShape shape =
          AttentionShape{2 * group, 2, head_dim}.with(std::get<1>(GetParam()));
      check(shape, context, rows, 0);
      check(shape, context, rows, rows / 2 + 1);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ManyQueriesTest, WithAWindowOrACapAsWell) {
  for (const AttentionShape& shape :
       {AttentionShape{8, 2, 64, 90}, {8, 2, 96, 300, 30.0f}, {32, 1, 256}}) {
    check(shape.with(std::get<1>(GetParam())), 530, 9, 4);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ManyQueriesTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::ValuesIn(kAllKvTypes)),
                         isa_type_test_name);

}  // namespace aerie::kernels::attention_many_queries_test
