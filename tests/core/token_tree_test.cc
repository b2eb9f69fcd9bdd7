#include "core/token_tree.h"

#include <gtest/gtest.h>

namespace aerie::token_tree_test {

TEST(Distribution, FindsListedIds) {
  const Distribution d{{2, 5, 9}, {0.25, 0.5, 0.25}};
  EXPECT_EQ(d.probability(2), 0.25);
  EXPECT_EQ(d.probability(5), 0.5);
  EXPECT_EQ(d.probability(9), 0.25);
  for (const int32_t id : {-1, 0, 3, 6, 10}) EXPECT_EQ(d.probability(id), 0.0) << id;
}

TEST(Distribution, EmptyHasNoMass) {
  const Distribution d;
  EXPECT_EQ(d.size(), 0u);
  EXPECT_EQ(d.probability(0), 0.0);
}

TEST(Distribution, ClearKeepsMemory) {
  Distribution d{{1, 2}, {0.5, 0.5}};
  const size_t capacity = d.ids.capacity();
  d.clear();
  EXPECT_EQ(d.size(), 0u);
  EXPECT_EQ(d.ids.capacity(), capacity);
}

TEST(TokenTree, AddSetsDepths) {
  TokenTree tree;
  const Distribution q{{7}, {1.0}};
  EXPECT_EQ(tree.add(7, -1, &q), 0);
  EXPECT_EQ(tree.add(8, -1), 1);
  EXPECT_EQ(tree.add(9, 0), 2);
  EXPECT_EQ(tree.add(10, 2), 3);
  EXPECT_EQ(tree.nodes[0].depth, 1);
  EXPECT_EQ(tree.nodes[1].depth, 1);
  EXPECT_EQ(tree.nodes[2].depth, 2);
  EXPECT_EQ(tree.nodes[3].depth, 3);
  EXPECT_EQ(tree.nodes[0].proposal, &q);
  EXPECT_EQ(tree.nodes[1].proposal, nullptr);
}

TEST(TokenTree, NodesAreCertainUnlessToldOtherwise) {
  TokenTree tree;
  tree.add(7, -1);
  tree.add(8, 0, nullptr, 0.25f);
  EXPECT_EQ(tree.nodes[0].probability, 1.0f);
  EXPECT_EQ(tree.nodes[1].probability, 0.25f);
}

TEST(TokenTree, KnowsChains) {
  TokenTree tree;
  EXPECT_TRUE(tree.is_chain());
  tree.add(1, -1);
  EXPECT_TRUE(tree.is_chain());
  tree.add(2, 0);
  EXPECT_TRUE(tree.is_chain());
  tree.add(3, 0);
  EXPECT_FALSE(tree.is_chain());
  tree.clear();
  tree.add(1, -1);
  tree.add(2, -1);
  EXPECT_FALSE(tree.is_chain());
}

TEST(TokenTree, AChainIsOfDraftsProposedOnce) {
  TokenTree tree;
  tree.add(1, -1);
  tree.nodes.back().role = NodeRole::kWindow;
  tree.add(2, -1);
  tree.add(3, 0);
  tree.nodes.back().role = NodeRole::kProbe;
  tree.add(4, 1);
  EXPECT_TRUE(tree.is_well_formed());
  EXPECT_TRUE(tree.is_chain());
  tree.proposals = {{3, nullptr, false}, {1, nullptr, false}};
  EXPECT_TRUE(tree.is_well_formed());
  EXPECT_TRUE(tree.is_chain());
  tree.proposals.push_back({3, nullptr, false});
  EXPECT_TRUE(tree.is_well_formed());
  EXPECT_FALSE(tree.is_chain());
}

TEST(TokenTree, KnowsWhatIsMalformed) {
  TokenTree good;
  good.add(1, -1);
  good.add(2, 0);
  good.add(3, 0);
  good.nodes[2].role = NodeRole::kProbe;
  good.proposals = {{1, nullptr, false}, {0, nullptr, false}};
  EXPECT_TRUE(good.is_well_formed());
  const auto spoilt = [&](auto spoil) {
    TokenTree tree = good;
    spoil(tree);
    return !tree.is_well_formed();
  };
  EXPECT_TRUE(spoilt([](TokenTree& t) { t.nodes[0].parent = 0; }));
  EXPECT_TRUE(spoilt([](TokenTree& t) { t.nodes[0].parent = -2; }));
  EXPECT_TRUE(spoilt([](TokenTree& t) { t.nodes[0].parent = 1; }));
  EXPECT_TRUE(spoilt([](TokenTree& t) { t.nodes[1].depth = 1; }));
  EXPECT_TRUE(spoilt([](TokenTree& t) { t.nodes[0].depth = 0; }));
  EXPECT_TRUE(spoilt([](TokenTree& t) { t.nodes[0].role = NodeRole::kWindow; }));  // above a draft
  EXPECT_TRUE(spoilt([](TokenTree& t) { t.proposals[0].node = 3; }));
  EXPECT_TRUE(spoilt([](TokenTree& t) { t.proposals[0].node = -1; }));
  EXPECT_TRUE(spoilt([](TokenTree& t) { t.proposals[0].node = 2; }));  // not a draft
  EXPECT_TRUE(spoilt([](TokenTree& t) { t.proposals[0].node = 0; }));  // node 1 is missing
}

}  // namespace aerie::token_tree_test
