// Procedures that look right and are not: the check that the rules pass refuses them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/verify/enumeration.h"
#include "verify/residual.h"
#include "verify/rules.h"

namespace aerie::wrong_test {

constexpr int kVocab = 3;
constexpr int kInstances = 300;

// How a draft is made of the distributions in `q`.
using Draft = std::function<TokenTree(Dice& dice, TreeSampler& q)>;

// The largest bias over random targets and distributions.
template <typename Rule>
double worst_bias(const Draft& draft, int instances = kInstances) {
  std::mt19937_64 random(6);
  double worst = 0;
  for (int i = 0; i < instances; ++i) {
    TableTarget target(random(), kVocab, 0.2);
    TreeSampler q(random(), kVocab, 0.0, Siblings::kSeveral, {}, false);
    const auto draw = [&](Dice& dice) { return draft(dice, q); };
    worst = std::max(worst, bias(target, enumerate<Rule>(target, draw, 2)));
  }
  return worst;
}

// By so much at least, in the worst case; what rounding does is 1e-13.
void expect_wrong(const char* what, double least, const Draft& draft) {
  const double rejection = worst_bias<RejectionRule>(draft);
  const double traversal = worst_bias<TraversalRule>(draft);
  std::printf("%-60s %.2f %.2f\n", what, rejection, traversal);
  EXPECT_GT(rejection, least) << what;
  EXPECT_GT(traversal, least) << what;
}
void expect_right(const Draft& draft) {
  EXPECT_LT(worst_bias<RejectionRule>(draft), 1e-13);
  EXPECT_LT(worst_bias<TraversalRule>(draft), 1e-13);
}

int32_t argmax(const Distribution& q) {
  const auto best = std::max_element(q.probs.begin(), q.probs.end()) - q.probs.begin();
  return q.ids[static_cast<size_t>(best)];
}

TEST(Wrong, TheLikeliestTokenJudgedAsIfDrawn) {
  expect_wrong("argmax, judged by its softmax", 0.5, [](Dice&, TreeSampler& q) {
    TokenTree tree;
    tree.add(argmax(q.after({}, 0)), -1, &q.after({}, 0));
    return tree;
  });
  expect_right([](Dice&, TreeSampler& q) {
    TokenTree tree;
    tree.add(argmax(q.after({}, 0)), -1);
    return tree;
  });
}

// Two tokens of one distribution, the second without the first.
Draft without_replacement(bool says_so) {
  return [=](Dice& dice, TreeSampler& table) {
    const Distribution& q = table.after({}, 0);
    TokenTree tree;
    tree.add(dice.draw(-1, q), -1, &q);
    Distribution left;
    residual_distribution(q, 1.0, {tree.nodes[0].token, nullptr, {}, 1.0}, left);
    tree.add(dice.draw(-1, left), -1, &q);
    tree.nodes[1].without_replacement = says_so;
    return tree;
  };
}

TEST(Wrong, WithoutReplacementJudgedByTheWholeDistribution) {
  expect_wrong("without replacement, judged by the whole distribution", 0.65,
               without_replacement(false));
  expect_right(without_replacement(true));
}

TEST(Wrong, TheLikeliestOfSeveralJudgedByTheirDistribution) {
  expect_wrong("the likeliest of three draws, judged by their distribution", 0.3,
               [](Dice& dice, TreeSampler& table) {
                 const Distribution& q = table.after({}, 0);
                 int32_t kept = dice.draw(-1, q);
                 for (int i = 0; i < 2; ++i) {
                   const int32_t other = dice.draw(-1, q);
                   if (q.probability(other) > q.probability(kept)) kept = other;
                 }
                 TokenTree tree;
                 tree.add(kept, -1, &q);
                 return tree;
               });
}

// The drawn trees of two drafters, merged.
Draft two_drafters(bool by_value) {
  return [=](Dice& dice, TreeSampler& table) {
    TokenTree tree;
    for (int i = 0; i < 2; ++i) {
      const Distribution& q = table.after({}, i);
      tree.add(dice.draw(-1, q), -1, &q);
    }
    const auto probability = [&](size_t i) {
      return tree.nodes[i].proposal->probability(tree.nodes[i].token);
    };
    if (by_value && probability(1) > probability(0)) std::swap(tree.nodes[0], tree.nodes[1]);
    return tree;
  };
}

TEST(Wrong, MergedSiblingsInTheOrderOfTheirValue) {
  expect_wrong("merged siblings in the order of their probability", 0.15, two_drafters(true));
  expect_right(two_drafters(false));
}

TEST(Wrong, CutToTheLikeliestAfterDrawing) {
  expect_wrong("three drawn, the two likeliest kept in their order", 0.15,
               [](Dice& dice, TreeSampler& table) {
                 const Distribution& q = table.after({}, 0);
                 TokenTree tree;
                 for (int i = 0; i < 3; ++i) tree.add(dice.draw(-1, q), -1, &q);
                 const auto less = [&](const TokenTree::Node& a, const TokenTree::Node& b) {
                   return q.probability(a.token) < q.probability(b.token);
                 };
                 tree.nodes.erase(std::min_element(tree.nodes.begin(), tree.nodes.end(), less));
                 return tree;
               });
}

TEST(Wrong, TwoDraftersWithOneNoise) {
  expect_wrong("two drafters that draw with the same number", 0.15,
               [](Dice& dice, TreeSampler& table) {
                 const Distribution& q = table.after({}, 0);
                 TokenTree tree;
                 tree.add(dice.draw(-1, q), -1, &q);
                 tree.add(tree.nodes[0].token, -1, &q);
                 return tree;
               });
}

// Chains of two, every distribution of the draft the same, so that noise kept by position gives the
// same token again. If the first is refused, the next round drafts the second once more.
template <typename Rule>
double bias_of_noise_by_position(bool reuses) {
  std::mt19937_64 random(7);
  double worst = 0;
  for (int i = 0; i < kInstances; ++i) {
    TableTarget target(random(), kVocab, 0.0);
    const Distribution q = random_distribution(random, kVocab, 0.0);
    Outcome outcome;
    Rule rule;
    EnumeratingDice first, second;
    Verdict verdict;
    std::map<Tokens, double> runs;
    // Rounds that refused everything: the token that came instead, and the drafts.
    std::map<std::pair<int32_t, int32_t>, double> refused;
    first.for_each([&] {
      TokenTree tree;
      for (int t = 0; t < 2; ++t) tree.add(first.draw(t - 1, q), t - 1, &q);
      rule.judge(tree, target, first, verdict);
      if (verdict.accepted.empty()) {
        refused[{verdict.next_token, tree.nodes[1].token}] += first.probability();
        return;
      }
      Tokens run = path_of(tree, verdict.accepted.back());
      run.push_back(verdict.next_token);
      runs[run] += first.probability();
    });
    for (const auto& [what, probability] : refused) {
      // The target as it is after the first round's token.
      TableTarget later(1, kVocab, 0.0);
      later.set({}, target.after({what.first}));
      second.for_each([&] {
        TokenTree tree;
        tree.add(reuses ? what.second : second.draw(-1, q), -1, &q);
        rule.judge(tree, later, second, verdict);
        const int32_t token = verdict.accepted.empty() ? verdict.next_token : tree.nodes[0].token;
        runs[{what.first, token}] += probability * second.probability();
      });
    }
    for (const auto& [run, probability] : runs) {
      extend(target, run, 2, probability, outcome.emitted);
    }
    worst = std::max(worst, bias(target, outcome));
  }
  return worst;
}

TEST(Wrong, NoiseByPositionUsedAgainAfterARefusal) {
  const double block = bias_of_noise_by_position<BlockRule>(true);
  const double traversal = bias_of_noise_by_position<TraversalRule>(true);
  std::printf("%-60s %.2f (block) %.2f\n", "noise by position, used again", block, traversal);
  EXPECT_GT(block, 0.05);
  EXPECT_GT(traversal, 0.05);
  // Token by token the second draft has no part in the refusal of the first.
  EXPECT_LT(bias_of_noise_by_position<RejectionRule>(true), 1e-13);
  EXPECT_LT(bias_of_noise_by_position<BlockRule>(false), 1e-13);
  EXPECT_LT(bias_of_noise_by_position<TraversalRule>(false), 1e-13);
}

}  // namespace aerie::wrong_test
