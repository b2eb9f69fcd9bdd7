// What a head is fed: behind every sequence of target passes and drafts exactly the rows of the
// target's features, each with the token behind its position, none missing, none twice, none of a
// draft. A head that remembers what lies in every slot of its cache says so.
#include "draft/heads/feature_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "draft/network/network_drafter.h"
#include "tests/draft/heads/remembering_head.h"

namespace aerie::test::feature_network_test {

constexpr int kLength = 500;  // of a text

// A text that the target writes.
struct Text {
  int id = 0;
  std::vector<int32_t> tokens;
  int known = 0;      // tokens
  int committed = 0;  // positions in the target's cache
  int first = 0;      // that the head has read

  std::span<const int32_t> known_tokens() const {
    return std::span(tokens).first(static_cast<size_t>(known));
  }
};

Text make_text(int id) {
  Text text;
  text.id = id;
  std::mt19937 random(static_cast<unsigned>(id));
  for (int i = 0; i < kLength; ++i) {
    text.tokens.push_back(static_cast<int32_t>(random() % kVocab));
  }
  return text;
}

// A target pass over the next `rows` positions, with `known` tokens known behind it.
struct Pass {
  Pass(Text& text, int rows, int known) {
    for (int i = 0; i < rows; ++i) {
      const std::vector<float> features = features_at(text.id, text.committed + i);
      taps.insert(taps.end(), features.begin(), features.end());
    }
    text.known = known;
    commit.id = static_cast<SequenceId>(text.id);
    commit.tokens = text.known_tokens();
    commit.first = text.committed;
    commit.rows = rows;
    commit.taps = taps;
    text.committed += rows;
  }
  std::vector<float> taps;
  DraftCommit commit;
};

NetworkDrafterOptions options_of(int num_tokens, int num_steps, int top_k) {
  NetworkDrafterOptions options;
  options.method = "remembering";
  options.num_tokens = num_tokens;
  options.num_steps = num_steps;
  options.top_k = top_k;
  options.vocab = kVocab;
  options.max_sequences = 3;
  options.max_rows = 24;
  options.max_logits = 12;
  return options;
}

class FeatureNetworkTest : public testing::Test {
 protected:
  void make(const HeadShape& shape, const NetworkDrafterOptions& options) {
    shape_ = shape;
    options_ = options;
    network_ = new_network(shape, options);
    texts_.assign(static_cast<size_t>(options.max_sequences), {});
  }
  std::unique_ptr<DraftNetwork> new_network(const HeadShape& shape,
                                            const NetworkDrafterOptions& options) {
    FeatureNetworkOptions all;
    all.drafter = options;
    all.max_positions = kLength;
    auto network = make_feature_network(std::make_unique<RememberingHead>(shape, log_), all);
    EXPECT_TRUE(network.ok()) << network.status().message();
    return std::move(*network);
  }

  Text& text(int place) { return texts_[static_cast<size_t>(place)]; }
  void open(int place, int id) {
    text(place) = make_text(id);
    DraftSequence sequence;
    sequence.id = static_cast<SequenceId>(id);
    sequence.max_tokens = kLength;
    ASSERT_TRUE(network_->open(place, sequence).ok());
  }
  void pass(int place, int rows, int known, std::span<const int32_t> path = {}) {
    const Pass pass(text(place), rows, known);
    network_->observe(place, pass.commit, path);
    EXPECT_TRUE(network_->in_step(place, pass.commit));
    check_read(place);
  }
  // A prompt in chunks, and the first token behind it.
  void prompt(int place, int tokens, int chunk) {
    for (int at = 0; at < tokens; at += chunk) {
      const int rows = std::min(chunk, tokens - at);
      pass(place, rows, at + rows == tokens ? tokens + 1 : tokens);
    }
  }
  // A round without a draft of this network's.
  void round(int place, int accepted) {
    pass(place, 1 + accepted, text(place).known + 1 + accepted);
  }

  // A round whose rows are the first that the head knows of.
  void begin_anew(int place, int rows) {
    const int first = text(place).committed;
    text(place).first = log_.first_of[text(place).id] = log_.rows_of[text(place).id] = first;
    pass(place, rows, text(place).known + rows);
    EXPECT_FALSE(network_->will_share(place) && shape_.layers > 0);
  }

