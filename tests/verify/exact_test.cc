#include <gtest/gtest.h>

#include "tests/verify/synthetic.h"
#include "verify/verifier.h"

namespace aerie::verify_exact_test {

// Draws a fixed token after each path, 0 where nothing is said.
class ScriptedTarget final : public TargetView {
 public:
  using Script = std::map<Tokens, int32_t>;
  explicit ScriptedTarget(Script script) : script_(std::move(script)) {}

  int32_t sample(int node, std::span<const int32_t> path) override {
    nodes.push_back(node);
    const auto found = script_.find(Tokens(path.begin(), path.end()));
    return found == script_.end() ? 0 : found->second;
  }
  const Distribution& distribution(int, std::span<const int32_t>) override {
    ADD_FAILURE() << "exact needs no distribution";
    return unused_;
  }

  std::vector<int> nodes;  // asked for, in order

 private:
  Script script_;
  Distribution unused_;
};

Verdict judge(const TokenTree& tree, TargetView& target) {
  Verdict verdict;
  verdict.accepted = {99, 98};  // overwritten
  const auto verifier = make_verifier(VerifyRule::kExact);
  EXPECT_TRUE(verifier->accepts(tree));
  verifier->verify(tree, target, {}, 0, verdict);
  return verdict;
}

TEST(Exact, EmptyTreeIsPlainDecoding) {
  ScriptedTarget target(ScriptedTarget::Script{{{}, 5}});
  const Verdict verdict = judge({}, target);
  EXPECT_TRUE(verdict.accepted.empty());
  EXPECT_EQ(verdict.next_token, 5);
  EXPECT_TRUE(verdict.bonus);
  EXPECT_EQ(verdict.emitted(), 1);
}

TEST(Exact, PassesOverNodesThatAreNotProposed) {
  TokenTree tree;
  const int window = tree.add(2, -1);
  tree.nodes.back().role = NodeRole::kWindow;
  tree.add(3, window);
  tree.nodes.back().role = NodeRole::kProbe;
  const int b = tree.add(2, -1);
  tree.add(3, b);
  tree.nodes.back().role = NodeRole::kProbe;
  ScriptedTarget target({{{}, 2}, {{2}, 3}});
  const Verdict verdict = judge(tree, target);
  EXPECT_EQ(verdict.accepted, (std::vector<int32_t>{b}));
  EXPECT_EQ(verdict.next_token, 3);
  EXPECT_TRUE(verdict.bonus);
}

TEST(Exact, WalksWhileAChildCarriesTheToken) {
  TokenTree tree;
  const int a = tree.add(1, -1);
  const int b = tree.add(2, -1);
  tree.add(3, a);
  const int d = tree.add(4, b);
  tree.add(5, b);
  tree.add(6, d);
  ScriptedTarget target({{{}, 2}, {{2}, 4}, {{2, 4}, 7}});
  const Verdict verdict = judge(tree, target);
  EXPECT_EQ(verdict.accepted, (std::vector<int32_t>{b, d}));
  EXPECT_EQ(verdict.next_token, 7);
  EXPECT_FALSE(verdict.bonus);
  EXPECT_EQ(target.nodes, (std::vector<int>{-1, b, d}));
}

TEST(Exact, BonusFollowsALeaf) {
  TokenTree tree;
  const int a = tree.add(1, -1);
  tree.add(2, -1);
  ScriptedTarget target({{{}, 1}, {{1}, 9}});
  const Verdict verdict = judge(tree, target);
  EXPECT_EQ(verdict.accepted, std::vector<int32_t>{a});
  EXPECT_EQ(verdict.next_token, 9);
  EXPECT_TRUE(verdict.bonus);
  EXPECT_EQ(verdict.emitted(), 2);
}

TEST(Exact, TakesTheFirstOfEqualSiblings) {
  TokenTree tree;
  tree.add(3, -1);
  const int first = tree.add(1, -1);
  const int second = tree.add(1, -1);
  tree.add(2, second);
  ScriptedTarget target({{{}, 1}, {{1}, 2}});
  const Verdict verdict = judge(tree, target);
  EXPECT_EQ(verdict.accepted, std::vector<int32_t>{first});
  EXPECT_TRUE(verdict.bonus);
}

// Random trees, good and bad, at every temperature: the emitted ids are those of plain decoding.
TEST(Exact, EmitsPlainDecodingsTokensWhateverIsProposed) {
  std::mt19937_64 random(8);
  const auto verifier = make_verifier(VerifyRule::kExact);
  int accepted = 0;
  for (int run = 0; run < 60; ++run) {
    SamplingParams params;
    params.seed = random();
    params.temperature = run % 4 == 0 ? 0.0 : 0.4 * (run % 4);
    if (run % 3 == 0) params.repetition_penalty = 1.3;
    if (run % 5 == 0) params.top_p = 0.8;
    const size_t length = 120;
    Tokens plain = {1, 2};
    while (plain.size() < length) {
      plain.push_back(TinyTarget(params, plain).sample(-1, {}));
    }
    Tokens tokens = {1, 2};
    Verdict verdict;
    while (tokens.size() < length) {
      TokenTree tree;
      for (int n = static_cast<int>(random() % 12); n > 0; --n) {
        const int parent = static_cast<int>(random() % static_cast<size_t>(tree.size() + 1)) - 1;
        tree.add(static_cast<int32_t>(random() % kTinyVocab), parent);
      }
      TinyTarget target(params, tokens);
      verifier->verify(tree, target, {params.seed, 0}, tokens.size() - 1, verdict);
      Tokens emitted;
      for (const int32_t node : verdict.accepted) {
        emitted.push_back(tree.nodes[static_cast<size_t>(node)].token);
      }
      emitted.push_back(verdict.next_token);
      tokens.insert(tokens.end(), emitted.begin(), emitted.end());
      accepted += static_cast<int>(verdict.accepted.size());
    }
    tokens.resize(length);
    ASSERT_EQ(tokens, plain) << run;
  }
  EXPECT_GT(accepted, 500);
}

}  // namespace aerie::verify_exact_test
