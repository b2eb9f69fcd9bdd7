#include "draft/tree/level_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/draft/tree_paths.h"
#include "tests/testing/allocation_counter.h"

namespace aerie::level_tree_test {

using testing::ElementsAre;
using testing::IsEmpty;

using test::paths_of;
using Tokens = std::vector<int32_t>;
using Children = std::vector<LevelTree::Child>;

// A model of `width` tokens: what follows a path, the likeliest first, at random but always the
// same.
class Oracle {
 public:
  Oracle(uint64_t seed, int width) : seed_(seed), width_(width) {}

  const Children& after(const Tokens& path) {
    const auto [found, added] = known_.try_emplace(path);
    if (!added) return found->second;
    std::mt19937_64 random(seed_ + known_.size() * 7919);
    std::exponential_distribution<double> weight(1.0);
    double sum = 0.0;
    for (int token = 0; token < width_; ++token) {
      found->second.push_back({token, std::pow(weight(random), 3)});
      sum += found->second.back().probability;
    }
    for (auto& child : found->second) child.probability /= sum;
    std::ranges::sort(found->second, std::greater<>(), &LevelTree::Child::probability);
    return found->second;
  }

 private:
  uint64_t seed_;
  int width_;
  std::map<Tokens, Children> known_;
};

Tokens path_of(std::span<const LevelTree::Node> nodes, int32_t node) {
  if (node < 0) return {};
  Tokens path = path_of(nodes, nodes[static_cast<size_t>(node)].parent);
  path.push_back(nodes[static_cast<size_t>(node)].token);
  return path;
}

struct Grown {
  TokenTree tree;
  int passes = 0;
  int run = 0;  // nodes, the root included
};

Grown grow(LevelTree& level, const LevelLimits& limits, Oracle& oracle) {
  Grown grown;
  level.start(limits);
  for (; !level.frontier().empty(); level.advance()) {
    ++grown.passes;
    for (const int32_t node : level.frontier()) {
      level.expand(node, oracle.after(path_of(level.nodes(), node)));
      ++grown.run;
    }
  }
  level.finish(grown.tree);
  return grown;
}

// EAGLE-2 as it is written down: all levels, then the best of the pool.
std::set<Tokens> pool_best(const LevelLimits& limits, Oracle& oracle) {
  using Scored = std::pair<double, Tokens>;
  const auto likelier = [](const Scored& a, const Scored& b) { return a.first > b.first; };
  std::vector<Scored> pool, frontier = {{1.0, {}}};
  for (int depth = 1; depth <= limits.max_depth; ++depth) {
    std::vector<Scored> level;
    for (const auto& [score, path] : frontier) {
      const Children& children = oracle.after(path);
      for (int i = 0; i < limits.top_k; ++i) {
        Tokens longer = path;
        longer.push_back(children[static_cast<size_t>(i)].token);
        level.emplace_back(score * children[static_cast<size_t>(i)].probability, longer);
      }
    }
    pool.insert(pool.end(), level.begin(), level.end());
    std::ranges::stable_sort(level, likelier);
    level.resize(std::min(level.size(), static_cast<size_t>(limits.top_k)));
    frontier = level;
  }
  std::ranges::stable_sort(pool, likelier);
  pool.resize(std::min(pool.size(), static_cast<size_t>(limits.max_nodes)));
  std::set<Tokens> best;
  for (const auto& [score, path] : pool) best.insert(path);
  return best;
}

TEST(LevelTree, IsTheBestOfThePoolAlthoughItStopsEarly) {
  LevelTree level;
  int saved = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Oracle oracle(seed, 8);
    LevelLimits limits;
    limits.max_nodes = 1 + static_cast<int>(seed % 23);
    limits.max_depth = 1 + static_cast<int>(seed % 6);
    limits.top_k = 1 + static_cast<int>(seed % 5);
    const Grown grown = grow(level, limits, oracle);
    const std::vector<Tokens> paths = paths_of(grown.tree);
    EXPECT_EQ(std::set<Tokens>(paths.begin(), paths.end()), pool_best(limits, oracle))
        << "seed " << seed;
    EXPECT_EQ(paths.size(), pool_best(limits, oracle).size());
    for (int i = 1; i < grown.tree.size(); ++i) {
      const auto& nodes = grown.tree.nodes;
      EXPECT_GE(nodes[static_cast<size_t>(i - 1)].probability,
                nodes[static_cast<size_t>(i)].probability);
    }
    EXPECT_LE(grown.passes, limits.max_depth);
    saved += limits.max_depth - grown.passes;
  }
  EXPECT_GT(saved, 50);
}