  // Each position that can be read was, once, or waits.
  void check_read(int place) {
    const int read = log_.rows_of[text(place).id];
    EXPECT_LE(read, text(place).committed);
    if (shape_.layers > 0) {
      EXPECT_LE(text(place).committed - read, kHeadSharedRows);
    } else {
      EXPECT_EQ(network_->root_rows(place), 1 + shape_.mask_rows);
    }
  }

  // Of the row at position known - 2.
  Hash expected_root(int place) const {
    const Text& text = texts_[static_cast<size_t>(place)];
    Hash hash = 0;
    for (int p = shape_.layers > 0 ? text.first : text.known - 2; p <= text.known - 2; ++p) {
      hash = hash_of(hash, features_at(text.id, p), text.tokens[static_cast<size_t>(p) + 1]);
    }
    return hash;
  }
  static void expect_logits(std::span<const float> actual, Hash hash, int output = 0) {
    std::vector<float> expected(kVocab);
    write_logits(mixed(hash, static_cast<Hash>(output)), expected);
    EXPECT_TRUE(std::ranges::equal(actual, expected));
  }

  // Drafts for all of `places` together and commits: the i-th's draft is right for accepted[i]
  // levels.
  void draft(const std::vector<int>& places, const std::vector<int>& accepted);

  HeadShape shape_;
  NetworkDrafterOptions options_;
  HeadLog log_;
  std::unique_ptr<DraftNetwork> network_;
  std::vector<Text> texts_;

 private:
  struct Growing {
    int place = 0;
    int accepted = 0;
    LevelTree tree;
    std::vector<Hash> hashes;   // [node], of those that were run
    std::vector<int32_t> path;  // the right ones
    Hash root = 0;

