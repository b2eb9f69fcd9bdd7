// A row's outputs depend on its inputs and on what it sees, bit for bit: not on how the prompt was
// cut, on the batch around it, on threads, on where pages lie or on what else was asked for.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/model/batches.h"

namespace aerie::invariance_test {

class Invariance : public IsaAndTypeTest {
 protected:
  // Crosses pages and, where it is quick, attention's chunks.
  static int length() { return isa() == kernels::Isa::kReference ? 100 : 300; }
  static std::span<const int32_t> tokens(uint64_t seed) {
    static std::map<std::pair<uint64_t, int>, std::vector<int32_t>> all;
    std::vector<int32_t>& made = all[{seed, length()}];
    if (made.empty()) made = test::random_tokens(seed, length(), vocab_of_files());
    return made;
  }
  // One row at a time.
  static std::vector<RowOutputs> one_by_one(uint64_t seed) {
    Bench bench(file(), isa(), 1, 1);
    return bench.read(*bench.cache().open(), tokens(seed), 1);
  }
};

TEST_P(Invariance, HowThePromptWasCutAndThreads) {
  const std::vector<RowOutputs> expected = one_by_one(1);
  for (const int threads : {1, 2, 3}) {
    Bench bench(file(), isa(), threads, 1);
    for (const int chunk : {7, 64, 100, 300}) {
      const KvCache::Id id = *bench.cache().open();
      EXPECT_TRUE(bench.read(id, tokens(1), chunk) == expected)
          << threads << " threads, chunks of " << chunk;
      bench.cache().close(id);
    }
  }
}

// Three sequences at different places in one pass, in every order, with rows by tens.
TEST_P(Invariance, TheBatchAround) {
  std::vector<std::vector<RowOutputs>> expected;
  for (uint64_t s = 0; s < 3; ++s) expected.push_back(one_by_one(s));
  Bench bench(file(), isa(), 2, 3);
  std::vector<KvCache::Id> ids;
  std::vector<size_t> done = {0, 40, 70};
  for (uint64_t s = 0; s < 3; ++s) {
    ids.push_back(*bench.cache().open());
    bench.read(ids[s], tokens(s).first(done[s]), 64);
  }
  std::vector<size_t> order = {0, 1, 2};
  for (size_t pass = 0; done[0] < static_cast<size_t>(length()); ++pass) {
    std::next_permutation(order.begin(), order.end());
    std::vector<std::pair<size_t, size_t>> places;
    for (const size_t s : order) {
      const size_t count = std::min((pass + s) % 4 * 10, static_cast<size_t>(length()) - done[s]);
      if (count == 0) continue;
      bench.add_chain(ids[s], tokens(s).subspan(done[s], count));
      for (size_t i = 0; i < count; ++i) places.emplace_back(s, done[s] + i);
      done[s] += count;
    }
    if (places.empty()) continue;
    std::vector<int> rows(3, 0);
    const std::vector<RowOutputs> actual = bench.run();
    for (size_t i = 0; i < places.size(); ++i) {
      const auto [s, position] = places[i];
      ++rows[s];
      ASSERT_TRUE(actual[i] == expected[s][position]) << "sequence " << s << ", " << position;
    }
    for (size_t s = 0; s < 3; ++s) bench.cache().commit_first(ids[s], rows[s]);
  }
}

TEST_P(Invariance, WherePagesLie) {
  const std::vector<RowOutputs> expected = one_by_one(1);
  Bench bench(file(), isa(), 1, 3);
  const KvCache::Id a = *bench.cache().open(), b = *bench.cache().open();
  for (int i = 1; i <= 6; ++i) {
    ASSERT_TRUE(bench.cache().reserve(a, 64 * i).ok() && bench.cache().reserve(b, 64 * i).ok());
  }
  bench.cache().close(a);  // its pages are every other one
  const KvCache::Id id = *bench.cache().open();
  EXPECT_TRUE(bench.read(id, tokens(1), 64) == expected);
  const auto pages = bench.cache().pages(id);
  EXPECT_NE(pages[0] + 1, pages[1]);
}

TEST_P(Invariance, WhatElseWasAskedFor) {
  const std::vector<RowOutputs> expected = one_by_one(1);
  Bench bench(file(), isa(), 1, 1);
  const KvCache::Id id = *bench.cache().open();
  bench.add_chain(id, tokens(1));
  for (size_t i = 0; i < bench.batch().rows.size(); ++i) {
    bench.batch().rows[i].wants_logits = i % 3 == 1;
    bench.batch().rows[i].wants_taps = i % 4 == 3;
    bench.batch().rows[i].wants_state = i % 5 == 2;
  }
  const std::vector<RowOutputs> actual = bench.run();
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(actual[i].logits == (i % 3 == 1 ? expected[i].logits : std::vector<float>()));
    ASSERT_TRUE(actual[i].taps == (i % 4 == 3 ? expected[i].taps : std::vector<float>()));
    ASSERT_TRUE(actual[i].state == (i % 5 == 2 ? expected[i].state : std::vector<float>()));
  }
}

TEST_P(Invariance, NothingAskedForGivesNothing) {
  Bench bench(file(), isa(), 1, 1);
  const KvCache::Id id = *bench.cache().open();
  bench.add_chain(id, tokens(1).first(5));
  for (BatchRow& row : bench.batch().rows) {
    row.wants_logits = row.wants_taps = row.wants_state = false;
  }
  for (const RowOutputs& row : bench.run()) EXPECT_TRUE(row == RowOutputs());
  // The keys and values are there all the same.
  bench.cache().commit_first(id, 5);
  const std::vector<RowOutputs> rest = bench.read(id, tokens(1).subspan(5, 20), 20);
  const std::vector<RowOutputs> expected = one_by_one(1);
  for (size_t i = 0; i < rest.size(); ++i) ASSERT_TRUE(rest[i] == expected[5 + i]);
}

TEST_P(Invariance, TapsInAnyOrder) {
  const std::vector<RowOutputs> expected = one_by_one(1);
  Bench bench(file(), isa(), 1, 1);
  const auto hidden = static_cast<size_t>(bench.model().config().hidden);
  const auto layers = bench.model().config().layers;
  bench.add_chain(*bench.cache().open(), tokens(1).first(10));
  const std::vector<int32_t> wanted = {layers, 0, layers};
  bench.batch().tap_layers = wanted;
  const std::vector<RowOutputs> actual = bench.run();
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].taps.size(), wanted.size() * hidden);
    for (size_t t = 0; t < wanted.size(); ++t) {
      const auto from = expected[i].taps.begin() +
                        static_cast<std::ptrdiff_t>(static_cast<size_t>(wanted[t]) * hidden);
      ASSERT_TRUE(std::equal(from, from + static_cast<std::ptrdiff_t>(hidden),
                             actual[i].taps.begin() + static_cast<std::ptrdiff_t>(t * hidden)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Invariance, testing::ValuesIn(every_isa_and_type()),
                         isa_and_type_name);

}  // namespace aerie::invariance_test
