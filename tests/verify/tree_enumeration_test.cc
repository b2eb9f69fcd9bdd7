// Trees: the law of what is emitted, and how much is accepted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "tests/verify/enumeration.h"
#include "verify/rules.h"

namespace aerie::tree_enumeration_test {

struct Case {
  const char* name;
  Shape shape;
  int vocab;
  int instances;
};

const Case kCases[] = {
    {"TwoSiblings", {-1, -1}, 4, 40},          {"ThreeSiblings", {-1, -1, -1}, 4, 20},
    {"TwoByTwo", {-1, -1, 0, 0, 1, 1}, 3, 6},  {"SecondGoesOn", {-1, -1, 1, 1}, 4, 10},
    {"TwoChains", {-1, -1, 0, 1, 2, 3}, 3, 6}, {"Chain", {-1, 0, 1}, 3, 20},
    {"ForkBelow", {-1, 0, 1, 1}, 3, 10},
};

size_t depth_of(const Shape& shape) {
  std::vector<size_t> depths;
  for (const int parent : shape) {
    depths.push_back(parent < 0 ? 1 : depths[static_cast<size_t>(parent)] + 1);
  }
  return *std::max_element(depths.begin(), depths.end());
}

class TreeEnumeration : public testing::TestWithParam<Siblings> {};

// Of one token more than the deepest draft, so that what follows a round is looked at too.
TEST_P(TreeEnumeration, IsTheTargetsDistribution) {
  std::mt19937_64 random(77);
  double worst = 0;
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    for (int i = 0; i < c.instances; ++i) {
      TableTarget target(random(), c.vocab, i % 3 == 0 ? 0.0 : 0.35);
      TreeSampler sampler(random(), c.vocab, i % 2 == 0 ? 0.0 : 0.35, GetParam(), c.shape,
                          i % 4 < 2);
      const size_t length = depth_of(c.shape) + 1;
      const auto draw = [&](Dice& dice) { return sampler(dice); };
      worst = std::max(worst, bias(target, enumerate<RejectionRule>(target, draw, length)));
      worst = std::max(worst, bias(target, enumerate<TraversalRule>(target, draw, length)));
      ASSERT_LT(worst, 1e-13) << i;
    }
  }
}

// Shapes that go by what was drawn and stays: the second root child is there after a token 1 only,
// and how far either goes on depends on what the other is.
TEST_P(TreeEnumeration, ShapesMayDependOnWhatStays) {
  std::mt19937_64 random(78);
  for (int i = 0; i < 12; ++i) {
    TableTarget target(random(), 3, 0.2);
    TreeSampler sampler(random(), 3, 0.2, GetParam(), {-1, 0, -1, 2, 0, 2}, i % 2 == 0);
    sampler.wants = [](const TokenTree& tree, size_t index) {
      const int32_t first = tree.empty() ? 0 : tree.nodes[0].token;
      const int32_t latest = tree.empty() ? 0 : tree.nodes.back().token;
      if (index == 2) return first == 1 || latest == 2;
      if (index >= 3) return latest != static_cast<int32_t>(index) - 3;
      return true;
    };
    const auto draw = [&](Dice& dice) { return sampler(dice); };
    EXPECT_LT(bias(target, enumerate<RejectionRule>(target, draw, 3)), 1e-13);
    EXPECT_LT(bias(target, enumerate<TraversalRule>(target, draw, 3)), 1e-13);
  }
}

// A round ends where the target is not ready, and what follows is drawn in another one.
TEST_P(TreeEnumeration, MayEndWhereTheTargetIsNotReady) {
  std::mt19937_64 random(81);
  bool ended = false;
  for (const Case& c : kCases) {
    for (int i = 0; i < 6; ++i) {
      SCOPED_TRACE(c.name);
      TableTarget target(random(), c.vocab, i % 3 == 0 ? 0.0 : 0.35);
      const uint64_t which = random();
      target.is_unready = [&](const Tokens& path) {
        uint64_t hash = which;
        for (const int32_t token : path)
          hash = (hash ^ static_cast<uint64_t>(token + 1)) * 0x9E3779B97F4A7C15;
        const bool unready = (hash >> 40) % 3 == 0;
        ended = ended || unready;
        return unready;
      };
      target.becomes_ready = i % 2 == 0;
      TreeSampler sampler(random(), c.vocab, 0.2, GetParam(), c.shape, i % 4 < 2);
      const auto draw = [&](Dice& dice) { return sampler(dice); };
      const size_t length = depth_of(c.shape) + 1;
      ASSERT_LT(bias(target, enumerate<RejectionRule>(target, draw, length)), 1e-13) << i;
      ASSERT_LT(bias(target, enumerate<TraversalRule>(target, draw, length)), 1e-13) << i;
      const bool is_chain = c.shape == Shape{-1, 0, 1} && i % 4 >= 2;
      if (!is_chain) continue;
      ASSERT_LT(bias(target, enumerate<BlockRule>(target, draw, length)), 1e-13) << i;
    }
  }
  EXPECT_TRUE(ended);
}

