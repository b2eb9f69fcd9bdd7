// Draft trees: every node gives the bits of the plain chain that ends in it.
#include <algorithm>

#include "tests/kernels/attention/attention_testing.h"

namespace aerie::kernels::attention_tree_test {

// Nodes in topological order; the root is node 0.
struct Tree {
  std::vector<int> parents;
  std::vector<Token> tokens;

  int size() const { return static_cast<int>(tokens.size()); }
  // Nodes from the root to `node`.
  std::vector<int> path(int node) const {
    std::vector<int> nodes;
    for (int at = node; at >= 0; at = parents[static_cast<size_t>(at)]) nodes.push_back(at);
    std::reverse(nodes.begin(), nodes.end());
    return nodes;
  }
};

// `reach` is how far back a node's parent may be: 1 gives a chain, a large one a bush.
Tree random_tree(Random& random, int size, int reach) {
  Tree tree;
  tree.tokens = random_tokens(random, size);
  tree.parents.push_back(-1);
  for (int i = 1; i < size; ++i) {
    tree.parents.push_back(std::max(0, i - 1 - static_cast<int>(random.below(reach))));
  }
  return tree;
}

std::vector<Token> chain_to(const std::vector<Token>& prefix, const Tree& tree, int node) {
  std::vector<Token> chain = prefix;
  for (const int at : tree.path(node)) chain.push_back(tree.tokens[static_cast<size_t>(at)]);
  return chain;
}

// The prefix in the pages, node i as the i-th entry after it.
int put_tree(TestCache& cache, const std::vector<Token>& prefix, const Tree& tree) {
  const int committed = static_cast<int>(prefix.size());
  const int sequence = cache.open(committed + tree.size());
  cache.put_chain(sequence, prefix);
  for (int i = 0; i < tree.size(); ++i) {
    cache.put(cache.slot(sequence, committed + i), tree.tokens[static_cast<size_t>(i)]);
  }
  return sequence;
}

void add_node(AttentionBatch& batch, const TestCache& cache, int sequence, int committed,
              const Tree& tree, int node) {
  const std::vector<int> path = tree.path(node);
  const Token token = tree.tokens[static_cast<size_t>(node)];
  std::vector<int32_t> tail;
  bool linear = true;
  for (size_t depth = 0; depth < path.size(); ++depth) {
    linear = linear && path[depth] == static_cast<int>(depth);
    tail.push_back(cache.slot(sequence, committed + path[depth]));
  }
  if (linear) return batch.add_linear(sequence, token, committed + node, committed);
  batch.add_tail(sequence, token, committed, tail);
}

class AttentionTreeTest : public BackendTest<std::tuple<Isa, KvType>> {
 protected:
  AttentionShape shape_of(const AttentionShape& shape) const {
    return shape.with(std::get<1>(GetParam()));
  }

