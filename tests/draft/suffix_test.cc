#include "draft/lookup/suffix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/testing/allocation_counter.h"

namespace aerie::suffix_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Tokens = std::vector<int32_t>;

std::unique_ptr<Drafter> make(const SuffixOptions& options) {
  auto drafter = make_suffix_drafter(options);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(drafter).value();
}

void open(Drafter& drafter, SequenceId id, int max_tokens = 1000) {
  DraftSequence sequence;
  sequence.id = id;
  sequence.max_tokens = max_tokens;
  ASSERT_TRUE(drafter.open(sequence).ok());
}

void observe(Drafter& drafter, SequenceId id, std::span<const int32_t> text, int first, int rows) {
  DraftCommit commit;
  commit.id = id;
  commit.tokens = text;
  commit.first = first;
  commit.rows = rows;
  ASSERT_TRUE(drafter.observe({&commit, 1}).ok());
}

TokenTree propose(Drafter& drafter, SequenceId id, std::span<const int32_t> text,
                  int max_nodes = 1000) {
  TokenTree tree;
  DraftRequest request{.id = id, .tokens = text, .max_nodes = max_nodes, .tree = &tree};
  EXPECT_TRUE(drafter.propose({&request, 1}).ok());
  for (const TokenTree::Node& node : tree.nodes) {
    EXPECT_EQ(node.proposal, nullptr);
    EXPECT_GT(node.probability, 0.0f);
    EXPECT_LE(node.probability,
              node.parent < 0 ? 1.0f : tree.nodes[static_cast<size_t>(node.parent)].probability);
  }
  return tree;
}

Tokens tokens_of(const TokenTree& tree) {
  EXPECT_TRUE(tree.is_chain());
  Tokens tokens;
  for (const TokenTree::Node& node : tree.nodes) tokens.push_back(node.token);
  return tokens;
}

// A prompt is read, a draft made, and the sequence closed once its output is complete.
void talk(Drafter& drafter, SequenceId id, const Tokens& prompt, const Tokens& output) {
  open(drafter, id);
  Tokens text = prompt;
  observe(drafter, id, text, 0, static_cast<int>(prompt.size()));
  propose(drafter, id, text);
  text.insert(text.end(), output.begin(), output.end());
  observe(drafter, id, text, static_cast<int>(prompt.size()), static_cast<int>(output.size()));
  drafter.close(id);
}

// The draft for a prompt, of which nothing is remembered.
Tokens draft_for(Drafter& drafter, const Tokens& text) {
  open(drafter, 77);
  observe(drafter, 77, text, 0, static_cast<int>(text.size()));
  Tokens tokens = tokens_of(propose(drafter, 77, text));
  drafter.close(77);
  return tokens;
}

TEST(Suffix, FollowsTheMostFrequentTokens) {
  const auto drafter = make({.max_depth = 8});
  open(*drafter, 1);
  // 1 2 goes on with 3 4 twice and with 5 once.
  const Tokens text = {1, 2, 3, 4, 9, 1, 2, 5, 8, 1, 2, 3, 4, 7, 1, 2};
  const TokenTree tree = propose(*drafter, 1, text);
  EXPECT_THAT(tokens_of(tree), ElementsAre(3, 4));
  // After r tokens that agree the next is right in r of r + 2 cases.
  EXPECT_FLOAT_EQ(tree.nodes[0].probability, 2.0f / 3 * 2 / 4);
  EXPECT_FLOAT_EQ(tree.nodes[1].probability, 2.0f / 3 * 2 / 4 * 3 / 5);
  EXPECT_THAT(tokens_of(propose(*drafter, 1, text, 1)), ElementsAre(3));
  EXPECT_THAT(tokens_of(propose(*drafter, 1, text, 0)), IsEmpty());
}

TEST(Suffix, ALongerMatchMakesALongerDraft) {
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3};
  for (const double factor : {0.0, 0.5, 1.0, 2.0}) {
    const auto drafter = make({.factor = factor});
    open(*drafter, 1);
    EXPECT_EQ(propose(*drafter, 1, text).size(), static_cast<int>(3 * factor)) << factor;
    const auto more = make({.factor = factor, .offset = 1.0});
    open(*more, 1);
    EXPECT_EQ(propose(*more, 1, text).size(), static_cast<int>(3 * factor) + 1) << factor;
  }
}