// Nodes that are not kDraft change nothing, wherever they are and whatever they carry.
TEST_P(TreeEnumeration, OnlyDraftsCount) {
  std::mt19937_64 random(79);
  for (int i = 0; i < 10; ++i) {
    TableTarget target(random(), 3, 0.2);
    TreeSampler sampler(random(), 3, 0.2, GetParam(), {-1, -1, 0, 1}, false);
    const auto drafts = [&](Dice& dice) { return sampler(dice); };
    const auto with_others = [&](Dice& dice) {
      TokenTree tree;
      const auto other = [&](int32_t token, int32_t parent, NodeRole role) {
        const int32_t node = tree.add(token, parent);
        tree.nodes.back().role = role;
        return node;
      };
      other(1, other(0, -1, NodeRole::kWindow), NodeRole::kProbe);
      for (TokenTree::Node node : sampler(dice).nodes) {
        if (node.parent >= 0) node.parent += 2;
        tree.nodes.push_back(node);
      }
      for (const int32_t parent : {2, tree.size() - 1}) {
        for (const int32_t token : {0, 1, 2}) other(token, parent, NodeRole::kProbe);
      }
      return tree;
    };
    const Outcome rejection = enumerate<RejectionRule>(target, drafts, 3);
    EXPECT_EQ(enumerate<RejectionRule>(target, with_others, 3).emitted, rejection.emitted);
    const Outcome traversal = enumerate<TraversalRule>(target, drafts, 3);
    EXPECT_EQ(enumerate<TraversalRule>(target, with_others, 3).emitted, traversal.emitted);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TreeEnumeration, testing::ValuesIn(kSiblings),
                         [](const auto& test) { return std::string(siblings_name(test.param)); });

struct Comparison {
  double rejection = 0, traversal = 0;  // mean numbers of accepted tokens
  double gain = 0, error = 0;           // of their difference: mean and standard error
  double worst = 0;                     // the smallest difference
};

// Over random targets and drafts, each with its exact expectations.
Comparison compare(const Shape& shape, Siblings siblings, int vocab, int instances) {
  std::mt19937_64 random(80);
  Comparison mean;
  double squares = 0;
  const double n = instances;
  for (int i = 0; i < instances; ++i) {
    TableTarget target(random(), vocab, i % 2 == 0 ? 0.0 : 0.2);
    TreeSampler sampler(random(), vocab, 0.0, siblings, shape, false);
    const auto draw = [&](Dice& dice) { return sampler(dice); };
    const size_t length = 1;  // how it goes on does not matter
    const double rejection = enumerate<RejectionRule>(target, draw, length).accepted;
    const double traversal = enumerate<TraversalRule>(target, draw, length).accepted;
    const double gain = traversal - rejection;
    mean.rejection += rejection / n;
    mean.traversal += traversal / n;
    mean.gain += gain / n;
    squares += gain * gain;
    mean.worst = std::min(mean.worst, gain);
  }
  mean.error = std::sqrt((squares / n - mean.gain * mean.gain) / (n - 1));
  return mean;
}

// The figures in docs/verification.md.
TEST(TreeAcceptance, TraversalAcceptsMoreOnAverage) {
  const std::pair<const char*, Shape> shapes[] = {
      {"two siblings", {-1, -1}},
      {"chain of two", {-1, 0}},
      {"two chains of two", {-1, -1, 0, 1}},
      {"two, two below each", {-1, -1, 0, 0, 1, 1}},
  };
  std::printf("%-20s %-20s %9s %9s %18s %9s\n", "tree", "siblings", "rejection", "traversal",
              "gain (95 %)", "smallest");
  for (const auto& [name, shape] : shapes) {
    const bool deep = depth_of(shape) > 1;
    for (const Siblings siblings : kSiblings) {
      const bool alone = shape.size() == 2 && deep;
      if (alone && siblings != Siblings::kPointMass && siblings != Siblings::kIndependent) continue;
      const Comparison c = compare(shape, siblings, 3, shape.size() > 4 ? 60 : 300);
      std::printf("%-20s %-20s %9.4f %9.4f %8.4f +- %.4f %9.4f\n", name, siblings_name(siblings),
                  c.rejection, c.traversal, c.gain, 1.96 * c.error, c.worst);
      // Point masses leave nothing to gain, nor does a single draft.
      const bool drawn_below =
          siblings == Siblings::kMixed ? shape.size() > 4 : siblings != Siblings::kPointMass;
      EXPECT_GE(c.worst, -1e-13) << name << ", " << siblings_name(siblings);
      if (deep && drawn_below) {
        EXPECT_GT(c.gain - 1.96 * c.error, 0.0) << name << ", " << siblings_name(siblings);
      } else {
        EXPECT_NEAR(c.gain, 0.0, 1e-13) << siblings_name(siblings);
      }
    }
  }
}

}  // namespace aerie::tree_enumeration_test