// Beam search as it is written down: the best `width` paths of each level go on, and of the last
// level they are all that there is.
std::set<Tokens> beams(const LevelLimits& limits, Oracle& oracle) {
  using Scored = std::pair<double, Tokens>;
  const int width = limits.width > 0 ? limits.width : limits.top_k;
  std::vector<Scored> beams = {{1.0, {}}};
  for (int depth = 1; depth <= limits.max_depth; ++depth) {
    std::vector<Scored> grown;
    for (const auto& [score, path] : beams) {
      const Children& children = oracle.after(path);
      for (size_t i = 0; i < static_cast<size_t>(limits.top_k); ++i) {
        Tokens longer = path;
        longer.push_back(children[i].token);
        grown.emplace_back(score * children[i].probability, longer);
      }
    }
    std::ranges::sort(grown, std::greater<>());
    grown.resize(std::min(grown.size(), static_cast<size_t>(width)));
    beams = grown;
  }
  std::set<Tokens> prefixes;
  for (auto [score, path] : beams) {
    for (; !path.empty(); path.pop_back()) prefixes.insert(path);
  }
  return prefixes;
}

TEST(LevelTree, BeamsAreThoseOfABeamSearch) {
  LevelTree level;
  int left_out = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Oracle oracle(seed, 8);
    LevelLimits limits;
    limits.max_depth = 1 + static_cast<int>(seed % 6);
    limits.top_k = 1 + static_cast<int>(seed % 5);
    limits.width = static_cast<int>(seed % 4);
    const int width = limits.width > 0 ? limits.width : limits.top_k;
    limits.max_nodes = width * limits.max_depth;
    limits.beams = true;
    const Grown grown = grow(level, limits, oracle);
    const std::vector<Tokens> paths = paths_of(grown.tree);
    const std::set<Tokens> expected = beams(limits, oracle);
    EXPECT_EQ(std::set<Tokens>(paths.begin(), paths.end()), expected) << "seed " << seed;
    EXPECT_EQ(paths.size(), expected.size());
    EXPECT_EQ(grown.passes, limits.max_depth);
    EXPECT_LE(grown.run, 1 + width * (limits.max_depth - 1));
    left_out += static_cast<int>(level.nodes().size() - paths.size());

    // Cut: the best nodes of the same beams.
    limits.max_nodes = std::max(1, static_cast<int>(paths.size()) / 2);
    const std::vector<Tokens> best = paths_of(grow(level, limits, oracle).tree);
    EXPECT_EQ(best, std::vector<Tokens>(paths.begin(), paths.begin() + limits.max_nodes));
  }
  EXPECT_GT(left_out, 1000);
}

TEST(LevelTree, BeamsThatEndEarlyAreKept) {
  LevelTree level;
  level.start({.max_nodes = 10, .max_depth = 3, .top_k = 2, .beams = true});
  level.expand(-1, Children{{1, 0.6}, {2, 0.4}});
  level.advance();
  level.expand(0, {});
  level.expand(1, {});
  level.advance();
  EXPECT_THAT(level.frontier(), IsEmpty());
  TokenTree tree;
  level.finish(tree);
  EXPECT_THAT(paths_of(tree), ElementsAre(Tokens{1}, Tokens{2}));
}

