#include "draft/lookup/ngram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/draft/tree_paths.h"
#include "tests/testing/allocation_counter.h"

namespace aerie::ngram_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using test::paths_of;
using Tokens = std::vector<int32_t>;

constexpr int kNoLimit = 1000;

// What ngram.h promises, in quadratic time.
Tokens lookup_by_hand(std::span<const int32_t> text, const NgramOptions& options, int max_nodes) {
  const int size = static_cast<int>(text.size());
  for (int n = options.max_n; n >= options.min_n; --n) {
    if (n >= size) continue;
    const auto suffix = text.last(static_cast<size_t>(n));
    for (int begin = size - n - 1; begin >= 0; --begin) {
      const auto candidate = text.subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
      if (!std::ranges::equal(candidate, suffix)) continue;
      const auto rest = text.subspan(static_cast<size_t>(begin + n));
      const int length = std::min({options.num_tokens, max_nodes, static_cast<int>(rest.size())});
      return {rest.begin(), rest.begin() + length};
    }
  }
  return {};
}

std::unique_ptr<Drafter> make(const NgramOptions& options) {
  auto drafter = make_ngram_drafter(options);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(drafter).value();
}

Status try_open(Drafter& drafter, SequenceId id, int max_tokens) {
  DraftSequence sequence;
  sequence.id = id;
  sequence.max_tokens = max_tokens;
  return drafter.open(sequence);
}

void open(Drafter& drafter, SequenceId id, int max_tokens) {
  const Status status = try_open(drafter, id, max_tokens);
  ASSERT_TRUE(status.ok()) << status.message();
}

Tokens tokens_of(const TokenTree& tree) {
  EXPECT_TRUE(tree.is_chain());
  Tokens tokens;
  for (const TokenTree::Node& node : tree.nodes) {
    EXPECT_EQ(node.depth, static_cast<int32_t>(tokens.size()) + 1);
    EXPECT_EQ(node.proposal, nullptr);
    EXPECT_GT(node.probability, 0.0f);
    EXPECT_LE(node.probability,
              node.parent < 0 ? 1.0f : tree.nodes[static_cast<size_t>(node.parent)].probability);
    tokens.push_back(node.token);
  }
  return tokens;
}

Tokens propose(Drafter& drafter, SequenceId id, std::span<const int32_t> text,
               int max_nodes = kNoLimit) {
  TokenTree tree;
  DraftRequest request{.id = id, .tokens = text, .max_nodes = max_nodes, .tree = &tree};
  const Status status = drafter.propose({&request, 1});
  EXPECT_TRUE(status.ok()) << status.message();
  return tokens_of(tree);
}

DraftCommit commit_of(SequenceId id, std::span<const int32_t> text) {
  DraftCommit commit;
  commit.id = id;
  commit.tokens = text;
  return commit;
}

Status observe(Drafter& drafter, SequenceId id, std::span<const int32_t> text) {
  const DraftCommit commit = commit_of(id, text);
  return drafter.observe({&commit, 1});
}

Tokens lookup(const Tokens& text, int max_n, int num_tokens, int min_n = 1) {
  const auto drafter = make({.max_n = max_n, .min_n = min_n, .num_tokens = num_tokens});
  open(*drafter, 1, 100);
  return propose(*drafter, 1, text);
}

TEST(Ngram, ProposesWhatFollowedTheLongestSuffix) {
  EXPECT_THAT(lookup({1, 2, 3, 1, 2, 3, 1, 2}, 3, 3), ElementsAre(3, 1, 2));
  EXPECT_THAT(lookup({1, 2, 3, 4, 2, 5, 6, 1, 2}, 3, 2), ElementsAre(3, 4));
  EXPECT_THAT(lookup({1, 2, 3, 4, 5}, 3, 3), IsEmpty());
  EXPECT_THAT(lookup({9, 8, 7}, 3, 3), IsEmpty());
  EXPECT_THAT(lookup({4, 5, 6, 7, 4, 5, 6, 7, 4, 5}, 2, 3), ElementsAre(6, 7, 4));
}

