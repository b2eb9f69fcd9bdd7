// A node of a tree computes what the last row of its path would as a chain, bit for bit, and a path
// that was committed is as if it had been a chain from the start.

#include <gtest/gtest.h>

#include "tests/model/batches.h"

namespace aerie {
namespace {

constexpr int kNodes = 24;

class Tree : public IsaAndTypeTest {
 protected:
  // Behind nothing, and where the tree crosses a page, a chunk of attention, both at its root.
  static std::vector<int> prefixes() {
    if (isa() == kernels::Isa::kReference) return {0, 60};
    return {0, 1, 55, 63, 64, 188, 248, 255, 256, 300};
  }
};

TEST_P(Tree, ANodeIsTheEndOfItsChain) {
  for (const int prefix : prefixes()) {
    const std::vector<int32_t> tokens = test::random_tokens(4, prefix + 1, vocab_of_files());
    const TokenTree tree = random_tree(static_cast<uint64_t>(prefix), kNodes);
    Bench alone(file(), isa(), 1, 1);
    const KvCache::Id chain = *alone.cache().open();
    alone.read(chain, std::span(tokens).first(static_cast<size_t>(prefix)), 64);

    for (const int threads : {1, 2, 3}) {
      Bench bench(file(), isa(), threads, 3);
      const KvCache::Id id = *bench.cache().open();
      bench.read(id, std::span(tokens).first(static_cast<size_t>(prefix)), 64);
      bench.add_tree(id, tokens.back(), tree);
      const std::vector<RowOutputs> rows = bench.run();
      for (int32_t node = -1; node < tree.size(); ++node) {
        std::vector<int32_t> path;
        for (const int32_t entry : path_to(tree, node)) {
          path.push_back(entry == 0 ? tokens.back()
                                    : tree.nodes[static_cast<size_t>(entry) - 1].token);
        }
        alone.add_chain(chain, path);  // not committed: the next one starts at the same place
        ASSERT_TRUE(rows[static_cast<size_t>(1 + node)] == alone.run().back())
            << "prefix " << prefix << ", node " << node << ", " << threads << " threads";
      }
    }
  }
}

// Trees of several sequences in one pass.
TEST_P(Tree, TreesDoNotSeeEachOther) {
  const auto tokens = [](uint64_t s) { return test::random_tokens(s, 70, vocab_of_files()); };
  std::vector<std::vector<RowOutputs>> expected;
  for (uint64_t s = 0; s < 3; ++s) {
    Bench bench(file(), isa(), 1, 1);
    const KvCache::Id id = *bench.cache().open();
    bench.read(id, tokens(s), 64);
    bench.add_tree(id, 5, random_tree(s, kNodes));
    expected.push_back(bench.run());
  }
  Bench bench(file(), isa(), 2, 3);
  std::vector<KvCache::Id> ids;
  for (uint64_t s = 0; s < 3; ++s) {
    ids.push_back(*bench.cache().open());
    bench.read(ids[s], tokens(s), 64);
  }
  for (const size_t s : {2u, 0u, 1u}) bench.add_tree(ids[s], 5, random_tree(s, kNodes));
  const std::vector<RowOutputs> rows = bench.run();
  size_t row = 0;
  for (const size_t s : {2u, 0u, 1u}) {
    for (const RowOutputs& out : expected[s]) {
      ASSERT_TRUE(rows[row] == out) << row;
      ++row;
    }
  }
}

TEST_P(Tree, ACommittedPathIsAChain) {
  for (const int prefix : prefixes()) {
    const std::vector<int32_t> tokens = test::random_tokens(4, prefix + 1, vocab_of_files());
    const TokenTree tree = random_tree(100 + static_cast<uint64_t>(prefix), kNodes);
    const std::vector<int32_t> path = path_to(tree, kNodes - 1);
    const std::vector<int32_t> more = test::random_tokens(6, 20, vocab_of_files());

    Bench alone(file(), isa(), 1, 1);
    std::vector<int32_t> all = tokens;
    for (size_t i = 1; i < path.size(); ++i) {
      all.push_back(tree.nodes[static_cast<size_t>(path[i]) - 1].token);
    }
    const KvCache::Id chain = *alone.cache().open();
    alone.read(chain, all, 64);
    const std::vector<RowOutputs> expected = alone.read(chain, more, 7);

    Bench bench(file(), isa(), 2, 1);
    const KvCache::Id id = *bench.cache().open();
    bench.read(id, std::span(tokens).first(static_cast<size_t>(prefix)), 64);
    bench.add_tree(id, tokens.back(), tree);
    bench.run();
    bench.cache().commit(id, path);
    ASSERT_EQ(bench.cache().committed(id), static_cast<int>(all.size()));
    EXPECT_TRUE(bench.read(id, more, 20) == expected) << "prefix " << prefix;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Tree, testing::ValuesIn(every_isa_and_type()),
                         isa_and_type_name);

}  // namespace
}  // namespace aerie