    int depth_of(int32_t node) const {
      return node < 0 ? 0 : tree.nodes()[static_cast<size_t>(node)].depth;
    }
  };
  void add(Growing& growing);
  size_t take(Growing& growing, const DraftOutputs& outputs, size_t row);
};

void FeatureNetworkTest::add(Growing& growing) {
  for (const int32_t node : growing.tree.frontier()) {
    if (node < 0) {
      network_->add_root(growing.place);
    } else {
      network_->add_node(growing.place, growing.tree, node);
    }
  }
}

// Checks what came of the frontier and grows it: a likely child and an unlikely one, of which one
// is right as long as the draft is to be.
size_t FeatureNetworkTest::take(Growing& growing, const DraftOutputs& outputs, size_t row) {
  const Text& text = this->text(growing.place);
  for (const int32_t node : growing.tree.frontier()) {
    Hash hash = growing.root;
    if (node >= 0) {
      const LevelTree::Node& info = growing.tree.nodes()[static_cast<size_t>(node)];
      const Hash parent =
          info.parent < 0 ? growing.root : growing.hashes[static_cast<size_t>(info.parent)];
      hash = mixed(parent, static_cast<Hash>(info.token));
      growing.hashes.resize(growing.tree.nodes().size());
      growing.hashes[static_cast<size_t>(node)] = hash;
    }
    expect_logits(outputs.logits_of(static_cast<int>(row++)), hash);
    const int depth = growing.depth_of(node);
    const int32_t right = text.tokens[static_cast<size_t>(text.known + depth)];
    const bool on_path = node < 0 || (!growing.path.empty() && growing.path.back() == node);
    const bool is_right = on_path && depth < growing.accepted;
    // The right one is now the first, now the second.
    const bool second = is_right && options_.top_k > 1 && text.known % 2 == 1;
    const double scale = on_path ? 1.0 : 0.001;
    std::vector<LevelTree::Child> children = {{(right + 1) % kVocab, 0.6 * scale},
                                              {(right + 2) % kVocab, 0.4 * scale}};
    if (is_right) children[second ? 1 : 0].token = right;
    growing.tree.expand(node, children);
  }
  return row;
}

void FeatureNetworkTest::draft(const std::vector<int>& places, const std::vector<int>& accepted) {
  std::vector<Growing> all(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    Growing& growing = all[i];
    growing.place = places[i];
    growing.accepted = accepted[i];
    growing.root = expected_root(places[i]);
    LevelLimits limits;
    limits.max_nodes = kLength;  // every level is run
    limits.max_depth = network_->start(places[i], text(places[i]).known_tokens(),
                                       most_nodes_run(options_), draft_depth(options_));
    ASSERT_EQ(limits.max_depth, draft_depth(options_));
    limits.top_k = options_.top_k;
    growing.tree.start(limits);
  }
  for (bool goes_on = true; goes_on;) {
    for (Growing& growing : all) add(growing);
    const DraftOutputs outputs = network_->run();
    size_t row = 0;
    goes_on = false;
    for (Growing& growing : all) {
      const Text& text = this->text(growing.place);
      const int32_t end = growing.path.empty() ? -1 : growing.path.back();
      row = take(growing, outputs, row);
      const auto next = static_cast<size_t>(text.known) + growing.path.size();
      const int32_t child = growing.tree.find_child(end, text.tokens[next]);
      if (child >= 0) growing.path.push_back(child);
      growing.tree.advance();
      goes_on |= !growing.tree.frontier().empty();
    }
    EXPECT_EQ(outputs.logits.size(), row * kVocab);
  }
  for (const Growing& growing : all) {
    ASSERT_EQ(static_cast<int>(growing.path.size()), growing.accepted);
    if (shape_.layers > 0) {
      EXPECT_EQ(log_.rows_of[text(growing.place).id], text(growing.place).committed)
          << "positions that the draft did not rest on";
    }
    const int rows = 1 + growing.accepted;
    pass(growing.place, rows, text(growing.place).known + rows, growing.path);
  }
}

TEST_F(FeatureNetworkTest, ReadsPromptsInChunksOfAllSizes) {
  make({}, options_of(4, 4, 1));
  for (const int tokens : {1, 2, 15, 16, 17, 18, 24, 25, 60}) {
    for (int chunk = 1; chunk <= tokens; ++chunk) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens in chunks of " << chunk);
      open(0, tokens * 100 + chunk);
      prompt(0, tokens, chunk);
      draft({0}, {2});
      draft({0}, {0});
      network_->close(0);
    }
  }
  EXPECT_LE(log_.most_rows, options_.max_rows);
}

TEST_F(FeatureNetworkTest, RoundsOfEveryAcceptedLengthInAnyOrder) {
  constexpr int kDepth = 5;
  for (const int top_k : {1, 2}) {
    make({.layers = 2}, options_of(kDepth * top_k, kDepth, top_k));
    open(0, 1);
    prompt(0, 20, 7);
    for (int first = 0; first <= kDepth; ++first) {
      for (int second = 0; second <= kDepth; ++second) {
        SCOPED_TRACE(testing::Message() << first << ", then " << second);
        draft({0}, {first});
        draft({0}, {second});
      }
    }
    log_ = {};
  }
}

TEST_F(FeatureNetworkTest, LongRunsOfAcceptedAndOfRefusedDrafts) {
  make({}, options_of(6, 6, 1));
  open(0, 1);
  prompt(0, 30, 30);
  for (int i = 0; i < 20; ++i) draft({0}, {6});
  for (int i = 0; i < 60; ++i) draft({0}, {0});
  for (int i = 0; i < 10; ++i) draft({0}, {i % 2 * 6});
}

TEST_F(FeatureNetworkTest, DraftsLeftOutForManyRounds) {
  for (const HeadShape& shape : {HeadShape{}, HeadShape{.layers = 0}}) {
    make(shape, options_of(4, 4, 1));
    open(0, 1);
    prompt(0, 10, 10);
    for (const int rounds : {0, 1, 2, 7, 14, 15, 16, 17, 40}) {
      for (const int accepted : {0, 3}) {
        SCOPED_TRACE(testing::Message() << rounds << " rounds of " << accepted << " left out");
        for (int i = 0; i < rounds && text(0).known + 100 < kLength; ++i) round(0, accepted);
        draft({0}, {1});
      }
    }
    // Of a draft of another drafter's that is longer than what can wait.
    round(0, 18);
    draft({0}, {1});
    log_ = {};
  }
}