TEST(Suffix, KnowsPastOutputsButNotTheirPrompts) {
  const auto drafter = make({.offset = 3.0});
  talk(*drafter, 1, {50, 51, 52, 53}, {10, 11, 12, 13, 14});
  EXPECT_THAT(draft_for(*drafter, {7, 10, 11}), ElementsAre(12, 13, 14));
  EXPECT_THAT(draft_for(*drafter, {7, 50, 51}), IsEmpty());
  // What the sequence itself says comes first, if it is as good.
  EXPECT_THAT(draft_for(*drafter, {12, 99, 12}), ElementsAre(99, 12));
  EXPECT_THAT(draft_for(*drafter, {11, 99, 11}), ElementsAre(12, 13, 14));
  const auto forgetful = make({.offset = 3.0, .cached_tokens = 0});
  talk(*forgetful, 1, {50, 51, 52, 53}, {10, 11, 12, 13, 14});
  EXPECT_THAT(draft_for(*forgetful, {7, 10, 11}), IsEmpty());
}

TEST(Suffix, ForgetsTheOldestOutputs) {
  const auto drafter = make({.offset = 3.0, .cached_tokens = 10});
  talk(*drafter, 1, {0}, {10, 11, 12, 13, 14});
  talk(*drafter, 2, {0}, {20, 21, 22, 23, 24});
  EXPECT_THAT(draft_for(*drafter, {10}), ElementsAre(11, 12, 13, 14));
  talk(*drafter, 3, {0}, {30, 31});
  EXPECT_THAT(draft_for(*drafter, {10}), IsEmpty());
  EXPECT_THAT(draft_for(*drafter, {20}), ElementsAre(21, 22, 23, 24));
  EXPECT_THAT(draft_for(*drafter, {30}), ElementsAre(31));
  // Of an output that is too long the end is kept.
  Tokens longer;
  for (int32_t token = 100; token < 115; ++token) longer.push_back(token);
  talk(*drafter, 4, {0}, longer);
  EXPECT_THAT(draft_for(*drafter, {20}), IsEmpty());
  EXPECT_THAT(draft_for(*drafter, {104}), IsEmpty());
  EXPECT_THAT(draft_for(*drafter, {105}), ElementsAre(106, 107, 108, 109));
}

struct Found {
  Tokens path;
  double probability;
};

// What suffix.h promises, by going through all texts for every token.
class ByHand {
 public:
  explicit ByHand(const SuffixOptions& options) : options_(options) {}

  void remember(Tokens output) {
    const auto most = static_cast<size_t>(options_.cached_tokens);
    if (output.size() > most) output.erase(output.begin(), output.end() - options_.cached_tokens);
    if (output.empty()) return;
    size_t size = output.size();
    for (const Tokens& text : past_) size += text.size();
    for (; size > most; past_.pop_front()) size -= past_.front().size();
    past_.push_back(std::move(output));
  }

  std::vector<Found> draft(const Tokens& text, int max_nodes) const {
    std::vector<Found> best;
    double best_score = 0;
    for (int m = std::min<int>(options_.max_depth - 1, static_cast<int>(text.size())); m > 0; --m) {
      const auto budget = static_cast<size_t>(
          std::max(0.0, std::min<double>(std::min(options_.num_tokens, max_nodes),
                                         options_.factor * m + options_.offset + 1e-6)));
      for (const std::deque<Tokens>& texts : {std::deque<Tokens>{text}, past_}) {
        const auto found = grow(texts, {text.end() - m, text.end()}, budget);
        double score = 0;
        for (const Found& node : found) score += node.probability;
        if (score <= best_score) continue;
        best_score = score;
        best = found;
        for (Found& node : best) {
          for (size_t i = 0; i < node.path.size(); ++i) {
            const double agree = m + static_cast<double>(i);
            node.probability *= agree / (agree + 2);
          }
        }
      }
    }
    return best;
  }

