// Chains: the law of what is emitted, and how much is accepted.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/verify/enumeration.h"
#include "verify/rules.h"

namespace aerie::enumeration_test {

// How a drafter proposes after each path: with a distribution, or (no entry) one token for sure.
struct TableDrafter {
  std::map<Tokens, Distribution> sampled;
  std::map<Tokens, int32_t> certain;

  static TableDrafter random(std::mt19937_64& random, int vocab, int depth, double zeros,
                             double certain_chance) {
    TableDrafter drafter;
    std::uniform_real_distribution<double> uniform(0, 1);
    std::vector<Tokens> level = {{}};
    for (int d = 0; d < depth; ++d) {
      std::vector<Tokens> next;
      for (const Tokens& path : level) {
        if (uniform(random) < certain_chance) {
          drafter.certain[path] = static_cast<int32_t>(random() % static_cast<size_t>(vocab));
        } else {
          drafter.sampled[path] = random_distribution(random, vocab, zeros);
        }
        for (int32_t token = 0; token < vocab; ++token) {
          next.push_back(path);
          next.back().push_back(token);
        }
      }
      level = std::move(next);
    }
    return drafter;
  }

  // Drafts a chain with the dice's help.
  TokenTree draft(Dice& dice, int depth) const {
    TokenTree tree;
    Tokens path;
    for (int i = 0; i < depth; ++i) {
      const auto found = sampled.find(path);
      if (found == sampled.end()) {
        path.push_back(certain.at(path));
        tree.add(path.back(), i - 1);
      } else {
        path.push_back(dice.draw(i - 1, found->second));
        tree.add(path.back(), i - 1, &found->second);
      }
    }
    return tree;
  }
};

template <typename Rule>
Outcome enumerate(TableTarget& target, const TableDrafter& drafter, int depth) {
  return enumerate<Rule>(
      target, [&](Dice& dice) { return drafter.draft(dice, depth); },
      static_cast<size_t>(depth) + 1);
}

struct ChainSize {
  int vocab;
  int depth;
  int instances;
};

class Enumeration : public testing::TestWithParam<ChainSize> {};

TEST_P(Enumeration, IsTheTargetsDistributionAndBlockAcceptsNoLess) {
  const auto [vocab, depth, instances] = GetParam();
  std::mt19937_64 random(static_cast<uint64_t>(1000 * vocab + depth));
  double gained = 0;
  for (int i = 0; i < instances && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    const double zeros = i % 3 == 0 ? 0.0 : 0.35;
    const double certain = i % 4 == 0 ? 0.0 : i % 4 == 1 ? 1.0 : 0.3;
    TableTarget target(random(), vocab, zeros);
    const TableDrafter drafter =
        TableDrafter::random(random, vocab, depth, i % 2 == 0 ? 0.0 : 0.35, certain);
    const Outcome rejection = enumerate<RejectionRule>(target, drafter, depth);
    const Outcome block = enumerate<BlockRule>(target, drafter, depth);
    EXPECT_LT(bias(target, rejection), 1e-13);
    EXPECT_LT(bias(target, block), 1e-13);
    const Outcome traversal = enumerate<TraversalRule>(target, drafter, depth);
    EXPECT_EQ(traversal.emitted, block.emitted);
    EXPECT_EQ(traversal.accepted, block.accepted);
    EXPECT_GE(block.accepted, rejection.accepted - 1e-12);
    gained += block.accepted - rejection.accepted;
    if (depth == 1) {
      EXPECT_NEAR(block.accepted, rejection.accepted, 1e-12);
    }
  }
  if (depth > 1) {
    EXPECT_GT(gained, 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Enumeration,
                         testing::Values(ChainSize{2, 1, 300}, ChainSize{3, 1, 300},
                                         ChainSize{4, 1, 300}, ChainSize{2, 2, 300},
                                         ChainSize{3, 2, 300}, ChainSize{4, 2, 200},
                                         ChainSize{2, 3, 300}, ChainSize{3, 3, 200},
                                         ChainSize{4, 3, 100}, ChainSize{2, 4, 200}),
                         [](const auto& test) {
                           return "Vocab" + std::to_string(test.param.vocab) + "Depth" +
                                  std::to_string(test.param.depth);
                         });

// Target and proposal without context, gamma = 2, as in Sun et al. 2403.10444, section 2: P = (1/3,
// 2/3), Q = (2/3, 1/3). Token by token 10/9 drafts are accepted, as a block 11/9.
TEST(EnumerationReference, MatchesThePapersExample) {
  TableTarget target(1, 2, 0.0);
  TableDrafter drafter;
  for (const Tokens& path : {Tokens{}, Tokens{0}, Tokens{1}}) {
    drafter.sampled[path] = {{0, 1}, {2.0 / 3, 1.0 / 3}};
    target.set(path, {{0, 1}, {1.0 / 3, 2.0 / 3}});
  }
  EXPECT_NEAR(enumerate<RejectionRule>(target, drafter, 2).accepted, 10.0 / 9, 1e-14);
  EXPECT_NEAR(enumerate<BlockRule>(target, drafter, 2).accepted, 11.0 / 9, 1e-14);
}

// (1 - alpha^(gamma + 1)) / (1 - alpha) tokens per round, Leviathan et al. 2211.17192, equation 1.
TEST(EnumerationReference, MatchesTheGeometricSum) {
  std::mt19937_64 random(4);
  const int depth = 3;
  const Distribution p = random_distribution(random, 3, 0.0);
  const Distribution q = random_distribution(random, 3, 0.0);
  double alpha = 0;
  for (size_t i = 0; i < 3; ++i) alpha += std::min(p.probs[i], q.probs[i]);
  TableTarget target(1, 3, 0.0);
  TableDrafter drafter = TableDrafter::random(random, 3, depth, 0.0, 0.0);
  for (auto& [path, proposal] : drafter.sampled) {
    proposal = q;
    target.set(path, p);
  }
  EXPECT_NEAR(enumerate<RejectionRule>(target, drafter, depth).accepted + 1,
              (1 - std::pow(alpha, depth + 1)) / (1 - alpha), 1e-13);
}

// Proposal and target equal: everything stands.
TEST(EnumerationReference, AcceptsAllOfThePerfectDrafter) {
  std::mt19937_64 random(5);
  TableTarget target(9, 3, 0.2);
  TableDrafter drafter = TableDrafter::random(random, 3, 3, 0.0, 0.0);
  for (auto& [path, proposal] : drafter.sampled) proposal = target.after(path);
  EXPECT_NEAR(enumerate<RejectionRule>(target, drafter, 3).accepted, 3.0, 1e-12);
  const Outcome block = enumerate<BlockRule>(target, drafter, 3);
  EXPECT_NEAR(block.accepted, 3.0, 1e-12);
  EXPECT_LT(bias(target, block), 1e-13);
}

}  // namespace aerie::enumeration_test