TEST(Ngram, TakesTheMostRecentOccurrence) {
  EXPECT_THAT(lookup({1, 2, 9, 1, 2, 8, 1, 2}, 3, 2), ElementsAre(8, 1));
  EXPECT_THAT(lookup({2, 9, 2, 8, 2, 7, 2}, 3, 2), ElementsAre(7, 2));
}

TEST(Ngram, HonoursTheShortestLength) {
  EXPECT_THAT(lookup({1, 2, 3, 9, 2}, 3, 2), ElementsAre(3, 9));
  EXPECT_THAT(lookup({1, 2, 3, 9, 2}, 3, 2, 2), IsEmpty());
  EXPECT_THAT(lookup({1, 2, 3, 9, 1, 2}, 3, 2, 2), ElementsAre(3, 9));
}

TEST(Ngram, CutsTheContinuationAtTheEndOfTheText) {
  EXPECT_THAT(lookup({5, 5, 5, 5}, 3, 3), ElementsAre(5));
  EXPECT_THAT(lookup({1, 2, 1, 2}, 2, 10), ElementsAre(1, 2));
}

TEST(Ngram, ShortTextsGiveNothing) {
  EXPECT_THAT(lookup({}, 3, 3), IsEmpty());
  EXPECT_THAT(lookup({7}, 3, 3), IsEmpty());
  EXPECT_THAT(lookup({7, 7}, 3, 3), ElementsAre(7));
  EXPECT_THAT(lookup({7, 7}, 60, 3, 50), IsEmpty());
}

TEST(Ngram, AnyTokenIdIsFine) {
  constexpr int32_t kLow = std::numeric_limits<int32_t>::min();
  constexpr int32_t kHigh = std::numeric_limits<int32_t>::max();
  EXPECT_THAT(lookup({kLow, -1, 0, kHigh, kLow, -1}, 3, 2), ElementsAre(0, kHigh));
}

TEST(Ngram, MaxNodesIsRespected) {
  const Tokens text = {1, 2, 3, 4, 5, 6, 1, 2};
  const auto drafter = make({.max_n = 3, .min_n = 1, .num_tokens = 5});
  open(*drafter, 1, 20);
  EXPECT_THAT(propose(*drafter, 1, text, 0), IsEmpty());
  EXPECT_THAT(propose(*drafter, 1, text, -1), IsEmpty());
  EXPECT_THAT(propose(*drafter, 1, text, 1), ElementsAre(3));
  EXPECT_THAT(propose(*drafter, 1, text, 4), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(propose(*drafter, 1, text, 100), ElementsAre(3, 4, 5, 6, 1));
}

Tokens random_tokens(std::mt19937& random, int length, int alphabet) {
  Tokens text(static_cast<size_t>(length));
  for (int32_t& token : text)
    token = static_cast<int32_t>(random() % static_cast<size_t>(alphabet));
  return text;
}

NgramOptions random_options(std::mt19937& random) {
  NgramOptions options;
  options.min_n = 1 + static_cast<int>(random() % 3);
  options.max_n = options.min_n + static_cast<int>(random() % 5);
  options.num_tokens = 1 + static_cast<int>(random() % 8);
  return options;
}

// The text of `length` grows by 1 .. max_jump tokens between looks; some looks are skipped, as when
// a sequence is only observed.
void check_growing_text(std::mt19937& random, int length, int max_jump) {
  const NgramOptions options = random_options(random);
  const Tokens all = random_tokens(random, length, 1 + static_cast<int>(random() % 6));
  const auto drafter = make(options);
  open(*drafter, 3, length);
  for (int size = 0; size <= length; size += 1 + static_cast<int>(random() % max_jump)) {
    const auto text = std::span(all).first(static_cast<size_t>(size));
    if (random() % 4 != 0) {
      ASSERT_TRUE(observe(*drafter, 3, text).ok());
    }
    if (random() % 4 == 0) continue;
    const int max_nodes = static_cast<int>(random() % 12);
    ASSERT_EQ(propose(*drafter, 3, text, max_nodes), lookup_by_hand(text, options, max_nodes))
        << "n " << options.min_n << ".." << options.max_n << " size " << size;
  }
}

TEST(Ngram, EqualsBruteForceTokenByToken) {
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 1500; ++repeat) {
    check_growing_text(random, 1 + static_cast<int>(random() % 90), 1);
  }
}

