#include "draft/tree/tree_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/testing/allocation_counter.h"

namespace aerie::tree_growth_test {

using testing::ElementsAre;

using Path = std::vector<int32_t>;

Path path_to(const TokenTree& tree, int32_t node) {
  Path path;
  for (; node >= 0; node = tree.nodes[static_cast<size_t>(node)].parent) {
    path.insert(path.begin(), tree.nodes[static_cast<size_t>(node)].token);
  }
  return path;
}

std::map<Path, float> paths_of(const TokenTree& tree) {
  std::map<Path, float> paths;
  for (int32_t i = 0; i < tree.size(); ++i) {
    float& probability = paths[path_to(tree, i)];
    probability = std::max(probability, tree.nodes[static_cast<size_t>(i)].probability);
  }
  return paths;
}

void expect_sound(const TokenTree& tree) {
  for (int32_t i = 0; i < tree.size(); ++i) {
    const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    ASSERT_LT(node.parent, i);
    if (node.parent < 0) {
      EXPECT_EQ(node.depth, 1);
      continue;
    }
    const TokenTree::Node& parent = tree.nodes[static_cast<size_t>(node.parent)];
    EXPECT_EQ(node.depth, parent.depth + 1);
    EXPECT_LE(node.probability, parent.probability);
  }
}

// Few probabilities, so that ties are common; siblings have different tokens if `alphabet` allows.
TokenTree random_tree(std::mt19937& random, int nodes, int alphabet) {
  TokenTree tree;
  std::set<Path> seen;
  for (int tries = 0; tree.size() < nodes && tries < 100; ++tries) {
    const int32_t parent = static_cast<int32_t>(random() % (tree.nodes.size() + 1)) - 1;
    const auto token = static_cast<int32_t>(random() % static_cast<uint32_t>(alphabet));
    Path path = path_to(tree, parent);
    path.push_back(token);
    if (!seen.insert(path).second) continue;
    const float above = parent < 0 ? 1.0f : tree.nodes[static_cast<size_t>(parent)].probability;
    tree.add(token, parent, nullptr, above * static_cast<float>(1 + random() % 4) / 4);
  }
  return tree;
}

// The largest sum of probabilities of an ancestor-closed set of `budget` nodes.
double best_sum(const TokenTree& tree, const TreeLimits& limits) {
  double best = 0;
  for (uint32_t set = 0; set < 1u << tree.size(); ++set) {
    if (std::popcount(set) > limits.max_nodes) continue;
    double sum = 0;
    for (int32_t i = 0; i < tree.size() && sum >= 0; ++i) {
      if ((set >> i & 1) == 0) continue;
      const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
      const bool fits =
          node.depth <= limits.max_depth && (node.parent < 0 || (set >> node.parent & 1) != 0);
      sum = fits ? sum + static_cast<double>(node.probability) : -1;
    }
    best = std::max(best, sum);
  }
  return best;
}

double sum_of(const TokenTree& tree) {
  double sum = 0;
  for (const TokenTree::Node& node : tree.nodes) sum += static_cast<double>(node.probability);
  return sum;
}

TEST(TreeGrowth, KeepsTheBestNodes) {
  std::mt19937 random(1);
  TreeEditor editor;
  for (int repeat = 0; repeat < 300; ++repeat) {
    const TokenTree all = random_tree(random, 1 + static_cast<int>(random() % 10), 50);
    TreeLimits limits;
    if (repeat % 3 == 0) limits.max_depth = 1 + static_cast<int>(random() % 3);
    for (limits.max_nodes = 0; limits.max_nodes <= all.size() + 1; ++limits.max_nodes) {
      TokenTree kept = all;
      editor.keep_best(kept, limits);
      expect_sound(kept);
      ASSERT_NEAR(sum_of(kept), best_sum(all, limits), 1e-9);
      EXPECT_LE(kept.size(), limits.max_nodes);
      const auto paths = paths_of(all);
      for (const auto& [path, probability] : paths_of(kept)) {
        ASSERT_TRUE(paths.contains(path));
        EXPECT_EQ(paths.at(path), probability);
      }
    }
  }
}

TEST(TreeGrowth, ASmallerBudgetGivesTheBeginningOfTheTree) {
  std::mt19937 random(2);
  TreeEditor editor;
  for (int repeat = 0; repeat < 100; ++repeat) {
    const TokenTree all = random_tree(random, 40, 50);
    TokenTree whole = all;
    editor.keep_best(whole, {});
    ASSERT_EQ(whole.size(), all.size());
    for (int budget = 0; budget <= all.size(); ++budget) {
      TokenTree kept = all;
      editor.keep_best(kept, {.max_nodes = budget});
      ASSERT_EQ(kept.size(), budget);
      for (int32_t i = 0; i < budget; ++i) ASSERT_EQ(path_to(kept, i), path_to(whole, i));
    }
  }
}

TEST(TreeGrowth, KeepsTheLikeliestChildrenAndTheEarlierOfEquals) {
  TokenTree tree;
  tree.add(10, -1, nullptr, 0.2f);
  tree.add(11, -1, nullptr, 0.5f);
  tree.add(12, -1, nullptr, 0.5f);
  tree.add(13, 0, nullptr, 0.2f);
  tree.add(14, 2, nullptr, 0.5f);
  tree.add(15, 2, nullptr, 0.4f);
  TreeEditor editor;
  TokenTree two = tree;
  editor.keep_best(two, {.max_children = 2});
  EXPECT_THAT(paths_of(two),
              ElementsAre(testing::Pair(Path{11}, 0.5f), testing::Pair(Path{12}, 0.5f),
                          testing::Pair(Path{12, 14}, 0.5f), testing::Pair(Path{12, 15}, 0.4f)));
  TokenTree one = tree;
  editor.keep_best(one, {.max_children = 1});
  EXPECT_THAT(paths_of(one), ElementsAre(testing::Pair(Path{11}, 0.5f)));
  TokenTree first = tree;
  editor.keep_best(first, {.max_nodes = 1});
  EXPECT_THAT(paths_of(first), ElementsAre(testing::Pair(Path{11}, 0.5f)));
  TokenTree nothing = tree;
  editor.keep_best(nothing, {.max_depth = 0});
  EXPECT_TRUE(nothing.empty());
}

TEST(TreeGrowth, GrowsWhatIsOffered) {
  TreeGrowth growth;
  TokenTree tree;
  growth.start(tree, {.max_nodes = 3, .max_depth = 2});
  growth.offer(1, -1, 0.3, 77);
  growth.offer(2, -1, 0.6, 88);
  auto grown = growth.grow();
  ASSERT_TRUE(grown.has_value());
  EXPECT_EQ(grown->tag, 88);
  EXPECT_EQ(grown->node, 0);
  growth.offer(3, 0, 0.9);  // no likelier than its parent
  grown = growth.grow();
  ASSERT_TRUE(grown.has_value());
  EXPECT_EQ(grown->probability, 0.6);
  growth.offer(4, 1, 0.6);  // too deep
  grown = growth.grow();
  ASSERT_TRUE(grown.has_value());
  EXPECT_EQ(grown->tag, 77);
  growth.offer(5, -1, 0.3);  // the tree is full
  EXPECT_FALSE(growth.grow().has_value());
  EXPECT_THAT(paths_of(tree),
              ElementsAre(testing::Pair(Path{1}, 0.3f), testing::Pair(Path{2}, 0.6f),
                          testing::Pair(Path{2, 3}, 0.6f)));
  expect_sound(tree);
}

TEST(TreeGrowth, MergesByPathInEitherOrder) {
  std::mt19937 random(3);
  TreeEditor editor;
  int shared = 0;
  for (int repeat = 0; repeat < 500; ++repeat) {
    const TokenTree a = random_tree(random, static_cast<int>(random() % 20), 3);
    const TokenTree b = random_tree(random, static_cast<int>(random() % 20), 3);
    std::map<Path, float> expected = paths_of(a);
    for (const auto& [path, probability] : paths_of(b)) {
      shared += expected.contains(path) ? 1 : 0;
      expected[path] = std::max(expected[path], probability);
    }
    TokenTree ab = a, ba = b;
    EXPECT_EQ(editor.merge(ab, b), static_cast<int>(expected.size()) - a.size());
    EXPECT_EQ(editor.merge(ba, a), static_cast<int>(expected.size()) - b.size());
    for (const TokenTree* merged : {&ab, &ba}) {
      ASSERT_EQ(paths_of(*merged), expected);
      ASSERT_EQ(merged->nodes.size(), expected.size());
      expect_sound(*merged);
    }
    EXPECT_EQ(editor.merge(ab, b), 0);
  }
  EXPECT_GT(shared, 500);
}

TEST(TreeGrowth, SiblingsOfOneTokenAreMerged) {
  TokenTree twice;
  twice.add(1, -1, nullptr, 0.5f);
  twice.add(1, -1, nullptr, 0.75f);
  twice.add(2, 1, nullptr, 0.5f);
  TreeEditor editor;
  TokenTree tree;
  EXPECT_EQ(editor.merge(tree, twice), 2);
  EXPECT_THAT(paths_of(tree),
              ElementsAre(testing::Pair(Path{1}, 0.75f), testing::Pair(Path{1, 2}, 0.5f)));
  EXPECT_EQ(editor.merge(tree, TokenTree()), 0);
}

TEST(TreeGrowth, MergesProposalsWithMultiplicityAndOrder) {
  const Distribution a, b;
  TokenTree one, two;
  one.add(1, -1, &a);
  one.add(2, -1, &a);
  one.nodes[1].without_replacement = true;
  one.add(3, 1, nullptr);
  two.add(2, -1, &b);
  two.add(4, 0, &b);
  two.add(3, 0, &b);
  two.add(5, 0);
  two.nodes[3].role = NodeRole::kProbe;
  two.proposals = {{0, &b, false}, {2, &b, true}, {1, &b, true}, {0, &a, false}};
  TreeEditor editor;
  TokenTree tree = one;
  EXPECT_EQ(editor.merge_proposals(tree, two), 2);
  EXPECT_TRUE(tree.is_well_formed());
  expect_sound(tree);
  // Nodes: 1, 2, its 3, its 4, its probe.
  ASSERT_EQ(tree.size(), 5);
  EXPECT_EQ(tree.nodes[4].role, NodeRole::kProbe);
  std::vector<std::pair<int32_t, const Distribution*>> listed;
  std::vector<int> without;
  for (const TokenTree::Proposal& p : tree.proposals) {
    listed.emplace_back(p.node, p.proposal);
    without.push_back(p.without_replacement ? 1 : 0);
  }
  const std::vector<std::pair<int32_t, const Distribution*>> expected = {
      {0, &a}, {1, &a}, {2, nullptr}, {1, &b}, {2, &b}, {3, &b}, {1, &a}};
  EXPECT_EQ(listed, expected);
  EXPECT_THAT(without, ElementsAre(0, 1, 0, 0, 1, 1, 0));
  // A third goes behind those.
  TokenTree three;
  three.add(1, -1);
  EXPECT_EQ(editor.merge_proposals(tree, three), 0);
  EXPECT_EQ(tree.proposals.size(), 8u);
  EXPECT_EQ(tree.proposals.back().node, 0);
}

TEST(TreeGrowth, AllocatesNothingOnceWarm) {
  std::mt19937 random(4);
  const TokenTree a = random_tree(random, 60, 8), b = random_tree(random, 60, 8);
  TreeEditor editor;
  TokenTree tree;
  const auto work = [&] {
    tree.nodes.assign(a.nodes.begin(), a.nodes.end());
    const int added = editor.merge(tree, b);
    editor.keep_best(tree, {.max_nodes = 30});
    tree.nodes.assign(a.nodes.begin(), a.nodes.end());
    tree.proposals.clear();
    editor.merge_proposals(tree, b);
    return added;
  };
  EXPECT_GT(work(), 10);
  const int64_t before = allocations();
  for (int i = 0; i < 10; ++i) work();
  EXPECT_EQ(allocations(), before);
}

}  // namespace aerie::tree_growth_test
