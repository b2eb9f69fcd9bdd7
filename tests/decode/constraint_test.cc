// Constraints in drafting and in verification: speculation changes no token of a constrained reply.

#include <gtest/gtest.h>

#include "tests/decode/exactness.h"
#include "verify/tree_cuts.h"

namespace aerie::constraint_test {

// Of the tokens after s others those are allowed that are s modulo three, and after a multiple of
// ten only one is.
class Cycle final : public TokenConstraint {
 public:
  explicit Cycle(int state = 0) : state_(state) {}
  std::unique_ptr<TokenConstraint> fork() const override { return std::make_unique<Cycle>(state_); }
  void advance(int32_t token) override {
    EXPECT_TRUE(allows(token));
    ++state_;
  }
  void mask(std::span<bool> allowed) const override {
    for (size_t id = 0; id < allowed.size(); ++id) allowed[id] = allows(static_cast<int32_t>(id));
  }
  bool allows(int32_t token) const override {
    return state_ % 10 == 0 ? token == 5 + state_ % 7 : token % 3 == state_ % 3;
  }
  std::string forced() const override { return {}; }

 private:
  int state_;
};

std::vector<test::Request> constrained_requests(int vocab = test::TinySpec{}.vocab) {
  std::vector<test::Request> requests = mixed_requests(vocab);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i != 4) requests[i].options.constraint = std::make_shared<Cycle>();
  }
  return requests;
}

void expect_kept(const test::Replies& replies) {
  for (size_t i = 0; i < replies.of.size(); ++i) {
    if (i == 4) continue;
    Cycle cycle;
    for (const int32_t token : replies.of[i].tokens) cycle.advance(token);
  }
}

class Constrained : public testing::TestWithParam<DraftKind> {};

TEST_P(Constrained, SpeculationChangesNoToken) {
  Setting setting;
  setting.kind = GetParam();
  setting.length = 5;
  setting.chunk = 64;
  setting.requests = constrained_requests();
  const Comparison comparison = compare_with_plain(setting);
  EXPECT_EQ(comparison.difference, "");
  expect_kept(comparison.speculative);
}

TEST_P(Constrained, NorWhenServed) {
  Setting setting;
  setting.kind = GetParam();
  setting.length = 4;
  setting.chunk = 64;
  setting.requests = constrained_requests();
  const ServedTwice served = serve_twice(setting, 17);
  EXPECT_EQ(served.difference, "");
  expect_kept(served.warm);
}

INSTANTIATE_TEST_SUITE_P(Drafters, Constrained, testing::ValuesIn(kDraftKinds),
                         draft_kind_test_name);

// At temperature 0 the other rules keep the tokens, too; above it the constraint.
TEST(ConstrainedRules, KeepToIt) {
  for (const VerifyRule rule :
       {VerifyRule::kRejection, VerifyRule::kBlock, VerifyRule::kTraversal}) {
    for (const DraftKind kind : {DraftKind::kNgram, DraftKind::kSameModel, DraftKind::kModelTree,
                                 DraftKind::kEarlyExit, DraftKind::kSampledTree}) {
      if (rule == VerifyRule::kBlock && kind == DraftKind::kSampledTree) continue;
      SCOPED_TRACE(std::string(verify_rule_name(rule)) + " " + draft_kind_name(kind));
      Setting setting;
      setting.rule = rule;
      setting.kind = kind;
      setting.requests = constrained_requests();
      expect_kept(compare_with_plain(setting).speculative);
      for (test::Request& request : setting.requests) request.options.sampling.temperature = 0;
      const Comparison greedy = compare_with_plain(setting);
      EXPECT_EQ(greedy.difference, "");
      expect_kept(greedy.speculative);
    }
  }
}

// A drafter that is the target itself, masked alike, is right every time.
TEST(ConstrainedDrafts, AreMasked) {
  Setting setting;
  setting.kind = DraftKind::kSameModel;
  setting.length = 4;
  setting.requests = {request_with(sampling_with(0.9, Filter::kNone, 3))};
  setting.requests[0].options.constraint = std::make_shared<Cycle>();
  const Comparison comparison = compare_with_plain(setting);
  EXPECT_EQ(comparison.difference, "");
  EXPECT_GT(comparison.speculative.of[0].stats.mean_accepted_length(), 4.5);
}