TEST(Ngram, EqualsBruteForceInJumps) {
  std::mt19937 random(2);
  for (int repeat = 0; repeat < 1500; ++repeat) {
    check_growing_text(random, 1 + static_cast<int>(random() % 200), 13);
  }
}

TEST(Ngram, EqualsBruteForceOnOneLongText) {
  std::mt19937 random(3);
  const NgramOptions options{.max_n = 4, .min_n = 1, .num_tokens = 6};
  const Tokens all = random_tokens(random, 4000, 40);
  const auto drafter = make(options);
  open(*drafter, 3, 4000);
  for (size_t size = 0; size <= all.size(); size += 1 + random() % 40) {
    const auto text = std::span(all).first(size);
    ASSERT_EQ(propose(*drafter, 3, text), lookup_by_hand(text, options, kNoLimit));
  }
}

struct Grown {
  SequenceId id = 0;
  Tokens all;
  size_t size = 0;

  std::span<const int32_t> text() const { return std::span(all).first(size); }
};

TokenTree propose_tree(Drafter& drafter, std::span<const int32_t> text, int max_nodes = kNoLimit) {
  TokenTree tree;
  DraftRequest request{.id = 1, .tokens = text, .max_nodes = max_nodes, .tree = &tree};
  EXPECT_TRUE(drafter.propose({&request, 1}).ok());
  return tree;
}

TEST(Ngram, SeveralMatchesMakeATree) {
  const Tokens text = {1, 2, 5, 6, 1, 2, 5, 7, 1, 2, 8, 9, 1, 2};
  const auto drafter = make({.max_n = 2, .num_tokens = 6, .num_matches = 3});
  open(*drafter, 1, 20);
  const TokenTree tree = propose_tree(*drafter, text);
  EXPECT_THAT(paths_of(tree), ElementsAre(Tokens{8}, Tokens{8, 9}, Tokens{8, 9, 1}, Tokens{5},
                                          Tokens{8, 9, 1, 2}, Tokens{5, 7}));
  for (const TokenTree::Node& node : tree.nodes) {
    const float above =
        node.parent < 0 ? 1.0f : tree.nodes[static_cast<size_t>(node.parent)].probability;
    EXPECT_GT(node.probability, 0.0f);
    EXPECT_LT(node.probability, above);
  }
  EXPECT_THAT(paths_of(propose_tree(*drafter, text, 2)), ElementsAre(Tokens{8}, Tokens{8, 9}));
  EXPECT_TRUE(propose_tree(*drafter, text, 0).empty());
}

// All occurrences of the longest suffix, the latest first.
std::vector<Tokens> matches_by_hand(std::span<const int32_t> text, const NgramOptions& options) {
  std::vector<Tokens> found;
  const int size = static_cast<int>(text.size());
  for (int n = std::min(options.max_n, size - 1); n >= options.min_n && found.empty(); --n) {
    const auto suffix = text.last(static_cast<size_t>(n));
    for (int begin = size - n - 1; begin >= 0; --begin) {
      if (!std::ranges::equal(text.subspan(static_cast<size_t>(begin), static_cast<size_t>(n)),
                              suffix)) {
        continue;
      }
      const auto rest = text.subspan(static_cast<size_t>(begin + n));
      const auto length = std::min(rest.size(), static_cast<size_t>(options.num_tokens));
      found.emplace_back(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(length));
    }
  }
  return found;
}