TEST(LevelTree, RunsNoNodeThatCannotMatter) {
  LevelTree level;
  Oracle oracle(1, 8);
  // A chain of n takes n passes; one node takes one.
  for (int nodes = 1; nodes < 6; ++nodes) {
    const Grown chain = grow(level, {.max_nodes = nodes, .max_depth = 100}, oracle);
    EXPECT_TRUE(chain.tree.is_chain());
    EXPECT_EQ(chain.tree.size(), nodes);
    EXPECT_EQ(chain.run, nodes);
  }
  const Grown wide = grow(level, {.max_nodes = 6, .max_depth = 1, .top_k = 4}, oracle);
  EXPECT_EQ(wide.run, 1);
  EXPECT_EQ(wide.tree.size(), 4);
  EXPECT_TRUE(grow(level, {.max_nodes = 0, .max_depth = 3, .top_k = 4}, oracle).tree.empty());
  EXPECT_TRUE(grow(level, {.max_nodes = 3, .max_depth = 0, .top_k = 4}, oracle).tree.empty());
  level.start({.max_nodes = 0, .max_depth = 3});
  EXPECT_THAT(level.frontier(), IsEmpty());
}

TEST(LevelTree, TopPLeavesOutWhatIsNotNeededToCoverIt) {
  LevelTree level;
  const Children children = {{5, 0.5}, {6, 0.3}, {7, 0.15}, {8, 0.05}};
  const auto tokens = [&](double top_p) {
    level.start({.max_nodes = 10, .max_depth = 1, .top_k = 4, .top_p = top_p});
    level.expand(-1, children);
    level.advance();
    TokenTree tree;
    level.finish(tree);
    Tokens found;
    for (const auto& node : tree.nodes) found.push_back(node.token);
    return found;
  };
  EXPECT_THAT(tokens(0.0), IsEmpty());
  EXPECT_THAT(tokens(0.5), ElementsAre(5));
  EXPECT_THAT(tokens(0.79), ElementsAre(5, 6));
  EXPECT_THAT(tokens(0.9), ElementsAre(5, 6, 7));
  EXPECT_THAT(tokens(1.0), ElementsAre(5, 6, 7, 8));
}

TEST(LevelTree, PathsBelowTheLeastProbabilityAreNotFollowed) {
  LevelTree level;
  level.start({.max_nodes = 10, .max_depth = 3, .top_k = 3, .min_probability = 0.2});
  level.expand(-1, Children{{1, 0.7}, {2, 0.2}, {3, 0.1}});
  level.advance();
  EXPECT_THAT(level.frontier(), ElementsAre(0, 1));
  level.expand(0, Children{{4, 0.5}, {5, 0.25}});
  level.expand(1, Children{{6, 0.9}});
  level.advance();
  EXPECT_THAT(level.frontier(), ElementsAre(2));
  TokenTree tree;
  level.finish(tree);
  EXPECT_THAT(paths_of(tree), ElementsAre(Tokens{1}, Tokens{1, 4}, Tokens{2}));
}

TEST(LevelTree, NodesOnAPathThatIsTooUnlikelyStayLeaves) {
  LevelTree level;
  level.start({.max_nodes = 10, .max_depth = 3, .top_k = 3, .least_path = 0.4});
  level.expand(-1, Children{{1, 0.7}, {2, 0.2}});
  level.advance();
  EXPECT_THAT(level.frontier(), ElementsAre(0));
  level.expand(0, Children{{4, 0.5}});
  level.advance();
  EXPECT_THAT(level.frontier(), IsEmpty());
  TokenTree tree;
  level.finish(tree);
  EXPECT_THAT(paths_of(tree), ElementsAre(Tokens{1}, Tokens{1, 4}, Tokens{2}));
}

TEST(LevelTree, ProbabilitiesNeverRiseAndWhatIsNoNumberIsNone) {
  LevelTree level;
  level.start({.max_nodes = 10, .max_depth = 2, .top_k = 3});
  level.expand(-1, Children{{1, 0.5}, {2, std::nan("")}, {3, -1.0}});
  level.advance();
  EXPECT_THAT(level.frontier(), ElementsAre(0));
  level.expand(0, Children{{4, 3.0}});
  TokenTree tree;
  level.finish(tree);
  ASSERT_EQ(tree.size(), 4);
  EXPECT_EQ(tree.nodes[0].probability, 0.5f);
  EXPECT_EQ(tree.nodes[1].token, 4);
  EXPECT_EQ(tree.nodes[1].probability, 0.5f);
  EXPECT_GT(tree.nodes[2].probability, 0.0f);
}

