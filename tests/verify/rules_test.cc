#include "verify/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sampling/inverse_cdf.h"
#include "tests/verify/synthetic.h"
#include "verify/residual.h"

namespace aerie::verify_rules_test {

constexpr VerifyRule kComparing[] = {VerifyRule::kRejection, VerifyRule::kBlock,
                                     VerifyRule::kTraversal};

TEST(VerifyRule, NamesGoBothWays) {
  for (const VerifyRule rule : kVerifyRules) {
    const auto parsed = verify_rule_from_name(verify_rule_name(rule));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, rule);
    EXPECT_EQ(make_verifier(rule)->rule(), rule);
  }
  const auto wrong = verify_rule_from_name("typical");
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(wrong.status().message(), testing::HasSubstr("exact, rejection, block or traversal"));
}

TEST(Verifier, OnlyBlockIsForChains) {
  TokenTree chain;
  chain.add(1, -1);
  chain.add(2, 0);
  TokenTree tree = chain;
  tree.add(3, 0);
  // Nodes that are only along for the ride make no branches.
  TokenTree window = tree;
  window.nodes[2].role = NodeRole::kWindow;
  TokenTree twice = chain;
  twice.proposals = {{0, nullptr, false}, {0, nullptr, false}, {1, nullptr, false}};
  for (const VerifyRule rule : kVerifyRules) {
    const auto verifier = make_verifier(rule);
    EXPECT_TRUE(verifier->accepts({}));
    EXPECT_TRUE(verifier->accepts(chain));
    EXPECT_TRUE(verifier->accepts(window));
    EXPECT_EQ(verifier->takes_trees(), rule != VerifyRule::kBlock);
    EXPECT_EQ(verifier->accepts(tree), rule != VerifyRule::kBlock);
    EXPECT_EQ(verifier->accepts(twice), rule != VerifyRule::kBlock);
  }
}

TEST(Verifier, TakesOnlyTokensThatCanHaveBeenProposed) {
  const Distribution q{{1, 2}, {0.25, 0.75}};
  const Distribution only{{1}, {1.0}};
  std::vector<TokenTree> trees(4);
  trees[0].add(3, -1, &q);
  for (TokenTree* tree : {&trees[1], &trees[2]}) {  // the same one again
    tree->add(1, -1, &q);
    tree->add(1, -1, &q);
    tree->nodes[1].without_replacement = true;
  }
  trees[2].nodes[1].token = 2;
  trees[2].add(1, -1, &q);  // and a third, when both are gone
  trees[2].nodes[2].without_replacement = true;
  trees[3].add(2, -1, &q);
  trees[3].proposals = {{0, &q, false}, {0, &only, false}};
  for (const TokenTree& tree : trees) {
    for (const VerifyRule rule : kVerifyRules) {
      EXPECT_EQ(make_verifier(rule)->accepts(tree), rule == VerifyRule::kExact);
    }
  }
  TokenTree good;
  good.add(1, -1, &q);
  good.add(2, -1, &q);
  good.nodes[1].without_replacement = true;
  good.add(1, -1, &only);
  good.nodes[2].without_replacement = true;  // of another object
  EXPECT_TRUE(make_verifier(VerifyRule::kRejection)->accepts(good));
  EXPECT_TRUE(make_verifier(VerifyRule::kTraversal)->accepts(good));
}

TEST(Verifier, TakesNoMoreProposalsThanThereAreNumbersFor) {
  TokenTree tree;
  tree.add(1, -1);
  tree.proposals.resize((1 << 16) - 1);
  for (const VerifyRule rule : {VerifyRule::kRejection, VerifyRule::kTraversal}) {
    EXPECT_TRUE(make_verifier(rule)->accepts(tree));
  }
  tree.proposals.emplace_back();
  for (const VerifyRule rule : kVerifyRules) {
    EXPECT_EQ(make_verifier(rule)->accepts(tree), rule == VerifyRule::kExact);
  }
}

