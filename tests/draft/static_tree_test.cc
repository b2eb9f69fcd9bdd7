#include "draft/tree/static_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace aerie::static_tree_test {

std::set<std::string> paths_of(const StaticTree& tree) {
  std::vector<std::string> paths;
  for (const StaticTree::Node& node : tree.nodes()) {
    paths.push_back(node.parent < 0 ? "" : paths[static_cast<size_t>(node.parent)]);
    paths.back() += static_cast<char>('0' + node.rank);
  }
  return {paths.begin(), paths.end()};
}

std::map<size_t, int> counts_by_depth(const std::set<std::string>& paths) {
  std::map<size_t, int> counts;
  for (const std::string& path : paths) ++counts[path.size()];
  return counts;
}

TEST(StaticTree, EagleHasItsPublishedNodes) {
  const StaticTree& tree = *find_static_tree("eagle");
  const std::set<std::string> expected = {"0",    "1",    "2",     "3",    "00",  "01",  "02",
                                          "10",   "11",   "20",    "21",   "30",  "000", "001",
                                          "002",  "010",  "011",   "020",  "021", "100", "0000",
                                          "0001", "0002", "00000", "00001"};
  EXPECT_EQ(tree.size(), 25);
  EXPECT_EQ(paths_of(tree), expected);
  EXPECT_EQ(tree.widest(), 8);
  EXPECT_EQ(tree.most_ranks(), 4);
  EXPECT_EQ(tree.deepest(), 5);
}

TEST(StaticTree, MedusaHasItsPublishedNodes) {
  const StaticTree& tree = *find_static_tree("medusa");
  const std::set<std::string> paths = paths_of(tree);
  EXPECT_EQ(tree.size(), 63);
  EXPECT_EQ(paths.size(), 63u);
  const std::map<size_t, int> counts = {{1, 10}, {2, 28}, {3, 23}, {4, 2}};
  EXPECT_EQ(counts_by_depth(paths), counts);
  for (const char* path : {"9", "09", "16", "22", "31", "40", "90", "009", "012", "021", "030",
                           "070", "101", "200", "0000", "0001"}) {
    EXPECT_TRUE(paths.contains(path)) << path;
  }
  for (const char* path :
       {"17", "23", "32", "41", "013", "022", "031", "080", "102", "201", "0002"}) {
    EXPECT_FALSE(paths.contains(path)) << path;
  }
}

TEST(StaticTree, ParentsComeFirstAndBeginningsAreTheLikeliest) {
  for (const std::string_view name : static_tree_names()) {
    const StaticTree& tree = *find_static_tree(name);
    float last = 1.0f;
    for (int i = 0; i < tree.size(); ++i) {
      const StaticTree::Node& node = tree.nodes()[static_cast<size_t>(i)];
      EXPECT_LT(node.parent, i);
      EXPECT_LE(node.probability, last);
      last = node.probability;
      const auto siblings = tree.children(node.parent);
      EXPECT_EQ(siblings[static_cast<size_t>(node.rank)], i) << "no rank is left out";
    }
  }
  EXPECT_EQ(find_static_tree("beech"), nullptr);
}

TEST(StaticTree, GrowsBestFirst) {
  const double ranks[] = {0.6, 0.3};
  const StaticTree tree = StaticTree::grown(5, ranks, 3);
  EXPECT_EQ(paths_of(tree), (std::set<std::string>{"0", "00", "1", "000", "01"}));
  EXPECT_EQ(StaticTree::grown(5, ranks, 1).size(), 2);
  const StaticTree chain = StaticTree::grown(4, std::span(ranks).first(1), 100);
  EXPECT_EQ(paths_of(chain), (std::set<std::string>{"0", "00", "000", "0000"}));
  EXPECT_EQ(chain.widest(), 1);
}

}  // namespace aerie::static_tree_test