 private:
  struct Next {
    int count = 0;
    size_t latest = 0;
  };
  struct Child {
    int32_t token;
    double share;
    size_t latest;
  };

  std::vector<Child> children(const std::deque<Tokens>& texts, const Tokens& string,
                              double least) const {
    std::map<int32_t, Next> found;
    size_t moment = 0;
    int total = 0;
    const auto length = static_cast<std::ptrdiff_t>(string.size());
    for (const Tokens& text : texts) {
      for (auto end = text.begin(); end != text.end(); ++end, ++moment) {
        if (end - text.begin() < length) continue;
        if (!std::equal(string.begin(), string.end(), end - length)) continue;
        Next& next = found[*end];
        ++next.count, ++total, next.latest = moment;
      }
    }
    std::vector<Child> order;
    if (length == options_.max_depth) return order;
    for (const auto& [token, next] : found) {
      const double share = static_cast<double>(next.count) / total;
      if (share >= least) order.push_back({token, share, next.latest});
    }
    std::ranges::sort(order, [](const Child& a, const Child& b) {
      return a.share != b.share ? a.share > b.share : a.latest > b.latest;
    });
    return order;
  }

  std::vector<Found> grow(const std::deque<Tokens>& texts, const Tokens& suffix,
                          size_t budget) const {
    std::vector<Found> nodes;
    std::vector<Found> offers = {{{}, 1.0}};
    // The empty path only stands for the root.
    while (!offers.empty() && nodes.size() < budget + 1) {
      const auto best = std::ranges::max_element(
          offers, [](const Found& a, const Found& b) { return a.probability < b.probability; });
      const Found node = *best;
      offers.erase(best);
      if (!options_.tree) offers.clear();
      nodes.push_back(node);
      Tokens string = suffix;
      string.insert(string.end(), node.path.begin(), node.path.end());
      for (const Child& child :
           children(texts, string, options_.min_probability / node.probability)) {
        offers.push_back({node.path, node.probability * child.share});
        offers.back().path.push_back(child.token);
      }
    }
    nodes.erase(nodes.begin());
    return nodes;
  }

  SuffixOptions options_;
  std::deque<Tokens> past_;
};

std::vector<Found> paths_of(const TokenTree& tree) {
  std::vector<Found> paths;
  for (const TokenTree::Node& node : tree.nodes) {
    paths.push_back(node.parent < 0 ? Found{} : paths[static_cast<size_t>(node.parent)]);
    paths.back().path.push_back(node.token);
    paths.back().probability = static_cast<double>(node.probability);
  }
  return paths;
}

SuffixOptions random_options(std::mt19937& random, bool tree) {
  SuffixOptions options;
  options.num_tokens = 1 + static_cast<int>(random() % 8);
  options.max_depth = 2 + static_cast<int>(random() % 9);
  options.factor = 0.5 * static_cast<double>(random() % 5);
  options.offset = static_cast<double>(random() % 4) - 1.0;
  options.min_probability = random() % 2 == 0 ? 0.1 : 0.35;
  options.cached_tokens = static_cast<int>(random() % 60);
  options.tree = tree;
  return options;
}

