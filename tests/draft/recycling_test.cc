#include "draft/lookup/recycling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/draft/tree_paths.h"
#include "tests/testing/allocation_counter.h"

namespace aerie::recycling_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using test::paths_of;
using Tokens = std::vector<int32_t>;

std::unique_ptr<Drafter> make(const RecyclingOptions& options) {
  auto drafter = make_recycling_drafter(options);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(drafter).value();
}

void open(Drafter& drafter, SequenceId id) {
  DraftSequence sequence;
  sequence.id = id;
  sequence.max_tokens = 10000;
  ASSERT_TRUE(drafter.open(sequence).ok());
}

TokenTree propose(Drafter& drafter, SequenceId id, const Tokens& text, int max_nodes = 1000) {
  TokenTree tree;
  DraftRequest request{.id = id, .tokens = text, .max_nodes = max_nodes, .tree = &tree};
  EXPECT_TRUE(drafter.propose({&request, 1}).ok());
  return tree;
}

TEST(Recycling, PutsTheLatestSuccessorsFirst) {
  const auto drafter = make({.vocab = 10, .num_tokens = 5});
  open(*drafter, 1);
  // After 1 came 2, 3 and 2 again; after 2 came 1.
  const TokenTree tree = propose(*drafter, 1, {1, 2, 1, 3, 1, 2, 1});
  EXPECT_THAT(paths_of(tree), ElementsAre(Tokens{2}, Tokens{2, 1}, Tokens{3}, Tokens{2, 1, 2}));
  EXPECT_TRUE(propose(*drafter, 1, {1, 2, 1, 3, 1, 2, 1, 9}).empty());
  EXPECT_THAT(paths_of(propose(*drafter, 1, {1, 2, 1, 3, 1, 2, 1, 9, 2})),
              ElementsAre(Tokens{1}, Tokens{1, 9}, Tokens{1, 9, 2}));
}

TEST(Recycling, SequencesShareTheTable) {
  const auto drafter = make({.vocab = 10, .num_tokens = 2});
  open(*drafter, 1);
  propose(*drafter, 1, {1, 2, 3});
  drafter->close(1);
  open(*drafter, 2);
  EXPECT_THAT(paths_of(propose(*drafter, 2, {1})), ElementsAre(Tokens{2}, Tokens{2, 3}));
  EXPECT_THAT(paths_of(propose(*drafter, 2, {1}, 1)), ElementsAre(Tokens{2}));
  EXPECT_THAT(paths_of(propose(*drafter, 2, {1}, 0)), IsEmpty());
}

// Tables by hand: the tree's paths are those of the table, each node the successor of its rank, and
// what is likelier comes first.
TEST(Recycling, TreesAreWhatTheTableSays) {
  std::mt19937 random(1);
  int64_t nodes = 0;
  for (int repeat = 0; repeat < 300; ++repeat) {
    RecyclingOptions options;
    options.vocab = 2 + static_cast<int>(random() % 20);
    options.num_tokens = 1 + static_cast<int>(random() % 40);
    options.successors = 1 + static_cast<int>(random() % 8);
    const auto drafter = make(options);
    open(*drafter, 1);
    std::map<int32_t, Tokens> table;
    Tokens text;
    for (int step = 0; step < 60; ++step) {
      // Some ids are outside the vocabulary.
      const auto token = static_cast<int32_t>(random() % static_cast<size_t>(options.vocab + 1));
      if (!text.empty() && text.back() < options.vocab && token < options.vocab) {
        Tokens& row = table[text.back()];
        std::erase(row, token);
        row.insert(row.begin(), token);
        row.resize(std::min(row.size(), static_cast<size_t>(options.successors)));
      }
      text.push_back(token);
      if (random() % 3 != 0) continue;
      const int max_nodes = static_cast<int>(random() % 45);
      const TokenTree tree = propose(*drafter, 1, text, max_nodes);
      ASSERT_LE(tree.size(), std::min(max_nodes, options.num_tokens));
      nodes += tree.size();
      const auto paths = paths_of(tree);
      ASSERT_EQ(std::set<Tokens>(paths.begin(), paths.end()).size(), paths.size());
      float before = 1.0f;
      std::map<int32_t, size_t> children;
      for (const TokenTree::Node& node : tree.nodes) {
        EXPECT_EQ(node.proposal, nullptr);
        ASSERT_GT(node.probability, 0.0f);
        ASSERT_LE(node.probability, before);
        before = node.probability;
        const int32_t parent =
            node.parent < 0 ? text.back() : tree.nodes[static_cast<size_t>(node.parent)].token;
        const size_t rank = children[node.parent]++;
        ASSERT_LT(rank, table[parent].size());
        ASSERT_EQ(node.token, table[parent][rank]);
      }
      // The first successor of the root is the likeliest node of all.
      ASSERT_EQ(tree.empty(), max_nodes == 0 || table[text.back()].empty());
    }
  }
  EXPECT_GT(nodes, 20000);
}