TEST(LevelTree, FindsChildrenByToken) {
  LevelTree level;
  level.start({.max_nodes = 4, .max_depth = 2, .top_k = 2});
  EXPECT_EQ(level.find_child(-1, 7), -1);
  level.expand(-1, Children{{7, 0.6}, {8, 0.4}});
  level.advance();
  level.expand(1, Children{{7, 1.0}});
  EXPECT_EQ(level.find_child(-1, 8), 1);
  EXPECT_EQ(level.find_child(-1, 9), -1);
  EXPECT_EQ(level.find_child(1, 7), 2);
  EXPECT_EQ(level.find_child(0, 7), -1);
}

TEST(LevelTree, TakesAShape) {
  LevelTree level;
  const StaticTree& shape = *find_static_tree("eagle");
  Oracle oracle(3, 8);
  const Grown whole = grow(level, {.max_nodes = 25, .max_depth = 9, .shape = &shape}, oracle);
  EXPECT_EQ(whole.tree.size(), 25);
  EXPECT_EQ(whole.passes, 5);
  // The ranks of each path are the shape's.
  std::set<std::string> ranks;
  for (const Tokens& path : paths_of(whole.tree)) {
    std::string rank;
    Tokens above;
    for (const int32_t token : path) {
      const Children& children = oracle.after(above);
      const auto found = std::ranges::find(children, token, &LevelTree::Child::token);
      rank += static_cast<char>('0' + (found - children.begin()));
      above.push_back(token);
    }
    ranks.insert(rank);
  }
  EXPECT_TRUE(ranks.contains("00001") && ranks.contains("021") && ranks.contains("30"));
  EXPECT_EQ(ranks.size(), 25u);
  // Cut, and with a node that has too few children.
  const Grown cut = grow(level, {.max_nodes = 9, .max_depth = 2, .shape = &shape}, oracle);
  EXPECT_LE(cut.tree.size(), 9);
  EXPECT_EQ(cut.passes, 2);
  level.start({.max_nodes = 25, .max_depth = 9, .shape = &shape});
  level.expand(-1, Children{{4, 0.9}});
  level.advance();
  EXPECT_THAT(level.frontier(), ElementsAre(0));
}

class RoomyLevelTree : public testing::TestWithParam<bool> {};

TEST_P(RoomyLevelTree, AllocatesNothingOnceThereIsRoom) {
  LevelTree level;
  const LevelLimits limits = {.max_nodes = 20, .max_depth = 5, .top_k = 4, .beams = GetParam()};
  level.reserve(limits);
  Oracle oracle(5, 8);
  grow(level, limits, oracle);  // fills the oracle
  TokenTree tree;
  tree.nodes.reserve(20);
  std::vector<Children> answers;
  level.start(limits);
  for (; !level.frontier().empty(); level.advance()) {
    for (const int32_t node : level.frontier()) {
      answers.push_back(oracle.after(path_of(level.nodes(), node)));
      level.expand(node, answers.back());
    }
  }
  LevelTree fresh;
  fresh.reserve(limits);
  const int64_t before = allocations();
  size_t next = 0;
  fresh.start(limits);
  for (; !fresh.frontier().empty(); fresh.advance()) {
    for (const int32_t node : fresh.frontier()) fresh.expand(node, answers[next++]);
  }
  fresh.finish(tree);
  EXPECT_EQ(allocations(), before);
  EXPECT_GE(tree.size(), GetParam() ? 8 : 20);
}

INSTANTIATE_TEST_SUITE_P(Trees, RoomyLevelTree, testing::Values(false, true));

}  // namespace aerie::level_tree_test