TEST_F(FeatureNetworkTest, SequencesInOneBatchDoNotMix) {
  make({}, options_of(6, 3, 2));
  open(0, 1);
  open(1, 2);
  prompt(0, 33, 16);
  prompt(1, 5, 5);
  draft({0, 1}, {3, 0});
  open(2, 3);
  prompt(2, 1, 1);
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(testing::Message() << "round " << i);
    draft({0, 1, 2}, {i % 4, (i + 1) % 4, (i / 2) % 4});
    if (i % 3 == 0) {
      // One that is left out while others draft, and one that comes in another order.
      round(1, 2);
      draft({2, 0}, {1, 2});
    }
  }
}

TEST_F(FeatureNetworkTest, PlacesAreUsedAnew) {
  make({}, options_of(6, 3, 2));
  for (int i = 0; i < 12; ++i) {
    const int place = i % 3;
    if (i >= 3) network_->close(place);
    open(place, 10 + i);
    prompt(place, 3 + 17 * (i % 4), 1 + 5 * (i % 5));
    std::vector<int> places, accepted;
    for (int p = 0; p <= std::min(i, 2); ++p) {
      places.push_back(p);
      accepted.push_back((i + p) % 4);
    }
    draft(places, accepted);
    draft({place}, {3});
  }
}

// All depths of a draft in one pass, from rows of masks behind the committed ones.
TEST_F(FeatureNetworkTest, MaskRowsAreForgotten) {
  constexpr int kDepths = 4;
  make({.mask_rows = kDepths - 1}, options_of(4, 4, 1));
  ASSERT_EQ(network_->depths(), kDepths);
  open(0, 1);
  open(1, 2);
  prompt(0, 30, 12);
  prompt(1, 2, 1);
  for (int i = 0; i < 30; ++i) {
    SCOPED_TRACE(testing::Message() << "round " << i);
    for (const int place : {0, 1}) {
      EXPECT_EQ(network_->start(place, text(place).known_tokens(), 4, 4), kDepths);
    }
    for (const int place : {0, 1}) network_->add_root(place);
    const DraftOutputs outputs = network_->run();
    ASSERT_EQ(outputs.logits.size(), static_cast<size_t>(2 * kDepths * kVocab));
    for (const int place : {0, 1}) {
      Hash hash = expected_root(place);
      for (int depth = 0; depth < kDepths; ++depth) {
        if (depth > 0) hash = hash_of(hash, std::vector<float>(kWidth, 5.0f), kMaskToken);
        expect_logits(outputs.logits_of(place * kDepths + depth), hash);
      }
      round(place, (i + place) % 5);
      if (i % 7 == 6) round(place, 0);
    }
  }
}

// It reads the last position alone.
TEST_F(FeatureNetworkTest, AHeadWithoutLayersReadsOneRowOfADraft) {
  make({.layers = 0, .outputs_of_root = 3}, options_of(3, 3, 1));
  ASSERT_EQ(network_->depths(), 3);
  open(0, 1);
  prompt(0, 50, 20);
  EXPECT_EQ(log_.passes, 0);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(network_->start(0, text(0).known_tokens(), 3, 3), 3);
    EXPECT_EQ(network_->root_rows(0), 1);
    network_->add_root(0);
    const DraftOutputs outputs = network_->run();
    ASSERT_EQ(outputs.logits.size(), static_cast<size_t>(3 * kVocab));
    for (int d = 0; d < 3; ++d) expect_logits(outputs.logits_of(d), expected_root(0), d);
    round(0, i % 4);
  }
  EXPECT_EQ(log_.passes, 20);
  EXPECT_EQ(log_.most_rows, 1);
}

TEST_F(FeatureNetworkTest, AHeadWithoutLayersHandsItsStateDownTheTree) {
  make({.layers = 0}, options_of(6, 3, 2));
  open(0, 1);
  open(1, 2);
  prompt(0, 9, 4);
  prompt(1, 40, 40);
  for (int i = 0; i < 12; ++i) draft({0, 1}, {i % 4, (i + 2) % 4});
}

