// Drafts from which something is left out before they are judged: for a constraint, for want of
// room. What is emitted stays the target's.
#include "verify/tree_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/verify/enumeration.h"
#include "verify/rules.h"

namespace aerie::tree_cuts_test {

// Which tokens may follow a path: any of them, made up at the first look, and one at least.
class TableMask {
 public:
  TableMask(uint64_t seed, int vocab, double forbidden)
      : random_(seed), vocab_(vocab), forbidden_(forbidden) {}

  bool allows(const Tokens& path, int32_t token) {
    const auto [found, added] = table_.try_emplace(path);
    if (added) found->second = random_distribution(random_, vocab_, forbidden_);
    return found->second.probability(token) > 0;
  }
  // From now on the target emits what is allowed alone, with what follows `path`, `depth` deep.
  void apply(TableTarget& target, size_t depth, const Tokens& path = {}) {
    Distribution p;
    double sum = 0;
    const Distribution all = target.after(path);
    for (int32_t token = 0; token < vocab_; ++token) {
      if (!allows(path, token)) continue;
      // Where nothing that is allowed is likely, something comes all the same.
      p.ids.push_back(token);
      p.probs.push_back(all.probability(token) + 1e-3);
      sum += p.probs.back();
    }
    for (double& probability : p.probs) probability /= sum;
    target.set(path, p);
    if (path.size() + 1 >= depth) return;
    for (const int32_t token : p.ids) {
      Tokens longer = path;
      longer.push_back(token);
      apply(target, depth, longer);
    }
  }
  int vocab() const { return vocab_; }

 private:
  std::mt19937_64 random_;
  int vocab_;
  double forbidden_;
  std::map<Tokens, Distribution> table_;
};

class TableConstraint final : public TokenConstraint {
 public:
  explicit TableConstraint(TableMask& mask, Tokens path = {})
      : mask_(mask), path_(std::move(path)) {}
  std::unique_ptr<TokenConstraint> fork() const override {
    return std::make_unique<TableConstraint>(mask_, path_);
  }
  void advance(int32_t token) override {
    EXPECT_TRUE(allows(token));
    path_.push_back(token);
  }
  void mask(std::span<bool> allowed) const override {
    for (size_t id = 0; id < allowed.size(); ++id) allowed[id] = allows(static_cast<int32_t>(id));
  }
  bool allows(int32_t token) const override { return mask_.allows(path_, token); }
  std::string forced() const override { return {}; }

