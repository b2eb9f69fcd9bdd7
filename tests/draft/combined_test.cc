#include "draft/auto/combined.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/test_drafters.h"

namespace aerie::combined_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Tokens = std::vector<int32_t>;

// What happens to the drafters that are combined.
struct Log {
  std::vector<std::string> calls;
  std::map<std::string, uint32_t> choices;  // by drafter, of the last open()
  std::map<std::string, Tokens> accepted;   // by drafter, of the last observe()
  std::map<std::string, std::vector<float>> taps;
};

// A chain of the given tokens, the same every time.
class Scripted final : public Drafter {
 public:
  Scripted(std::string name, Tokens chain, float probability, Log& log)
      : name_(std::move(name)), chain_(std::move(chain)), probability_(probability), log_(log) {}

  std::string_view method() const override { return name_; }
  const DrafterNeeds& needs() const override { return needs_; }
  Status open(const DraftSequence& sequence) override {
    log_.choices[name_] = sequence.sampling.choice;
    log_.calls.push_back("open " + name_);
    return fails_ ? Status(StatusCode::kResourceExhausted, name_) : Status();
  }
  void close(SequenceId) override { log_.calls.push_back("close " + name_); }
  Status propose(std::span<DraftRequest> requests) override {
    for (DraftRequest& request : requests) {
      log_.calls.push_back("propose " + name_ + " " + std::to_string(request.id));
      float probability = 1.0f;
      for (int i = 0; i < static_cast<int>(chain_.size()) && i < request.max_nodes; ++i) {
        probability *= probability_;
        request.tree->add(chain_[static_cast<size_t>(i)], i - 1, q_, probability);
      }
    }
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override {
    for (const DraftCommit& commit : commits) {
      log_.accepted[name_].assign(commit.accepted.begin(), commit.accepted.end());
      log_.taps[name_].assign(commit.taps.begin(), commit.taps.end());
    }
    return {};
  }

  void draw_from(const Distribution* q) { q_ = q; }
  void fail() { fails_ = true; }
  void want(std::vector<int32_t> layers) { needs_.tap_layers = std::move(layers); }

 private:
  std::string name_;
  Tokens chain_;
  float probability_;
  Log& log_;
  const Distribution* q_ = nullptr;
  DrafterNeeds needs_;
  bool fails_ = false;
};

using Drafters = std::vector<std::unique_ptr<Drafter>>;

class CombinedTest : public testing::Test {
 protected:
  Scripted& add(const std::string& name, const Tokens& chain, float probability = 0.5f) {
    auto drafter = std::make_unique<Scripted>(name, chain, probability, log_);
    Scripted& added = *drafter;
    drafters_.push_back(std::move(drafter));
    return added;
  }
  std::unique_ptr<Drafter> combine(Combination how, DraftNoise noise = DraftNoise::kTarget) {
    auto all = combine_drafters(std::move(drafters_), how).value();
    DraftSequence sequence;
    sequence.id = 3;
    sequence.noise = noise;
    sequence.trees = trees_;
    sequence.sampling.choice = 5;
    sequence.max_tokens = 100;
    EXPECT_TRUE(all->open(sequence).ok());
    log_.calls.clear();
    return all;
  }
  TokenTree propose(Drafter& drafter, int max_nodes = 100) {
    TokenTree tree;
    DraftRequest request{.id = 3, .tokens = text_, .max_nodes = max_nodes, .tree = &tree};
    EXPECT_TRUE(drafter.propose({&request, 1}).ok());
    return tree;
  }
  void observe(Drafter& drafter, const Tokens& accepted) {
    DraftCommit commit;
    commit.id = 3;
    commit.tokens = text_;
    commit.accepted = accepted;
    EXPECT_TRUE(drafter.observe({&commit, 1}).ok());
  }
  static Tokens tokens(const TokenTree& tree) {
    Tokens all;
    for (const TokenTree::Node& node : tree.nodes) all.push_back(node.token);
    return all;
  }
  static Tokens parents(const TokenTree& tree) {
    Tokens all;
    for (const TokenTree::Node& node : tree.nodes) all.push_back(node.parent);
    return all;
  }