TEST(Ngram, TreesAreMadeOfTheLatestContinuationsThatDiffer) {
  std::mt19937 random(7);
  int branched = 0;
  for (int repeat = 0; repeat < 3000; ++repeat) {
    NgramOptions options = random_options(random);
    options.num_matches = 2 + static_cast<int>(random() % 3);
    const int size = 1 + static_cast<int>(random() % 60);
    const Tokens text = random_tokens(random, size, 1 + static_cast<int>(random() % 4));
    std::set<Tokens> expected;
    int matches = 0;
    const auto all = matches_by_hand(text, options);
    for (size_t i = 0; i < all.size() && i < 8 * static_cast<size_t>(options.num_matches); ++i) {
      const size_t before = expected.size();
      for (size_t n = 1; n <= all[i].size(); ++n) {
        expected.emplace(all[i].begin(), all[i].begin() + static_cast<std::ptrdiff_t>(n));
      }
      if (expected.size() > before && ++matches == options.num_matches) break;
    }
    const auto drafter = make(options);
    open(*drafter, 1, size);
    const TokenTree tree = propose_tree(*drafter, text);
    branched += tree.is_chain() ? 0 : 1;
    const auto paths = paths_of(tree);
    const std::set<Tokens> distinct(paths.begin(), paths.end());
    ASSERT_EQ(distinct.size(), paths.size());
    ASSERT_TRUE(std::ranges::includes(expected, distinct));
    ASSERT_EQ(paths.size(), std::min(expected.size(), static_cast<size_t>(options.num_tokens)));
    if (!all.empty()) {
      EXPECT_EQ(paths[0][0], all[0][0]);
    }
  }
  EXPECT_GT(branched, 300);
}

TEST(Ngram, SequencesInOneBatchDoNotMix) {
  std::mt19937 random(4);
  const NgramOptions options{.max_n = 3, .min_n = 1, .num_tokens = 4};
  const auto drafter = make(options);
  std::vector<Grown> sequences;
  for (SequenceId id : {7, -2, 100000, 0, 12}) {
    sequences.push_back({id, random_tokens(random, 150, 3), 0});
    open(*drafter, id, 150);
  }
  for (int round = 0; round < 200; ++round) {
    std::shuffle(sequences.begin(), sequences.end(), random);
    const size_t batch = 1 + random() % sequences.size();
    std::vector<TokenTree> trees(batch);
    std::vector<DraftRequest> requests;
    std::vector<DraftCommit> commits;
    for (size_t i = 0; i < batch; ++i) {
      Grown& grown = sequences[i];
      grown.size = std::min(grown.all.size(), grown.size + random() % 4);
      requests.push_back({grown.id, grown.text(), kNoLimit, &trees[i]});
      commits.push_back(commit_of(grown.id, grown.text()));
    }
    ASSERT_TRUE(drafter->observe(commits).ok());
    ASSERT_TRUE(drafter->propose(requests).ok());
    for (size_t i = 0; i < batch; ++i) {
      ASSERT_EQ(tokens_of(trees[i]), lookup_by_hand(requests[i].tokens, options, kNoLimit));
    }
  }
}

TEST(Ngram, AClosedSequenceIsForgotten) {
  const auto drafter = make({});
  open(*drafter, 1, 10);
  EXPECT_THAT(propose(*drafter, 1, Tokens{1, 2, 3, 1, 2}), ElementsAre(3, 1, 2));
  drafter->close(1);
  drafter->close(1);
  drafter->close(99);
  open(*drafter, 1, 10);
  EXPECT_THAT(propose(*drafter, 1, Tokens{1, 2}), IsEmpty());
  EXPECT_THAT(propose(*drafter, 1, Tokens{1, 2, 1}), ElementsAre(2, 1));
}