TEST(Proposals, GoByParentInTheirOrder) {
  const Distribution q{{1, 2, 3}, {0.5, 0.3, 0.2}};
  const Distribution other{{2}, {1.0}};
  TokenTree tree;
  tree.add(1, -1);
  tree.add(2, -1);
  tree.add(3, 0);
  tree.proposals = {{2, &q, true}, {1, &q, true}, {0, &q, true}, {1, &other, false}, {0, nullptr}};
  ProposalLists lists;
  lists.read(tree);
  Tokens nodes, attempts;
  std::vector<double> probabilities;
  for (int i = lists.first(-1); i >= 0; i = lists.next(i)) {
    nodes.push_back(lists.node(i));
    attempts.push_back(lists.attempt(i));
    probabilities.push_back(lists.proposed(i).probability());
  }
  EXPECT_EQ(nodes, (Tokens{1, 0, 1, 0}));
  EXPECT_EQ(attempts, (Tokens{0, 0, 1, 1}));
  EXPECT_THAT(probabilities,
              testing::Pointwise(testing::DoubleNear(1e-15), {0.3, 0.5 / 0.7, 1., 1.}));
  EXPECT_EQ(lists.node(lists.first(0)), 2);
  EXPECT_EQ(lists.first(1), -1);
  EXPECT_EQ(lists.depth(), 2);
}

TEST(Residual, IsThePositivePartRenormalised) {
  const Distribution p{{0, 2, 3}, {0.5, 0.3, 0.2}};
  const Distribution q{{0, 1, 3, 7}, {0.2, 0.3, 0.4, 0.1}};
  const Proposed sampled{0, &q, {}, 1.0};
  Distribution out;
  residual_distribution(p, 1.0, sampled, out);
  EXPECT_EQ(out.ids, (Tokens{0, 2}));
  EXPECT_NEAR(out.probs[0], 0.5, 1e-15);
  EXPECT_NEAR(out.probs[1], 0.5, 1e-15);
  EXPECT_NEAR(residual_mass(p, 1.0, sampled), 0.6, 1e-15);
  EXPECT_NEAR(residual_mass(p, 0.5, sampled), 0.05 + 0.15, 1e-15);
  EXPECT_EQ(sampled.probability(), 0.2);
}

TEST(Residual, WithoutReplacementLeavesEarlierTokensAlone) {
  Distribution p{{0, 2, 3}, {0.5, 0.3, 0.2}};
  const Distribution q{{0, 2, 3}, {0.5, 0.25, 0.25}};
  const Tokens gone = {0, 7};
  const Proposed second{2, &q, gone, 2.0};
  EXPECT_NEAR(residual_mass(p, 1.0, second), 0.5, 1e-15);
  EXPECT_NEAR(residual_distribution(p, 1.0, second, p), 0.5, 1e-15);  // in place
  EXPECT_EQ(p.ids, Tokens{0});
  EXPECT_NEAR(p.probs[0], 1.0, 1e-15);
}

TEST(Residual, OfAPointMassLeavesTheTokenOut) {
  const Distribution p{{0, 2, 3}, {0.5, 0.3, 0.2}};
  const Proposed certain{2, nullptr, {}, 1.0};
  Distribution out;
  residual_distribution(p, 1.0, certain, out);
  EXPECT_EQ(out.ids, (Tokens{0, 3}));
  EXPECT_NEAR(out.probs[0], 5.0 / 7, 1e-15);
  EXPECT_EQ(certain.probability(), 1.0);
}

TEST(Residual, IsTheTargetWhereNothingIsLeft) {
  const Distribution p{{0, 2}, {0.5, 0.5}};
  Distribution out;
  residual_distribution(p, 1.0, {0, &p, {}, 1.0}, out);
  EXPECT_EQ(out.ids, p.ids);
  EXPECT_EQ(out.probs, p.probs);
}

// A chain drawn from the tiny drafter after `committed`, proposals kept in `proposals`.
TokenTree draft_chain(const Tokens& committed, int depth, NoiseKey key,
                      std::vector<Distribution>& proposals) {
  TokenTree tree;
  proposals.resize(static_cast<size_t>(depth));
  Tokens context = committed;
  for (int i = 0; i < depth; ++i) {
    Distribution& q = proposals[static_cast<size_t>(i)];
    tiny_proposal(context, 0.8, q);
    const double u = noise_uniform(key, NoiseStream::kDraft, committed.size() - 1,
                                   static_cast<uint32_t>(i) << 16);
    context.push_back(inverse_cdf(q, u));
    tree.add(context.back(), i - 1, i % 3 == 2 ? nullptr : &q);
  }
  return tree;
}