// A few sequences after one another, each with rounds of several tokens; some are two at a time.
void check_sequences(std::mt19937& random, bool tree, int64_t& proposed, int64_t& branched) {
  const SuffixOptions options = random_options(random, tree);
  const auto alphabet = 2 + random() % 6;
  const auto drafter = make(options);
  ByHand hand(options);
  struct Talk {
    SequenceId id;
    size_t prompt;
    Tokens text;
  };
  std::deque<Talk> talks;
  for (SequenceId id = 0; id < 8; ++id) {
    talks.push_back({id, 1 + random() % 10, {}});
    open(*drafter, id);
    while (talks.back().text.size() < talks.back().prompt) {
      talks.back().text.push_back(static_cast<int32_t>(random() % alphabet));
    }
    observe(*drafter, id, talks.back().text, 0, static_cast<int>(talks.back().prompt));
    for (Talk& talk : talks) {
      for (int round = 0; round < 4; ++round) {
        const int max_nodes = static_cast<int>(random() % 10);
        const TokenTree draft = propose(*drafter, talk.id, talk.text, max_nodes);
        const auto found = paths_of(draft);
        const auto expected = hand.draft(talk.text, max_nodes);
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          ASSERT_EQ(found[i].path, expected[i].path);
          ASSERT_FLOAT_EQ(static_cast<float>(found[i].probability),
                          static_cast<float>(expected[i].probability));
        }
        proposed += draft.size();
        branched += draft.is_chain() ? 0 : 1;
        const int first = static_cast<int>(talk.text.size());
        const int rows = 1 + static_cast<int>(random() % 4);
        for (int i = 0; i < rows; ++i) {
          talk.text.push_back(static_cast<int32_t>(random() % alphabet));
        }
        if (random() % 2 == 0) observe(*drafter, talk.id, talk.text, first, rows);
      }
    }
    if (talks.size() < 2) continue;
    Talk& oldest = talks.front();
    observe(*drafter, oldest.id, oldest.text, static_cast<int>(oldest.text.size()), 0);
    drafter->close(oldest.id);
    hand.remember(
        {oldest.text.begin() + static_cast<std::ptrdiff_t>(oldest.prompt), oldest.text.end()});
    talks.pop_front();
  }
}

TEST(Suffix, EqualsBruteForce) {
  for (const bool tree : {false, true}) {
    std::mt19937 random(1);
    int64_t proposed = 0, branched = 0;
    for (int repeat = 0; repeat < 150; ++repeat) {
      check_sequences(random, tree, proposed, branched);
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(proposed, 10000);
    EXPECT_EQ(branched > 500, tree) << branched;
  }
}

TEST(Suffix, AllocatesNothingOnceWarm) {
  for (const bool tree : {false, true}) {
    std::mt19937 random(5);
    Tokens all(2000);
    for (int32_t& token : all) token = static_cast<int32_t>(random() % 6);
    const auto drafter = make({.offset = 4.0, .tree = tree});
    talk(*drafter, 1, {0}, {all.begin() + 100, all.begin() + 900});
    open(*drafter, 2, 2000);
    TokenTree out;
    out.nodes.reserve(16);
    int64_t before = allocations();
    int64_t proposed = 0;
    for (size_t size = 1; size <= all.size(); size += 1 + size % 5) {
      if (size < 1000) before = allocations();
      const auto text = std::span(all).first(size);
      out.clear();
      DraftCommit commit;
      commit.id = 2;
      commit.tokens = text;
      ASSERT_TRUE(drafter->observe({&commit, 1}).ok());
      DraftRequest request{2, text, 16, &out};
      ASSERT_TRUE(drafter->propose({&request, 1}).ok());
      proposed += out.size();
    }
    EXPECT_EQ(allocations() - before, 0);
    EXPECT_GT(proposed, 1000);
  }
}

void expect_invalid(const SuffixOptions& options, const std::string& part) {
  const Status status = make_suffix_drafter(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(Suffix, WrongUseIsAStatus) {
  expect_invalid({.num_tokens = 0}, "num_tokens");
  expect_invalid({.max_depth = 1}, "max_depth");
  expect_invalid({.max_depth = 257}, "max_depth");
  expect_invalid({.factor = -1}, "factor");
  expect_invalid({.offset = 1e9}, "offset");
  expect_invalid({.min_probability = 0}, "min_probability");
  expect_invalid({.min_probability = 1.5}, "min_probability");
  expect_invalid({.cached_tokens = -1}, "cached_tokens");
  const auto drafter = make({});
  TokenTree tree;
  const Tokens text = {1};
  DraftRequest request{3, text, 4, &tree};
  EXPECT_THAT(drafter->propose({&request, 1}).message(),
              HasSubstr("suffix drafter: sequence 3 is not open"));
  drafter->close(3);
  EXPECT_EQ(drafter->method(), "suffix");
  EXPECT_TRUE(drafter->needs().tap_layers.empty());
}

}  // namespace aerie::suffix_test