// After a pass that was missed, a head begins anew with what comes; others are left alone.
TEST_F(FeatureNetworkTest, ASequenceThatMissedAPassBeginsAnew) {
  make({}, options_of(4, 4, 1));
  const auto starts = [&](int place) {
    return network_->start(place, text(place).known_tokens(), 4, 4);
  };
  for (const bool taps_missing : {false, true}) {
    open(0, 1);
    open(1, 2);
    prompt(0, 12, 12);
    prompt(1, 12, 12);
    EXPECT_EQ(starts(0), 4);
    Pass missed(text(0), 2, text(0).known + 2);
    if (taps_missing) {
      missed.commit.taps = {};
      network_->observe(0, missed.commit, {});
      EXPECT_EQ(starts(0), 0);
    }
    begin_anew(0, 1);
    draft({1, 0}, {2, 3});
    draft({0}, {0});
    network_->close(0);
    network_->close(1);
    log_ = {};
  }
}

// Of sequences for which there is no room together, one drafts once another has ended.
TEST_F(FeatureNetworkTest, DraftsOnceThereIsRoom) {
  NetworkDrafterOptions options = options_of(4, 4, 1);
  options.cache_positions = 1;
  for (const HeadShape& shape : {HeadShape{}, HeadShape{.layers = 0}}) {
    make(shape, options);
    open(0, 1);
    prompt(0, 450, 24);
    draft({0}, {2});
    open(2, 3);
    prompt(2, 60, 24);
    open(1, 2);
    const auto starts = [&] { return network_->start(1, text(1).known_tokens(), 4, 4); };
    const Pass prompt_pass(text(1), 300, 301);
    network_->observe(1, prompt_pass.commit, {});
    EXPECT_EQ(starts(), 0);
    const Pass next(text(1), 1, 302);
    network_->observe(1, next.commit, {});
    EXPECT_EQ(starts(), 0);
    draft({0, 2}, {1, 1});
    network_->close(0);
    begin_anew(1, 3);
    for (int i = 0; i < 8; ++i) draft({1, 2}, {i % 5, 1});
    log_ = {};
  }
}

TEST_F(FeatureNetworkTest, SharesWhatItReads) {
  make({.layers = 0}, options_of(4, 4, 1));
  EXPECT_TRUE(network_->will_share(-1));  // it reads nothing
  make({}, options_of(4, 4, 1));
  EXPECT_FALSE(network_->will_share(-1));
  open(0, 1);
  EXPECT_TRUE(network_->will_share(0));
  prompt(0, 12, 12);
  EXPECT_TRUE(network_->will_share(0));
  text(0).committed += 2;
  const Pass next(text(0), 1, text(0).known + 3);
  network_->observe(0, next.commit, {});
  EXPECT_FALSE(network_->will_share(0));
}

// Before the prompt is read, and while tokens are known that the target has not seen.
TEST_F(FeatureNetworkTest, NothingToDraftFromGivesNoDraft) {
  make({}, options_of(4, 4, 1));
  open(0, 1);
  text(0).known = 10;
  EXPECT_EQ(network_->start(0, text(0).known_tokens(), 4, 4), 0);
  pass(0, 4, 10);
  EXPECT_EQ(network_->start(0, text(0).known_tokens(), 4, 4), 0);
  pass(0, 6, 11);
  draft({0}, {4});
}