// At temperature 0 the target is a point mass: one run of ids, whatever the rule and the proposals.
TEST(Rules, AgreeAtTemperatureZero) {
  SamplingParams params;
  params.presence_penalty = 0.5;
  Tokens plain = {3};
  while (plain.size() < 200) plain.push_back(TinyTarget(params, plain).sample(-1, {}));
  for (const VerifyRule rule : kVerifyRules) {
    const auto verifier = make_verifier(rule);
    Verdict verdict;
    Tokens tokens = {3};
    int rounds = 0;
    while (tokens.size() < 200) {
      std::vector<Distribution> proposals;
      const TokenTree tree = draft_chain(tokens, 4, {7, 0}, proposals);
      TinyTarget target(params, tokens);
      verifier->verify(tree, target, {7, 0}, tokens.size() - 1, verdict);
      Tokens emitted;
      for (const int32_t node : verdict.accepted) {
        emitted.push_back(tree.nodes[static_cast<size_t>(node)].token);
      }
      emitted.push_back(verdict.next_token);
      tokens.insert(tokens.end(), emitted.begin(), emitted.end());
      ++rounds;
    }
    tokens.resize(200);
    EXPECT_EQ(tokens, plain) << verify_rule_name(rule);
    EXPECT_LT(rounds, 160) << "drafts were accepted";
  }
}

// The same question has the same answer, from any object that judged anything before.
TEST(Rules, AreFunctionsOfTheirArguments) {
  SamplingParams params;
  params.temperature = 1.0;
  for (const VerifyRule rule : kVerifyRules) {
    const auto used = make_verifier(rule);
    for (size_t length = 1; length < 40; ++length) {
      const Tokens committed(length, static_cast<int32_t>(length % kTinyVocab));
      std::vector<Distribution> proposals;
      const TokenTree tree =
          draft_chain(committed, 1 + static_cast<int>(length % 4), {1, 2}, proposals);
      TinyTarget target(params, committed);
      Verdict a;
      Verdict b;
      used->verify(tree, target, {1, 2}, length - 1, a);
      make_verifier(rule)->verify(tree, target, {1, 2}, length - 1, b);
      EXPECT_EQ(a.accepted, b.accepted);
      EXPECT_EQ(a.next_token, b.next_token);
      EXPECT_EQ(a.bonus, b.bonus);
    }
  }
}

// One draft: accepted with probability sum min(p, q), within five standard deviations.
TEST(Rules, AcceptAsOftenAsTheOverlap) {
  std::mt19937_64 random(15);
  for (int i = 0; i < 10; ++i) {
    TableTarget target(random(), 5, 0.2);
    const Distribution q = random_distribution(random, 5, 0.2);
    double overlap = 0;
    for (size_t j = 0; j < q.size(); ++j) {
      overlap += std::min(q.probs[j], target.after({}).probability(q.ids[j]));
    }
    for (const VerifyRule rule : kComparing) {
      const auto verifier = make_verifier(rule);
      const int trials = 20000;
      int accepted = 0;
      Verdict verdict;
      for (int t = 0; t < trials; ++t) {
        const NoiseKey key{static_cast<uint64_t>(t), 0};
        TokenTree tree;
        tree.add(inverse_cdf(q, noise_uniform(key, NoiseStream::kDraft, 0, 0)), -1, &q);
        verifier->verify(tree, target, key, 0, verdict);
        accepted += static_cast<int>(verdict.accepted.size());
      }
      EXPECT_NEAR(accepted, trials * overlap, 5 * std::sqrt(trials * overlap * (1 - overlap)) + 1);
    }
  }
}

// A drafter that insists on what the target (or a grammar) forbids.
TEST(Rules, NeverEmitWhatTheTargetCannot) {
  std::mt19937_64 random(16);
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    TableTarget target(random(), 6, 0.6);
    std::vector<Distribution> proposals(3);
    TokenTree tree;
    Tokens path;
    for (int n = 0; n < 3; ++n) {
      Distribution& q = proposals[static_cast<size_t>(n)];
      q = random_distribution(random, 6, 0.5);
      // Weight on the forbidden: they get nearly everything.
      double sum = 0;
      for (size_t j = 0; j < q.size(); ++j) {
        if (target.probability(path) > 0 && target.after(path).probability(q.ids[j]) == 0) {
          q.probs[j] = 100.0;
        }
        sum += q.probs[j];
      }
      for (double& p : q.probs) p /= sum;
      path.push_back(q.ids[random() % q.size()]);
      tree.add(path.back(), n - 1, random() % 4 == 0 ? nullptr : &q);
    }
    for (const VerifyRule rule : kComparing) {
      Verdict verdict;
      make_verifier(rule)->verify(tree, target, {random(), 0}, 5, verdict);
      Tokens run(path.begin(), path.begin() + static_cast<long>(verdict.accepted.size()));
      run.push_back(verdict.next_token);
      EXPECT_GT(target.probability(run), 0.0) << verify_rule_name(rule);
    }
  }
}

}  // namespace aerie::verify_rules_test
