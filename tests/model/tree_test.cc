// A node of a tree computes what the last row of its path would as a chain, bit for bit, and a path
// that was committed is as if it had been a chain from the start.

#include <gtest/gtest.h>

#include "tests/model/batches.h"

namespace aerie::tree_test {

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

// One pass for each depth; the nodes above are in the cache, uncommitted.
TEST_P(Tree, LevelByLevelIsAllAtOnce) {
  for (const int prefix : prefixes()) {
    const std::vector<int32_t> tokens = test::random_tokens(4, prefix + 1, vocab_of_files());
    const TokenTree tree = random_tree(50 + static_cast<uint64_t>(prefix), kNodes);
    Bench whole(file(), isa(), 1, 1);
    const KvCache::Id all = *whole.cache().open();
    whole.read(all, std::span(tokens).first(static_cast<size_t>(prefix)), 64);
    whole.add_tree(all, tokens.back(), tree);
    const std::vector<RowOutputs> expected = whole.run();

    Bench bench(file(), isa(), 2, 1);
    const KvCache::Id id = *bench.cache().open();
    bench.read(id, std::span(tokens).first(static_cast<size_t>(prefix)), 64);
    ASSERT_TRUE(bench.cache().reserve(id, 1 + tree.size()).ok());
    int left = 1 + tree.size();
    for (int depth = 0; left > 0; ++depth) {
      std::vector<std::vector<int32_t>> above;
      std::vector<int32_t> nodes;
      for (int32_t node = -1; node < tree.size(); ++node) {
        const std::vector<int32_t> path = path_to(tree, node);  // entries, the node's own last
        if (static_cast<int>(path.size()) != depth + 1) continue;
        nodes.push_back(node);
        above.emplace_back();
        for (int i = 0; i < depth; ++i) {
          above.back().push_back(bench.cache().slot(id, path[static_cast<size_t>(i)]));
        }
      }
      ForwardBatch& batch = bench.batch();
      batch.sequences.push_back({bench.cache().pages(id), prefix, id});
      batch.tap_layers.clear();
      for (int layer = 0; layer <= bench.model().config().layers; ++layer) {
        batch.tap_layers.push_back(layer);
      }
      for (size_t i = 0; i < nodes.size(); ++i) {
        BatchRow row;
        row.token = nodes[i] < 0 ? tokens.back() : tree.nodes[static_cast<size_t>(nodes[i])].token;
        row.position = prefix + depth;
        row.slot = bench.cache().slot(id, 1 + nodes[i]);
        row.above = above[i];
        row.wants_logits = row.wants_taps = row.wants_state = true;
        batch.rows.push_back(row);
      }
      const std::vector<RowOutputs> rows = bench.run();
      for (size_t i = 0; i < nodes.size(); ++i) {
        ASSERT_TRUE(rows[i] == expected[static_cast<size_t>(1 + nodes[i])])
            << "prefix " << prefix << ", node " << nodes[i];
      }
      left -= static_cast<int>(nodes.size());
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

}  // namespace aerie::tree_test