  Log log_;
  Drafters drafters_;
  bool trees_ = true;
  Tokens text_ = {1, 2, 3};
};

TEST_F(CombinedTest, TheFirstWithAnIdeaDrafts) {
  add("silent", {});
  add("second", {7, 8});
  add("third", {9});
  const auto all = combine(Combination::kFirst);
  EXPECT_EQ(all->method(), "silent,second,third");
  EXPECT_THAT(tokens(propose(*all)), ElementsAre(7, 8));
  EXPECT_THAT(log_.calls, ElementsAre("propose silent 3", "propose second 3"));
  observe(*all, {0, 1});
  // All hear of the tree that was verified, whoever proposed it.
  for (const char* name : {"silent", "second", "third"}) {
    EXPECT_THAT(log_.accepted[name], ElementsAre(0, 1));
  }
}

TEST_F(CombinedTest, TreesAreMergedByPrefix) {
  add("a", {7, 8}, 0.5f);
  add("silent", {});
  add("b", {7, 9}, 0.9f);
  const auto all = combine(Combination::kMerge);
  EXPECT_EQ(all->method(), "merge,a,silent,b");
  const TokenTree tree = propose(*all);
  EXPECT_THAT(tokens(tree), ElementsAre(7, 8, 9));
  EXPECT_THAT(parents(tree), ElementsAre(-1, 0, 0));
  EXPECT_FLOAT_EQ(tree.nodes[0].probability, 0.9f);
  observe(*all, {0, 2});
  for (const char* name : {"a", "silent", "b"}) {
    EXPECT_THAT(log_.accepted[name], ElementsAre(0, 2));
  }
  // The likeliest nodes stay where there is no room for all.
  EXPECT_THAT(tokens(propose(*all, 2)), ElementsAre(7, 9));
}

// Else what a network says of its nodes would be taken for a word without the noise.
TEST(CommonNeeds, NoiseIsKnownIfAnyKnowsIt) {
  class Knowing final : public test::TestDrafter {
   public:
    Knowing() { needs_.knows_noise = true; }
  };
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<test::TestDrafter>());
  EXPECT_FALSE(common_needs(drafters)->knows_noise);
  drafters.push_back(std::make_unique<Knowing>());
  EXPECT_TRUE(common_needs(drafters)->knows_noise);
}

// How proposals came: of which node, with which distribution.
using Listed = std::pair<int32_t, const Distribution*>;
std::vector<Listed> listed(const TokenTree& tree) {
  std::vector<Listed> all;
  for (const TokenTree::Proposal& p : tree.proposals) all.emplace_back(p.node, p.proposal);
  return all;
}

TEST_F(CombinedTest, ProposalsThatAreComparedWithAreAllKept) {
  const Distribution a, b;
  add("a", {7, 8}, 0.5f).draw_from(&a);
  add("silent", {});
  add("b", {7, 9}, 0.9f).draw_from(&b);
  add("certain", {7, 9});
  const auto all = combine(Combination::kMerge, DraftNoise::kOwn);
  const TokenTree tree = propose(*all);
  EXPECT_THAT(tokens(tree), ElementsAre(7, 8, 9));
  EXPECT_THAT(parents(tree), ElementsAre(-1, 0, 0));
  EXPECT_FLOAT_EQ(tree.nodes[0].probability, 0.9f);
  EXPECT_TRUE(tree.is_well_formed());
  EXPECT_THAT(listed(tree), ElementsAre(Listed(0, &a), Listed(1, &a), Listed(0, &b), Listed(2, &b),
                                        Listed(0, nullptr), Listed(2, nullptr)));
}