 private:
  TableMask& mask_;
  Tokens path_;
};

// What is done to a draft before it is judged.
using Cut = std::function<void(const TokenConstraint& constraint, TokenTree& tree)>;

struct CutCase {
  const char* name;
  Shape shape;
  int vocab;
  int instances;
  bool chain = false;
};

const CutCase kCutCases[] = {
    {"One", {-1}, 3, 60, true},
    {"Chain", {-1, 0, 1}, 3, 20, true},
    {"TwoSiblings", {-1, -1}, 4, 40},
    {"ThreeSiblings", {-1, -1, -1}, 3, 20},
    {"TwoByTwo", {-1, -1, 0, 0, 1, 1}, 3, 6},
    {"TwoChains", {-1, -1, 0, 1, 2, 3}, 3, 6},
    {"ForkBelow", {-1, 0, 1, 1}, 3, 10},
};

size_t cut_case_depth(const Shape& shape) {
  std::vector<size_t> depths;
  for (const int parent : shape) {
    depths.push_back(parent < 0 ? 1 : depths[static_cast<size_t>(parent)] + 1);
  }
  return *std::max_element(depths.begin(), depths.end());
}

bool holds_forbidden(const TokenConstraint& constraint, const TokenTree& tree) {
  TokenTree pruned = tree;
  for (TokenTree::Node& node : pruned.nodes) node.proposal = nullptr;
  pruned.proposals.clear();
  prune_forbidden(constraint, pruned);
  return pruned.size() < tree.size();
}

class TreeCuts : public testing::TestWithParam<Siblings> {
 protected:
  // Judges what `cut` leaves of drafts of all shapes by all rules that take it.
  static void expect_the_targets(const Cut& cut, bool leaves_chains, double forbidden) {
    std::mt19937_64 random(81);
    for (const CutCase& c : kCutCases) {
      for (int i = 0; i < c.instances; ++i) {
        SCOPED_TRACE(std::string(c.name) + " " + std::to_string(i));
        const size_t length = cut_case_depth(c.shape) + 1;
        TableTarget target(random(), c.vocab, i % 3 == 0 ? 0.0 : 0.35);
        TableMask mask(random(), c.vocab, forbidden);
        mask.apply(target, length);
        const TableConstraint constraint(mask);
        TreeSampler sampler(random(), c.vocab, i % 2 == 0 ? 0.0 : 0.35, GetParam(), c.shape,
                            i % 4 < 2);
        const auto draw = [&](Dice& dice) {
          TokenTree tree = sampler(dice);
          cut(constraint, tree);
          return tree;
        };
        ASSERT_LT(bias(target, enumerate<RejectionRule>(target, draw, length)), 1e-13);
        ASSERT_LT(bias(target, enumerate<TraversalRule>(target, draw, length)), 1e-13);
        if (!leaves_chains && !c.chain) continue;
        ASSERT_LT(bias(target, enumerate<BlockRule>(target, draw, length)), 1e-13);
      }
    }
  }
};

TEST_P(TreeCuts, WhatIsForbiddenIsRefusedInItsPlace) {
  int64_t drafts = 0, forbidden = 0;
  expect_the_targets(
      [&](const TokenConstraint& constraint, TokenTree& tree) {
        ++drafts;
        forbidden += holds_forbidden(constraint, tree) ? 1 : 0;
        prune_forbidden(constraint, tree);
      },
      false, 0.4);
  EXPECT_GT(forbidden, drafts / 5);
}

// What is below a forbidden token is never looked at: without it as much is accepted.
TEST_P(TreeCuts, PruningCostsNothing) {
  std::mt19937_64 random(82);
  for (const CutCase& c : kCutCases) {
    for (int i = 0; i < c.instances / 2; ++i) {
      const size_t length = cut_case_depth(c.shape) + 1;
      TableTarget target(random(), c.vocab, 0.2);
      TableMask mask(random(), c.vocab, 0.4);
      mask.apply(target, length);
      const TableConstraint constraint(mask);
      TreeSampler sampler(random(), c.vocab, 0.2, GetParam(), c.shape, i % 2 == 0);
      const auto whole = [&](Dice& dice) { return sampler(dice); };
      const auto pruned = [&](Dice& dice) {
        TokenTree tree = sampler(dice);
        prune_forbidden(constraint, tree);
        return tree;
      };
      EXPECT_NEAR(enumerate<RejectionRule>(target, pruned, length).accepted,
                  enumerate<RejectionRule>(target, whole, length).accepted, 1e-13);
      EXPECT_NEAR(enumerate<TraversalRule>(target, pruned, length).accepted,
                  enumerate<TraversalRule>(target, whole, length).accepted, 1e-13);
      if (!c.chain) continue;
      EXPECT_NEAR(enumerate<BlockRule>(target, pruned, length).accepted,
                  enumerate<BlockRule>(target, whole, length).accepted, 1e-13);
    }
  }
}

// As a round does it that has room for so many rows.
TEST_P(TreeCuts, ByRowsAndThenByAConstraint) {
  for (const int rows : {0, 1, 2, 4}) {
    expect_the_targets(
        [&](const TokenConstraint& constraint, TokenTree& tree) {
          cut_rows(tree, rows);
          EXPECT_LE(tree.size(), rows);
          prune_forbidden(constraint, tree);
        },
        rows == 1, 0.3);
  }
}

INSTANTIATE_TEST_SUITE_P(Siblings, TreeCuts, testing::ValuesIn(kSiblings),
                         [](const auto& test) { return std::string(siblings_name(test.param)); });

// The likelier a token that is forbidden is drafted, the rarer must those be that are drafted more
// often than they come: that is what refusing it does.
TEST(ForbiddenDraw, IsRefused) {
  TableTarget target(1, 3, 0.0);
  target.set({}, {{0, 1}, {0.5, 0.5}});
  const Distribution q{{0, 2}, {0.2, 0.8}};
  const auto draw = [&](Dice& dice) {
    TokenTree tree;
    tree.add(dice.draw(-1, q), -1, &q);
    return tree;
  };
  const auto dropped = [&](Dice& dice) {
    TokenTree tree = draw(dice);
    if (tree.nodes[0].token == 2) tree.clear();
    return tree;
  };
  std::map<Tokens, double> emitted = enumerate<RejectionRule>(target, draw, 1).emitted;
  EXPECT_NEAR(emitted[{0}], 0.5, 1e-15);
  EXPECT_NEAR(emitted[{1}], 0.5, 1e-15);
  emitted = enumerate<RejectionRule>(target, dropped, 1).emitted;
  EXPECT_NEAR(emitted[{0}], 0.6, 1e-15);
  EXPECT_NEAR(emitted[{1}], 0.4, 1e-15);
}

// The largest bias over random targets, constraints and drafts of a shape; of both kinds of rule.
void expect_wrong_cut(const char* what, double least, Siblings siblings, const Shape& shape,
                      const Cut& cut) {
  constexpr int kMaskedVocab = 3, kCases = 300;
  std::mt19937_64 random(83);
  double rejection = 0, traversal = 0;
  for (int i = 0; i < kCases; ++i) {
    TableTarget target(random(), kMaskedVocab, 0.0);
    TableMask mask(random(), kMaskedVocab, 0.3);
    mask.apply(target, 2);
    const TableConstraint constraint(mask);
    TreeSampler sampler(random(), kMaskedVocab, 0.0, siblings, shape, true);
    const auto draw = [&](Dice& dice) {
      TokenTree tree = sampler(dice);
      cut(constraint, tree);
      return tree;
    };
    rejection = std::max(rejection, bias(target, enumerate<RejectionRule>(target, draw, 2)));
    traversal = std::max(traversal, bias(target, enumerate<TraversalRule>(target, draw, 2)));
  }
  std::printf("%-60s %.2f %.2f\n", what, rejection, traversal);
  EXPECT_GT(rejection, least) << what;
  EXPECT_GT(traversal, least) << what;
}

TEST(WrongCut, ADraftLeftOutForATokenThatIsForbidden) {
  expect_wrong_cut("a drawn draft left out for a token that is forbidden", 0.15,
                   Siblings::kIndependent, {-1, 0},
                   [](const TokenConstraint& constraint, TokenTree& tree) {
                     if (holds_forbidden(constraint, tree)) tree.clear();
                   });
}

TEST(WrongCut, ADrawnTokenLeftOutSinceItIsForbidden) {
  expect_wrong_cut("a drawn token left out since it is forbidden", 0.2,
                   Siblings::kWithoutReplacement, {-1, -1},
                   [](const TokenConstraint& constraint, TokenTree& tree) {
                     TokenTree kept;
                     for (const TokenTree::Proposal& proposal : tree.proposals) {
                       const int32_t token = tree.nodes[static_cast<size_t>(proposal.node)].token;
                       if (!constraint.allows(token)) continue;
                       kept.add(token, -1, proposal.proposal);
                       kept.nodes.back().without_replacement = proposal.without_replacement;
                     }
                     tree = kept;
                   });
}

// Two draws that fall on one token need one row.
TEST(WrongCut, ADraftLeftOutForTheRowsThatItTakes) {
  expect_wrong_cut("a drawn draft left out if its tokens need two rows", 0.1,
                   Siblings::kIndependent, {-1, -1}, [](const TokenConstraint&, TokenTree& tree) {
                     if (tree.size() > 1) tree.clear();
                   });
}

TEST(CutRows, CountsProposalsAndWhatIsNoDraft) {
  const Distribution q{{1, 2}, {0.5, 0.5}};
  TokenTree tree;
  const int a = tree.add(1, -1, &q);
  const int b = tree.add(2, a, &q);
  tree.add(7, b);
  tree.nodes.back().role = NodeRole::kWindow;
  EXPECT_TRUE(was_drawn(tree));
  EXPECT_EQ(most_rows(tree), 3);
  cut_rows(tree, 3);
  EXPECT_EQ(tree.size(), 3);
  // Twice on one node: three draws, and the window.
  tree.proposals = {{a, &q, false}, {a, &q, false}, {b, nullptr, false}};
  EXPECT_EQ(most_rows(tree), 4);
  cut_rows(tree, 3);
  EXPECT_EQ(tree.size(), 2);
  EXPECT_EQ(tree.proposals.size(), 3u);
  cut_rows(tree, 2);
  EXPECT_EQ(tree.size(), 1);
  EXPECT_EQ(tree.proposals.size(), 2u);
  EXPECT_TRUE(tree.is_well_formed());
  cut_rows(tree, 0);
  EXPECT_TRUE(tree.empty());
  EXPECT_TRUE(tree.proposals.empty());
  tree.add(3, -1);
  EXPECT_FALSE(was_drawn(tree));
}

}  // namespace aerie::tree_cuts_test