  void check(const AttentionShape& shape, int committed, const Tree& tree) {
    Random random(70 + static_cast<uint64_t>(committed));
    const std::vector<Token> prefix = random_tokens(random, committed);
    TestCache cache(shape, (committed + tree.size()) / kPagePositions + 2, 71);
    const int sequence = put_tree(cache, prefix, tree);
    AttentionBatch whole(cache);
    for (int i = 0; i < tree.size(); ++i) add_node(whole, cache, sequence, committed, tree, i);
    const std::vector<float> out = whole.run(backend(), 2);
    for (int i = 0; i < tree.size(); ++i) {
      const std::vector<float> expected = attend_alone(backend(), shape, chain_to(prefix, tree, i));
      ASSERT_TRUE(same_bits(row_of(out, shape, static_cast<size_t>(i)), expected))
          << "node " << i << " of " << tree.size() << " after " << committed;
      AttentionBatch single(cache);
      add_node(single, cache, sequence, committed, tree, i);
      ASSERT_TRUE(same_bits(single.run(backend(), 3), expected)) << "node " << i << " by itself";
    }
  }
};

TEST_P(AttentionTreeTest, NodesAreChains) {
  Random random(72);
  for (const AttentionShape& shape : test::sampled(
           {AttentionShape{6, 2, 32}, {3, 3, 64}, {28, 1, 16}, {6, 2, 32, 5}, {4, 2, 16, 70, 4.0f}},
           3)) {
    for (const int committed : test::sampled({0, 1, 15, 50, 63, 64, 240, 255, 256, 300, 511}, 2)) {
      const int size = 2 + static_cast<int>(random.below(30));
      check(shape_of(shape), committed,
            random_tree(random, size, 1 + static_cast<int>(random.below(12))));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(AttentionTreeTest, DeepAndWideTrees) {
  Random random(73);
  for (const int window : test::sampled({0, 30, 220}, 1)) {
    const AttentionShape shape = shape_of({4, 2, 16, window});
    check(shape, 200, random_tree(random, 90, 1));
    check(shape, 250, random_tree(random, 90, 3));
    check(shape, 10, random_tree(random, 90, 90));
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTreeTest, NodesOfLongKeysAreChains) {
  Random random(77);
  for (const AttentionShape& shape : kLongKeys) {
    for (const int committed : test::sampled({0, 1, 50, 64, 250, 300}, 1)) {
      const int size = 2 + static_cast<int>(random.below(30));
      check(shape_of(shape), committed, random_tree(random, size, 4));
      if (HasFatalFailure()) return;
    }
  }
}

// What one branch proposes must not reach another, whatever it is.
TEST_P(AttentionTreeTest, OddSiblingsDoNotLeak) {
  Random random(74);
  for (const int committed : {0, 30, 250, 251}) {
    const AttentionShape shape = shape_of(
        committed == 251 ? kLongKeys[1] : AttentionShape{6, 2, 32, committed == 30 ? 20 : 0});
    Tree tree = random_tree(random, 40, 8);
    for (size_t i = 3; i < tree.tokens.size(); i += 4) {
      tree.tokens[i] = i % 3 == 0 ? kNanToken : i % 3 == 1 ? kInfToken : kHugeToken;
    }
    check(shape, committed, tree);
  }
}

// A verify pass of several sequences beside a prompt's piece and plain decoding.
TEST_P(AttentionTreeTest, TreesBesideOtherRows) {
  Random random(75);
  for (const auto& [prompt, window] : {std::pair{3, 0}, {80, 0}, {3, 50}, {80, 50}}) {
    const AttentionShape shape = shape_of({6, 2, 32, window});
    const int counts[] = {20, 130, 259};
    TestCache cache(shape, 40, 76);
    AttentionBatch batch(cache);
    std::vector<std::vector<Token>> chains;
    for (const int committed : counts) {
      const std::vector<Token> prefix = random_tokens(random, committed);
      const Tree tree = random_tree(random, 12, 5);
      const int sequence = put_tree(cache, prefix, tree);
      for (int i = 0; i < tree.size(); ++i) {
        add_node(batch, cache, sequence, committed, tree, i);
        chains.push_back(chain_to(prefix, tree, i));
      }
    }
    const std::vector<Token> text = random_tokens(random, 200 + prompt);
    const int sequence = cache.open(static_cast<int>(text.size()));
    cache.put_chain(sequence, text);
    for (int p = 200; p < 200 + prompt; ++p) {
      batch.add_linear(sequence, text[static_cast<size_t>(p)], p, 200);
      chains.emplace_back(text.begin(), text.begin() + p + 1);
    }
    std::vector<std::vector<float>> expected;
    for (const std::vector<Token>& chain : chains) {
      expected.push_back(attend_alone(backend(), shape, chain));
    }
    for (const int threads : test::sampled(kThreadCounts, 1)) {
      const std::vector<float> out = batch.run(backend(), threads);
      for (size_t r = 0; r < chains.size(); ++r) {
        ASSERT_TRUE(same_bits(row_of(out, shape, r), expected[r]))
            << "row " << r << " of " << chains.size() << ", " << threads << " threads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTreeTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::ValuesIn(kAllKvTypes)),
                         isa_type_test_name);

}  // namespace aerie::kernels::attention_tree_test