// Each has its share of the nodes, whatever the others do with theirs and however likely they are.
TEST_F(CombinedTest, SharesOfNodesGoByCountAlone) {
  const Distribution a, b;
  add("a", {7, 8, 6, 5}, 0.1f).draw_from(&a);
  add("silent", {});
  add("b", {1, 2, 3, 4}, 0.9f).draw_from(&b);
  const auto all = combine(Combination::kMerge, DraftNoise::kOwn);
  EXPECT_THAT(tokens(propose(*all, 8)), ElementsAre(7, 8, 6, 1, 2));
  EXPECT_THAT(tokens(propose(*all, 3)), ElementsAre(7, 1));
  EXPECT_THAT(tokens(propose(*all, 2)), ElementsAre(7));
  EXPECT_THAT(log_.calls.back(), "propose silent 3");  // there was no node for b
  // A lone draft stays as it came.
  EXPECT_THAT(propose(*all, 2).proposals, IsEmpty());
}

TEST_F(CombinedTest, ChainsAreNotMerged) {
  add("a", {7, 8});
  add("b", {9});
  trees_ = false;
  const auto all = combine(Combination::kMerge, DraftNoise::kOwn);
  EXPECT_THAT(tokens(propose(*all)), ElementsAre(7, 8));
}

TEST_F(CombinedTest, DraftersDrawIndependently) {
  for (const DraftNoise noise : {DraftNoise::kOwn, DraftNoise::kTarget}) {
    add("a", {});
    add("b", {});
    add("c", {});
    combine(Combination::kMerge, noise);
    const std::set<uint32_t> choices = {log_.choices["a"], log_.choices["b"], log_.choices["c"]};
    // The target's own noise is that of the request.
    EXPECT_EQ(choices.size(), noise == DraftNoise::kOwn ? 3u : 1u);
    EXPECT_EQ(log_.choices["a"], 5u);
    drafters_.clear();
  }
}

TEST_F(CombinedTest, OpensAllOrNone) {
  add("a", {});
  add("b", {});
  add("c", {}).fail();
  const auto all = combine_drafters(std::move(drafters_), Combination::kFirst).value();
  DraftSequence sequence;
  sequence.id = 3;
  EXPECT_EQ(all->open(sequence).code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(log_.calls, ElementsAre("open a", "open b", "open c", "close b", "close a"));
}

TEST_F(CombinedTest, RefusesASequenceThatIsNotOpen) {
  add("a", {7});
  const auto all = combine_drafters(std::move(drafters_), Combination::kFirst).value();
  TokenTree tree;
  DraftRequest request{.id = 4, .tokens = text_, .max_nodes = 5, .tree = &tree};
  EXPECT_THAT(all->propose({&request, 1}).message(), HasSubstr("sequence 4 is not open"));
}

TEST_F(CombinedTest, EachGetsItsOwnTaps) {
  add("a", {}).want({1, 2});
  add("b", {});
  add("c", {}).want({5, 1});
  const auto all = combine(Combination::kFirst);
  EXPECT_THAT(all->needs().tap_layers, ElementsAre(1, 2, 5));
  const std::vector<int32_t> tokens = {1, 2, 3};
  // Two rows of two values a layer: row, layer, value.
  const std::vector<float> taps = {11, 12, 21, 22, 51, 52, 111, 112, 121, 122, 151, 152};
  DraftCommit commit;
  commit.id = 3;
  commit.tokens = tokens;
  commit.rows = 2;
  commit.taps = taps;
  ASSERT_TRUE(all->observe({&commit, 1}).ok());
  EXPECT_THAT(log_.taps["a"], ElementsAre(11, 12, 21, 22, 111, 112, 121, 122));
  EXPECT_THAT(log_.taps["b"], IsEmpty());
  EXPECT_THAT(log_.taps["c"], ElementsAre(51, 52, 11, 12, 151, 152, 111, 112));
}

TEST_F(CombinedTest, TapsBeyondWhatThereIsAreRefused) {
  add("a", {}).want({1, 2, 3, 4, 5, 6});
  add("c", {}).want({7, 8, 9});
  const Status status = combine_drafters(std::move(drafters_), Combination::kMerge).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("drafter c"), HasSubstr("leave one")));
}

}  // namespace aerie::combined_test