// The drafter splits what is too much for a pass; trees do not depend on it.
TEST_F(FeatureNetworkTest, PassesKeepToTheirLimits) {
  const auto trees_with = [&](const HeadShape& shape, int max_rows, int max_logits) {
    log_ = {};
    NetworkDrafterOptions options = options_of(8, 4, 3);
    options.max_rows = max_rows;
    options.max_logits = max_logits;
    options.max_sequences = 4;
    const auto drafter = make_network_drafter(new_network(shape, options), options);
    std::vector<Text> texts;
    for (int i = 0; i < 4; ++i) texts.push_back(make_text(i + 1));
    for (Text& text : texts) {
      DraftSequence sequence;
      sequence.id = static_cast<SequenceId>(text.id);
      sequence.max_tokens = kLength;
      EXPECT_TRUE(drafter->open(sequence).ok());
      const int tokens = 10 + 13 * text.id;
      const Pass pass(text, tokens, tokens + 1);
      EXPECT_TRUE(drafter->observe({&pass.commit, 1}).ok());
    }
    std::vector<int32_t> tokens;
    for (int round = 0; round < 12; ++round) {
      std::vector<TokenTree> trees(texts.size());
      std::vector<DraftRequest> requests;
      for (size_t i = 0; i < texts.size(); ++i) {
        requests.push_back({.id = static_cast<SequenceId>(texts[i].id),
                            .tokens = texts[i].known_tokens(),
                            .max_nodes = 8,
                            .tree = &trees[i]});
      }
      EXPECT_TRUE(drafter->propose(requests).ok());
      for (size_t i = 0; i < texts.size(); ++i) {
        EXPECT_GT(trees[i].size(), 0);
        for (const TokenTree::Node& node : trees[i].nodes) {
          tokens.push_back(node.parent);
          tokens.push_back(node.token);
        }
        const int rows = 1 + (round + static_cast<int>(i)) % 6;
        Pass pass(texts[i], rows, texts[i].known + rows);
        EXPECT_TRUE(drafter->observe({&pass.commit, 1}).ok());
      }
    }
    EXPECT_LE(log_.most_rows, max_rows);
    EXPECT_LE(log_.most_wanted * shape.outputs_of_root, max_logits);
    return tokens;
  };
  for (const HeadShape& shape : {HeadShape{}, HeadShape{.mask_rows = 2}, HeadShape{.layers = 0},
                                 HeadShape{.layers = 0, .outputs_of_root = 3}}) {
    const std::vector<int32_t> roomy = trees_with(shape, 200, 64);
    EXPECT_EQ(trees_with(shape, kHeadSharedRows + shape.mask_rows + 1, 3), roomy);
    EXPECT_EQ(trees_with(shape, 25, 4), roomy);
    EXPECT_EQ(trees_with(shape, 40, 7), roomy);
  }
}

// A chain ends behind the first node whose path is too unlikely for another level; a head that
// drafts all levels in one pass saves nothing by it.
TEST_F(FeatureNetworkTest, LevelsThatAreNotWorthTheirTimeAreNotDrafted) {
  constexpr int kDepth = 6;
  for (const bool at_once : {false, true}) {
    const HeadShape shape = at_once ? HeadShape{.mask_rows = kDepth - 1} : HeadShape{};
    const NetworkDrafterOptions options = options_of(kDepth, kDepth, 1);
    const auto drafted = [&](double least_path) {
      log_ = {};
      const auto drafter = make_network_drafter(new_network(shape, options), options);
      EXPECT_EQ(drafter->needs().pays_by_level, !at_once);
      Text text = make_text(1);
      DraftSequence sequence;
      sequence.id = 1;
      sequence.max_tokens = kLength;
      EXPECT_TRUE(drafter->open(sequence).ok());
      const Pass pass(text, 12, 13);
      EXPECT_TRUE(drafter->observe({&pass.commit, 1}).ok());
      TokenTree tree;
      DraftRequest request = {.id = 1,
                              .tokens = text.known_tokens(),
                              .max_nodes = 2 * kDepth,
                              .tree = &tree,
                              .least_path = least_path};
      EXPECT_TRUE(drafter->propose({&request, 1}).ok());
      return tree.nodes;
    };
    const std::vector<TokenTree::Node> all = drafted(0.0);
    ASSERT_EQ(all.size(), size_t{kDepth});
    EXPECT_EQ(drafted(1.0).size(), at_once ? all.size() : 1);
    for (size_t end = 1; end < all.size(); ++end) {
      ASSERT_LT(all[end].probability, all[end - 1].probability);
      const double between = 0.5 * (all[end - 1].probability + all[end].probability);
      const std::vector<TokenTree::Node> some = drafted(between);
      ASSERT_EQ(some.size(), at_once ? all.size() : end + 1);
      for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i].token, all[i].token);
    }
  }
}

}  // namespace aerie::test::feature_network_test