// A round's rows, those of refused nodes too, say what the target would go on with.
TEST(Recycling, TakesTheTargetsLikeliestTokens) {
  const auto drafter = make({.vocab = 20, .num_tokens = 3, .successors = 2});
  EXPECT_EQ(drafter->needs().top_tokens, 2);
  open(*drafter, 1);
  TokenTree tree;
  const int32_t a = tree.add(2, -1);  // accepted
  tree.add(3, -1);                    // refused
  tree.add(2, 1);                     // the same token elsewhere: what was accepted counts
  tree.add(4, a);
  tree.nodes.back().role = NodeRole::kWindow;
  const Tokens text = {7, 4, 9, 1, 2, 5};
  const int32_t accepted[] = {a};
  // Three were ranked for another drafter's sake.
  const Tokens top = {10, 11, 12, 5, 13, 14, 15, 16, 17, 18, 19, 1, -1, -1, -1};
  DraftCommit commit;
  commit.id = 1;
  commit.tokens = text;
  commit.first = 3;
  commit.rows = 2;
  commit.tree = &tree;
  commit.accepted = accepted;
  commit.top_tokens = top;
  ASSERT_TRUE(drafter->observe({&commit, 1}).ok());
  const auto successors = [&](int32_t token) {
    open(*drafter, 2);
    const auto paths = paths_of(propose(*drafter, 2, {token}));
    drafter->close(2);
    Tokens first;
    for (const Tokens& path : paths) {
      if (path.size() == 1) first.push_back(path[0]);
    }
    return first;
  };
  EXPECT_THAT(successors(1), ElementsAre(10, 11));
  EXPECT_THAT(successors(2), ElementsAre(5, 13));
  EXPECT_THAT(successors(3), ElementsAre(15, 16));
  EXPECT_THAT(successors(4), ElementsAre(9));  // of the text: its row had no logits
  EXPECT_THAT(successors(7), ElementsAre(4));
}

void expect_invalid(const RecyclingOptions& options, const std::string& part) {
  const Status status = make_recycling_drafter(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(Recycling, WrongUseIsAStatus) {
  expect_invalid({.vocab = 0}, "vocab");
  expect_invalid({.vocab = 5, .num_tokens = 0}, "num_tokens");
  expect_invalid({.vocab = 5, .num_tokens = 1025}, "num_tokens");
  expect_invalid({.vocab = 5, .successors = 0}, "successors");
  expect_invalid({.vocab = 5, .successors = 9}, "successors");
  const auto drafter = make({.vocab = 5});
  TokenTree tree;
  const Tokens text = {-7, INT32_MAX, 1};
  DraftRequest request{3, text, 4, &tree};
  EXPECT_THAT(drafter->propose({&request, 1}).message(),
              HasSubstr("recycling drafter: sequence 3 is not open"));
  open(*drafter, 3);
  EXPECT_TRUE(drafter->propose({&request, 1}).ok());
  EXPECT_TRUE(tree.empty());
  EXPECT_EQ(drafter->method(), "recycling");
  EXPECT_TRUE(drafter->needs().tap_layers.empty());
}

TEST(Recycling, AllocatesNothingAfterOpen) {
  std::mt19937 random(2);
  Tokens text(2000);
  for (int32_t& token : text) token = static_cast<int32_t>(random() % 50);
  const auto drafter = make({.vocab = 50});
  open(*drafter, 1);
  TokenTree tree;
  tree.nodes.reserve(16);
  int64_t proposed = 0;
  const int64_t before = allocations();
  for (size_t size = 1; size <= text.size(); ++size) {
    tree.clear();
    DraftCommit commit;
    commit.id = 1;
    commit.tokens = std::span(text).first(size);
    ASSERT_TRUE(drafter->observe({&commit, 1}).ok());
    DraftRequest request{1, commit.tokens, 16, &tree};
    ASSERT_TRUE(drafter->propose({&request, 1}).ok());
    proposed += tree.size();
  }
  EXPECT_EQ(allocations(), before);
  EXPECT_GT(proposed, 10000);
}

}  // namespace aerie::recycling_test