void expect_invalid(const Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(Ngram, WrongUseIsAStatus) {
  const auto drafter = make({});
  const Tokens text = {1, 2, 1};
  TokenTree tree;
  TokenTree second;
  DraftRequest request{.id = 5, .tokens = text, .max_nodes = 4, .tree = &tree};
  expect_invalid(drafter->propose({&request, 1}), "5 is not open");
  expect_invalid(observe(*drafter, 5, text), "5 is not open");
  expect_invalid(try_open(*drafter, 5, 0), "max_tokens");
  open(*drafter, 5, 3);
  expect_invalid(try_open(*drafter, 5, 3), "5 is open already");
  ASSERT_TRUE(observe(*drafter, 5, text).ok());
  expect_invalid(observe(*drafter, 5, Tokens{1, 2, 1, 2}), "4 tokens, it was opened for 3");
  expect_invalid(observe(*drafter, 5, Tokens{1, 2}), "shrunk from 3 to 2");

  // One wrong request in a batch leaves every tree alone.
  std::vector<DraftRequest> requests = {request, {6, text, 4, &second}};
  expect_invalid(drafter->propose(requests), "6 is not open");
  EXPECT_TRUE(tree.empty());
  EXPECT_TRUE(drafter->propose({&request, 1}).ok());
  EXPECT_THAT(tokens_of(tree), ElementsAre(2, 1));
}

TEST(Ngram, OptionsAreChecked) {
  expect_invalid(make_ngram_drafter({.max_n = 3, .min_n = 0}).status(), "min_n");
  expect_invalid(make_ngram_drafter({.max_n = 2, .min_n = 3}).status(), "max_n");
  expect_invalid(make_ngram_drafter({.num_tokens = 0}).status(), "num_tokens");
  expect_invalid(make_ngram_drafter({.num_matches = 0}).status(), "num_matches");
  const auto drafter = make({.max_n = 1 << 30});
  EXPECT_TRUE(try_open(*drafter, 1, 50).ok());
  EXPECT_EQ(try_open(*drafter, 2, std::numeric_limits<int>::max()).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(drafter->method(), "ngram");
  EXPECT_TRUE(drafter->needs().tap_layers.empty());
}

void expect_no_allocations(int num_matches, size_t warm) {
  std::mt19937 random(5);
  const Tokens all = random_tokens(random, 2000, 5);
  const auto drafter = make({.max_n = 5, .min_n = 1, .num_tokens = 8, .num_matches = num_matches});
  open(*drafter, 1, 2000);
  open(*drafter, 2, 2000);
  std::vector<TokenTree> trees(2);
  for (TokenTree& tree : trees) tree.nodes.reserve(8);
  int64_t before = allocations();
  int64_t proposed = 0;
  for (size_t size = 700; size <= all.size(); size += 1 + size % 5) {
    const auto text = std::span(all).first(size);
    if (size <= warm) before = allocations();
    for (TokenTree& tree : trees) tree.clear();
    const DraftCommit commits[] = {commit_of(1, text), commit_of(2, text)};
    DraftRequest requests[] = {{1, text, 8, &trees[0]}, {2, text, 8, &trees[1]}};
    ASSERT_TRUE(drafter->observe(commits).ok());
    ASSERT_TRUE(drafter->propose(requests).ok());
    proposed += trees[0].size() + trees[1].size();
  }
  EXPECT_EQ(allocations() - before, 0);
  EXPECT_GT(proposed, 1000);
}

TEST(Ngram, AllocatesNothingAfterOpen) {
  expect_no_allocations(1, 0);
}

TEST(Ngram, TreesAllocateNothingOnceWarm) {
  expect_no_allocations(4, 1000);
}

struct Cost {
  double probes = 0;
  double microseconds = 0;
};

// What one more token and one look cost on average once the text has `length` tokens.
Cost cost_at(int length, int alphabet) {
  constexpr int kRounds = 2000;
  std::mt19937 random(6);
  const Tokens all = random_tokens(random, length + kRounds, alphabet);
  NgramIndex index(1, 3, length + kRounds);
  index.extend(std::span(all).first(static_cast<size_t>(length)));
  const int64_t before = index.probes();
  const auto start = std::chrono::steady_clock::now();
  for (int round = 1; round <= kRounds; ++round) {
    const auto text = std::span(all).first(static_cast<size_t>(length + round));
    index.extend(text);
    EXPECT_LT(index.find(text), length + round);
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return {static_cast<double>(index.probes() - before) / kRounds, took.count() / kRounds};
}

TEST(Ngram, CostDoesNotDependOnTheLengthOfTheText) {
  for (const int alphabet : {2, 50, 49152}) {
    const Cost at_1k = cost_at(1024, alphabet);
    const Cost at_32k = cost_at(32768, alphabet);
    std::printf("alphabet %d: %.2f probes, %.3f us a round at 1k tokens; %.2f, %.3f at 32k\n",
                alphabet, at_1k.probes, at_1k.microseconds, at_32k.probes, at_32k.microseconds);
    // Three n, one insertion and one look each; tables at most half full.
    EXPECT_LT(at_1k.probes, 6 * 2.0);
    EXPECT_LT(at_32k.probes, 6 * 2.0);
  }
}

}  // namespace aerie::ngram_test