TEST(PruneForbidden, TakesOutANodeWithAllBelowIt) {
  const Cycle at_one(1);  // allows 1 modulo 3, then 2, then 0
  TokenTree tree;
  const int a = tree.add(1, -1);
  const int b = tree.add(2, -1);  // forbidden
  tree.add(2, b);
  const int c = tree.add(5, a);
  tree.add(4, a);  // forbidden
  tree.add(6, c);
  prune_forbidden(at_one, tree);
  ASSERT_EQ(tree.size(), 3);
  EXPECT_TRUE(tree.is_well_formed());
  EXPECT_EQ(tree.nodes[0].token, 1);
  EXPECT_EQ(tree.nodes[1].token, 5);
  EXPECT_EQ(tree.nodes[1].parent, 0);
  EXPECT_EQ(tree.nodes[2].token, 6);
  EXPECT_EQ(tree.nodes[2].parent, 1);
}

TEST(PruneForbidden, LeavesWhatWasDrawnInItsPlace) {
  const Cycle at_one(1);
  const Distribution q{{1, 2, 4}, {0.5, 0.25, 0.25}};
  TokenTree tree;
  tree.add(1, -1, &q);
  prune_forbidden(at_one, tree);
  EXPECT_EQ(tree.size(), 1);
  const int forbidden = tree.add(4, 0, &q);
  tree.add(2, forbidden, &q);  // behind it nothing stands
  const int second = tree.add(2, 0, &q);
  tree.nodes.back().without_replacement = true;
  tree.add(1, second);  // forbidden, and not drawn
  prune_forbidden(at_one, tree);
  ASSERT_EQ(tree.size(), 3);
  EXPECT_TRUE(tree.is_well_formed());
  EXPECT_EQ(tree.nodes[1].token, 4);
  EXPECT_EQ(tree.nodes[1].proposal, &q);
  EXPECT_EQ(tree.nodes[2].token, 2);
  EXPECT_EQ(tree.nodes[2].parent, 0);
  EXPECT_TRUE(tree.nodes[2].without_replacement);
}

// A node stays if one of several drafters drew it, with all of its proposals.
TEST(PruneForbidden, GoesByEveryProposal) {
  const Cycle at_one(1);
  const Distribution q{{2, 3}, {0.5, 0.5}};
  TokenTree tree;
  const int drawn = tree.add(2, -1);
  const int certain = tree.add(3, -1);
  const int allowed = tree.add(4, -1);
  tree.proposals = {
      {certain, nullptr, false}, {drawn, nullptr, false}, {drawn, &q, false}, {allowed, &q, false}};
  prune_forbidden(at_one, tree);
  ASSERT_EQ(tree.size(), 2);
  EXPECT_TRUE(tree.is_well_formed());
  ASSERT_EQ(tree.proposals.size(), 3u);
  EXPECT_EQ(tree.proposals[0].node, 0);
  EXPECT_EQ(tree.proposals[1].node, 0);
  EXPECT_EQ(tree.proposals[2].node, 1);
}

// What serves other rows is not the constraint's.
TEST(PruneForbidden, LeavesRowsThatAreNoDrafts) {
  const Cycle at_one(1);
  TokenTree tree;
  tree.add(2, -1);  // forbidden
  const int window = tree.add(2, -1);
  tree.nodes.back().role = NodeRole::kWindow;
  tree.add(2, window);
  tree.nodes.back().role = NodeRole::kProbe;
  prune_forbidden(at_one, tree);
  ASSERT_EQ(tree.size(), 2);
  EXPECT_EQ(tree.nodes[0].role, NodeRole::kWindow);
  EXPECT_EQ(tree.nodes[1].parent, 0);
}

}  // namespace aerie::constraint_test
