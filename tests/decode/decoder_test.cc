// The decoder's own contract: what it refuses, what survives an error, what it reports.

#include "decode/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>

#include "base/log.h"
#include "draft/network/draft_model.h"
#include "tests/testing/decoding.h"
#include "tests/testing/test_drafters.h"
#include "tests/testing/tiny_model.h"

namespace aerie::decoder_test {

using test::TinyFile;
using test::TinySpec;
using ::testing::HasSubstr;

const TinyFile& target_file() {
  static const TinyFile file(TinySpec{});
  return file;
}

// A drafter out of a function.
class FunctionDrafter final : public test::TestDrafter {
 public:
  using Propose = std::function<Status(std::span<DraftRequest>)>;
  explicit FunctionDrafter(Propose propose) : propose_(std::move(propose)) {}
  Status propose(std::span<DraftRequest> requests) override { return propose_(requests); }
  Status observe(std::span<const DraftCommit> commits) override {
    for (const DraftCommit& commit : commits) {
      if (hear_) hear_(commit);
    }
    return {};
  }
  void on_commit(std::function<void(const DraftCommit&)> hear) { hear_ = std::move(hear); }

 private:
  Propose propose_;
  std::function<void(const DraftCommit&)> hear_;
};

class DecoderTest : public testing::Test {
 protected:
  DecoderTest() {
    options_.max_positions = 256;
    options_.max_nodes = 8;
    options_.prefill_chunk = 64;
    model_ = target_file().load(test::model_options());
    set_pages(8);
  }

  void set_pages(int pages) {
    cache_ =
        make_cache(*model_, {.positions = pages * kernels::kPagePositions, .sequences = 4}).value();
  }
  std::unique_ptr<Drafter> same_model(int length) {
    DraftModelOptions options;
    options.num_tokens = length;
    options.vocab = model_->config().vocab;
    options.max_positions = options_.max_positions;
    options.max_sequences = 4;
    return std::move(make_draft_model_drafter(target_file().load(test::model_options()), options))
        .value();
  }
  static SequenceOptions sequence_options(int max_tokens, double temperature = 0.8) {
    SequenceOptions options;
    options.max_tokens = max_tokens;
    options.sampling.temperature = temperature;
    options.sampling.seed = 7;
    return options;
  }
  std::vector<int32_t> plain(const std::vector<int32_t>& prompt, const SequenceOptions& options) {
    const ModelCache owned_cache = test::cache_for(*model_, options_, 1);
    KvCache& cache = *owned_cache;
    const test::Request request{prompt, options, 0, nullptr};
    return test::decode(*model_, cache, nullptr, options_, {&request, 1}).of[0].tokens;
  }
  std::string refusal(std::vector<int32_t> prompt, const SequenceOptions& options) {
    Decoder decoder(*model_, *cache_, nullptr, options_);
    const auto sequence = decoder.open(prompt, options);
    return sequence.ok() ? "" : sequence.status().message();
  }

  DecoderOptions options_;
  std::unique_ptr<Model> model_;
  ModelCache cache_;
};

TEST_F(DecoderTest, RefusesWhatItCannotDecode) {
  const SequenceOptions good = sequence_options(4);
  EXPECT_EQ(refusal({1, 2}, good), "");
  EXPECT_THAT(refusal({}, good), HasSubstr("no tokens"));
  EXPECT_THAT(refusal({1, 96}, good), HasSubstr("96"));
  EXPECT_THAT(refusal({-1}, good), HasSubstr("-1"));
  EXPECT_THAT(refusal(std::vector<int32_t>(256, 1), good), HasSubstr("256"));
  EXPECT_EQ(refusal(std::vector<int32_t>(255, 1), good), "");
  EXPECT_THAT(refusal({1}, sequence_options(0)), HasSubstr("max_tokens"));
  EXPECT_THAT(refusal({1}, sequence_options(4, -1.0)), HasSubstr("temperature"));
}

TEST_F(DecoderTest, RefusesMoreSequencesThanThereIsRoomFor) {
  Decoder decoder(*model_, *cache_, nullptr, options_);
  std::vector<std::unique_ptr<Sequence>> open;
  for (int i = 0; i < 4; ++i) {
    auto sequence = decoder.open(std::vector<int32_t>{1}, sequence_options(4));
    ASSERT_TRUE(sequence.ok());
    open.push_back(std::move(*sequence));
  }
  const auto fifth = decoder.open(std::vector<int32_t>{1}, sequence_options(4));
  ASSERT_FALSE(fifth.ok());
  EXPECT_EQ(fifth.status().code(), StatusCode::kResourceExhausted);
  decoder.close(*open[2]);
  EXPECT_TRUE(decoder.open(std::vector<int32_t>{1}, sequence_options(4)).ok());
}

// A drafter that has no room for a sequence leaves nothing behind in the target's cache.
TEST_F(DecoderTest, FailsWhereTheDrafterCannotOpen) {
  DraftModelOptions draft;
  draft.vocab = model_->config().vocab;
  draft.max_positions = options_.max_positions;
  const auto drafter =
      std::move(make_draft_model_drafter(target_file().load(test::model_options()), draft)).value();
  Decoder decoder(*model_, *cache_, drafter.get(), options_);
  const auto first = decoder.open(std::vector<int32_t>{1}, sequence_options(4));
  ASSERT_TRUE(first.ok());
  for (int i = 0; i < 8; ++i) {
    const auto second = decoder.open(std::vector<int32_t>{1}, sequence_options(4));
    ASSERT_FALSE(second.ok());
    EXPECT_THAT(second.status().message(), HasSubstr("all are open"));
  }
}

TEST_F(DecoderTest, RefusesARoundOfMoreThanTheModelTakes) {
  options_.max_logits = 1;
  Decoder decoder(*model_, *cache_, nullptr, options_);
  const auto a = decoder.open(std::vector<int32_t>{1}, sequence_options(4));
  const auto b = decoder.open(std::vector<int32_t>{2}, sequence_options(4));
  ASSERT_TRUE(decoder.prefill(**a).ok() && decoder.prefill(**b).ok());
  Sequence* both[] = {a->get(), b->get()};
  EXPECT_EQ(decoder.round(both).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(decoder.round({both, 1}).ok());
}

TEST_F(DecoderTest, StopsReadingThePromptWhenCancelled) {
  Decoder decoder(*model_, *cache_, nullptr, options_);
  const auto sequence =
      decoder.open(test::random_tokens(1, 200, TinySpec{}.vocab), sequence_options(4));
  ASSERT_TRUE(sequence.ok());
  const std::atomic<bool> cancel = true;
  EXPECT_EQ(decoder.prefill(**sequence, &cancel).code(), StatusCode::kCancelled);
  EXPECT_EQ(decoder.target_passes(), 0);
  decoder.close(**sequence);
  EXPECT_EQ(cache_->free_pages(), 8);
}

// Trees that no honest drafter makes.
std::vector<TokenTree> unsound_trees() {
  std::vector<TokenTree> trees(11);
  trees[0].nodes = {{96, -1, 1, nullptr}};  // no such token
  trees[1].nodes = {{-5, -1, 1, nullptr}};
  trees[2].nodes = {{1, 0, 1, nullptr}};                       // its own parent
  trees[3].nodes = {{1, 1, 2, nullptr}, {1, -1, 1, nullptr}};  // a child before its parent
  trees[4].nodes = {{1, -1, 1, nullptr}, {1, 0, 1, nullptr}};  // a wrong depth
  trees[5].nodes = {{1, -1, 100000, nullptr}};
  trees[6].nodes.assign(9, {1, -1, 1, nullptr});  // more than was asked for
  trees[7].nodes = {{1, -2, 1, nullptr}};
  trees[8].nodes = {{1, -1, 1, nullptr}, {2, -1, 1, nullptr}};
  trees[8].proposals = {{1, nullptr, false}};  // the other one is missing
  trees[9].nodes = {{1, -1, 1, nullptr}};
  trees[9].proposals = {{0, nullptr, false}, {1, nullptr, false}};  // there is no such node
  trees[10].nodes = {{1, -1, 1}, {2, 0, 2}};                        // proposed below what is not
  trees[10].nodes[0].role = NodeRole::kProbe;
  return trees;
}

TEST_F(DecoderTest, LeavesUnsoundDraftsOut) {
  set_log_level(LogLevel::kError);
  const std::vector<int32_t> prompt = test::random_tokens(2, 30, TinySpec{}.vocab);
  const std::vector<int32_t> expected = plain(prompt, sequence_options(20));
  Distribution elsewhere{{2}, {1.0}};
  std::vector<TokenTree> trees = unsound_trees();
  const size_t malformed = trees.size();
  trees.emplace_back().nodes = {{1, -1, 1, &elsewhere}};  // not of its own distribution
  trees.emplace_back().nodes = {{1, -1, 1, nullptr}};
  trees.back().proposals = {{0, nullptr, false}, {0, &elsewhere, false}};
  trees.emplace_back().nodes = {{2, -1, 1, &elsewhere}, {2, -1, 1, &elsewhere, true}};  // used up
  for (size_t i = 0; i < trees.size(); ++i) {
    for (const VerifyRule rule : kVerifyRules) {
      options_.rule = rule;
      FunctionDrafter drafter([&](std::span<DraftRequest> requests) {
        *requests[0].tree = trees[i];
        return Status();
      });
      const test::Request request{prompt, sequence_options(20), 0, nullptr};
      const test::Replies replies =
          test::decode(*model_, *cache_, &drafter, options_, {&request, 1});
      // The exact rule does not care how a node was proposed.
      if (i < malformed || rule != VerifyRule::kExact) {
        EXPECT_EQ(replies.of[0].stats.drafted, 0) << i << ", " << verify_rule_name(rule);
      }
      if (rule == VerifyRule::kExact) {
        EXPECT_EQ(replies.of[0].tokens, expected);
      }
    }
  }
  set_log_level(LogLevel::kWarning);
}

TEST_F(DecoderTest, CutsTreesWhereTheRuleTakesChains) {
  set_log_level(LogLevel::kError);
  options_.rule = VerifyRule::kBlock;
  Distribution q{{1, 2}, {0.5, 0.5}};
  bool drawn = false;
  int depth = 0;
  FunctionDrafter drafter([&](std::span<DraftRequest> requests) {
    if (requests[0].max_nodes < 4) return Status();
    TokenTree& tree = *requests[0].tree;
    tree.add(1, -1, drawn ? &q : nullptr, 0.2f);
    tree.add(2, -1, drawn ? &q : nullptr, 0.7f);
    tree.add(3, 1, nullptr, 0.6f);
    tree.add(4, 0, nullptr, 0.1f);
    return Status();
  });
  drafter.on_commit([&](const DraftCommit& commit) {
    if (commit.tree == nullptr || commit.tree->empty()) return;
    depth = commit.tree->size();
    EXPECT_EQ(commit.tree->nodes[0].token, 2);
    EXPECT_EQ(commit.tree->nodes[1].token, 3);
  });
  const test::Request request{{1, 2, 3}, sequence_options(10), 0, nullptr};
  test::Replies replies = test::decode(*model_, *cache_, &drafter, options_, {&request, 1});
  EXPECT_EQ(replies.of[0].tokens.size(), 10u);
  EXPECT_EQ(depth, 2);
  EXPECT_GT(replies.of[0].stats.drafted, 0);
  // What was drawn must not be chosen from.
  drawn = true;
  replies = test::decode(*model_, *cache_, &drafter, options_, {&request, 1});
  EXPECT_EQ(replies.of[0].stats.drafted, 0);
  set_log_level(LogLevel::kWarning);
}

// A draft that cannot be made ends nothing: the round goes without.
TEST_F(DecoderTest, GoesOnAfterADrafterFailed) {
  const std::vector<int32_t> prompt = test::random_tokens(3, 30, TinySpec{}.vocab);
  const std::vector<int32_t> expected = plain(prompt, sequence_options(30));
  int calls = 0;
  const std::unique_ptr<Drafter> good = same_model(3);
  class Flaky final : public test::TestDrafter {
   public:
    Flaky(Drafter& inner, int& calls) : inner_(inner), calls_(calls) {}
    Status open(const DraftSequence& sequence) override { return inner_.open(sequence); }
    void close(SequenceId id) override { inner_.close(id); }
    Status propose(std::span<DraftRequest> requests) override {
      AERIE_RETURN_IF_ERROR(inner_.propose(requests));
      if (++calls_ % 2 == 0) return {StatusCode::kInternal, "no draft today"};
      return {};
    }
    Status observe(std::span<const DraftCommit> commits) override {
      return inner_.observe(commits);
    }

   private:
    Drafter& inner_;
    int& calls_;
  } flaky(*good, calls);
  Decoder decoder(*model_, *cache_, &flaky, options_);
  const auto sequence = decoder.open(prompt, sequence_options(30));
  ASSERT_TRUE(sequence.ok() && decoder.prefill(**sequence).ok());
  Sequence* batch[] = {sequence->get()};
  while ((*sequence)->finish == FinishReason::kNone) ASSERT_TRUE(decoder.round(batch).ok());
  EXPECT_GT(calls, 4);
  EXPECT_EQ(std::vector<int32_t>((*sequence)->tokens.begin() + 30, (*sequence)->tokens.end()),
            expected);
  EXPECT_EQ((*sequence)->stats.accepted, (*sequence)->stats.drafted);
}

// Two sequences in a cache that is too small for both: the round is refused, and the one that is
// left goes on.
TEST_F(DecoderTest, SurvivesAFullCache) {
  set_pages(3);
  const std::vector<int32_t> prompt = test::random_tokens(4, 60, TinySpec{}.vocab);
  const std::vector<int32_t> expected = plain(prompt, sequence_options(100));
  const std::unique_ptr<Drafter> drafter = same_model(5);
  Decoder decoder(*model_, *cache_, drafter.get(), options_);
  const auto a = decoder.open(prompt, sequence_options(100));
  const auto b = decoder.open(prompt, sequence_options(100));
  ASSERT_TRUE(decoder.prefill(**a).ok() && decoder.prefill(**b).ok());
  Sequence* both[] = {a->get(), b->get()};
  Status status;
  while (status.ok()) status = decoder.round(both);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("cache is full"));
  // Where its drafts no longer fit, a sequence is behind the other, but says the same.
  EXPECT_TRUE(std::equal((*b)->tokens.begin(), (*b)->tokens.end(), (*a)->tokens.begin()));
  EXPECT_EQ(decoder.round(both).code(), StatusCode::kResourceExhausted);
  decoder.close(**b);
  while ((*a)->finish == FinishReason::kNone) {
    const Status alone = decoder.round({both, 1});
    ASSERT_TRUE(alone.ok()) << alone.message();
  }
  EXPECT_EQ(std::vector<int32_t>((*a)->tokens.begin() + 60, (*a)->tokens.end()), expected);
}

// A draft does not take the page without which another sequence cannot go on.
TEST_F(DecoderTest, DraftsYieldToRoots) {
  set_pages(3);
  const std::unique_ptr<Drafter> drafter = same_model(5);
  Decoder decoder(*model_, *cache_, drafter.get(), options_);
  const auto a = decoder.open(test::random_tokens(5, 62, TinySpec{}.vocab), sequence_options(20));
  const auto b = decoder.open(test::random_tokens(6, 64, TinySpec{}.vocab), sequence_options(20));
  ASSERT_TRUE(decoder.prefill(**a).ok() && decoder.prefill(**b).ok());
  // The draft of `a` reaches into the third page; the root of `b` needs it.
  Sequence* both[] = {a->get(), b->get()};
  const Status status = decoder.round(both);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(DecoderTest, LogprobsDoNotDependOnSpeculation) {
  SequenceOptions options = sequence_options(40);
  options.sampling.logprobs = 3;
  const test::Request request{test::random_tokens(7, 20, TinySpec{}.vocab), options, 0, nullptr};
  const auto expected = test::decode(*model_, *cache_, nullptr, options_, {&request, 1}).of[0];
  const std::unique_ptr<Drafter> drafter = same_model(5);
  const auto actual = test::decode(*model_, *cache_, drafter.get(), options_, {&request, 1}).of[0];
  ASSERT_EQ(actual.tokens, expected.tokens);
  for (size_t i = 0; i < expected.emitted.size(); ++i) {
    ASSERT_EQ(actual.emitted[i].logprobs.size(), 4u);
    for (size_t j = 0; j < 4; ++j) {
      EXPECT_EQ(actual.emitted[i].logprobs[j].token, expected.emitted[i].logprobs[j].token);
      EXPECT_EQ(actual.emitted[i].logprobs[j].logprob, expected.emitted[i].logprobs[j].logprob);
    }
  }
}

TEST_F(DecoderTest, SaysHowEachTokenCameAbout) {
  const test::Request request{test::random_tokens(7, 20, TinySpec{}.vocab), sequence_options(50), 0,
                              nullptr};
  const auto plain = test::decode(*model_, *cache_, nullptr, options_, {&request, 1}).of[0];
  for (const EmittedToken& token : plain.emitted) EXPECT_EQ(token.origin, TokenOrigin::kTarget);

  const std::unique_ptr<Drafter> perfect = same_model(6);
  const auto whole = test::decode(*model_, *cache_, perfect.get(), options_, {&request, 1}).of[0];
  ASSERT_EQ(whole.emitted.size(), 50u);  // 1 + 7 rounds of 7
  for (size_t i = 0; i < whole.emitted.size(); ++i) {
    const auto expected = i == 0       ? TokenOrigin::kTarget
                          : i % 7 == 0 ? TokenOrigin::kBonus
                                       : TokenOrigin::kAccepted;
    EXPECT_EQ(whole.emitted[i].origin, expected) << i;
  }
  EXPECT_EQ(whole.stats.proposed_at, (std::vector<int64_t>{7, 7, 7, 7, 7, 7, 0, 0}));
  EXPECT_EQ(whole.stats.accepted_at, whole.stats.proposed_at);
  EXPECT_EQ(whole.stats.acceptance_rate(), 1.0);

  // The first node is wrong, whatever the target says next.
  FunctionDrafter liar([&](std::span<DraftRequest> requests) {
    const size_t next = requests[0].tokens.size() - request.prompt.size();
    requests[0].tree->add((plain.tokens[next] + 1) % TinySpec{}.vocab, -1);
    return Status();
  });
  const auto none = test::decode(*model_, *cache_, &liar, options_, {&request, 1}).of[0];
  EXPECT_EQ(none.tokens, plain.tokens);
  EXPECT_EQ(none.stats.accepted, 0);
  for (size_t i = 1; i + 1 < none.emitted.size(); ++i) {
    EXPECT_EQ(none.emitted[i].origin, TokenOrigin::kCorrection) << i;
  }
}

// Checks every tap that it hears of against what plain decoding's passes have at that position.
class TapReader final : public test::TestDrafter {
 public:
  TapReader(Drafter& inner, std::vector<int32_t> layers) : inner_(inner) {
    needs_.tap_layers = std::move(layers);
  }
  Status open(const DraftSequence& sequence) override { return inner_.open(sequence); }
  void close(SequenceId id) override { inner_.close(id); }
  Status propose(std::span<DraftRequest> requests) override { return inner_.propose(requests); }
  Status observe(std::span<const DraftCommit> commits) override {
    for (const DraftCommit& commit : commits) {
      const size_t width = commit.taps.size() / static_cast<size_t>(commit.rows);
      for (int i = 0; i < commit.rows; ++i) {
        const auto row = commit.taps.subspan(static_cast<size_t>(i) * width, width);
        taps[{commit.id, commit.first + i}].assign(row.begin(), row.end());
      }
    }
    return inner_.observe(commits);
  }
  std::map<std::pair<SequenceId, int>, std::vector<float>> taps;

 private:
  Drafter& inner_;
};

TEST_F(DecoderTest, TapsFollowTheAcceptedPath) {
  std::vector<test::Request> requests;
  for (uint64_t i = 0; i < 3; ++i) {
    requests.push_back(
        {test::random_tokens(30 + i, 70, TinySpec{}.vocab), sequence_options(40), 0, nullptr});
  }
  const std::vector<int32_t> layers = {2, 0, 1};
  test::TestDrafter silent;
  TapReader expected(silent, layers);
  set_pages(16);
  const test::Replies plain = test::decode(*model_, *cache_, &expected, options_, requests);
  test::Prophecies truth;
  for (size_t i = 0; i < requests.size(); ++i) {
    auto& all = truth[static_cast<SequenceId>(i)] = requests[i].prompt;
    all.insert(all.end(), plain.of[i].tokens.begin(), plain.of[i].tokens.end());
  }
  const auto prophet = test::make_prophet_tree_drafter(8, 8, TinySpec{}.vocab, truth);
  TapReader actual(*prophet, layers);
  options_.prefill_chunk = 16;
  const test::Replies replies = test::decode(*model_, *cache_, &actual, options_, requests);
  EXPECT_EQ(test::difference(plain.of, replies.of), "");
  EXPECT_GT(replies.of[0].stats.mean_accepted_length(), 1.5);
  EXPECT_GT(expected.taps.size(), 3u * 100u);
  for (const auto& [place, row] : expected.taps) {
    ASSERT_EQ(row.size(), 3u * 64u);
    ASSERT_EQ(actual.taps[place], row)
        << "sequence " << place.first << ", position " << place.second;
  }
}

// Proposes the next token; beside it, the truth as two rows that may never be accepted.
class Bystander final : public test::TestDrafter {
 public:
  explicit Bystander(std::vector<int32_t> truth) : truth_(std::move(truth)) {
    needs_.top_tokens = 3;
    needs_.top_refusals = 1;
  }
  Status propose(std::span<DraftRequest> requests) override {
    const size_t next = requests[0].tokens.size();
    if (requests[0].max_nodes < 3 || next + 1 >= truth_.size()) return {};
    TokenTree& tree = *requests[0].tree;
    tree.nodes[static_cast<size_t>(tree.add(truth_[next], -1))].role = NodeRole::kWindow;
    tree.nodes[static_cast<size_t>(tree.add(truth_[next + 1], 0))].role = NodeRole::kProbe;
    tree.add(truth_[next], -1);
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override {
    const DraftCommit& commit = commits[0];
    if (commit.tree == nullptr || commit.tree->empty()) return {};
    ++rounds;
    const auto old_root = static_cast<size_t>(commit.first);
    EXPECT_EQ(commit.top_tokens.size(), 4u * 3u);
    EXPECT_EQ(commit.top_tokens_after(-1)[0], truth_[old_root + 1]);
    EXPECT_THAT(commit.top_tokens_after(0), testing::Each(-1));
    // The same token behind the same path, whatever the row is for.
    EXPECT_EQ(commit.top_tokens_after(2)[0], truth_[old_root + 2]);
    if (old_root + 3 < truth_.size()) {
      EXPECT_EQ(commit.top_tokens_after(1)[0], truth_[old_root + 3]);
    }
    const auto ranked = commit.top_tokens_after(1);
    EXPECT_EQ(std::set<int32_t>(ranked.begin(), ranked.end()).size(), 3u);
    return {};
  }
  int rounds = 0;

 private:
  std::vector<int32_t> truth_;
};

TEST_F(DecoderTest, AuxiliaryRowsAreRankedAndNeverKept) {
  const test::Request request{test::random_tokens(7, 20, TinySpec{}.vocab),
                              sequence_options(40, 0.0), 0, nullptr};
  const auto expected = plain(request.prompt, request.options);
  std::vector<int32_t> truth = request.prompt;
  truth.insert(truth.end(), expected.begin(), expected.end());
  Bystander drafter(truth);
  ModelOptions limits = test::model_options();
  limits.max_logits = 3;  // the root's, the probe's and the proposed token's
  const auto model = target_file().load(limits);
  test::CheckedModel checked(*model, limits);
  const auto reply = test::decode(checked, *cache_, &drafter, options_, {&request, 1}).of[0];
  EXPECT_EQ(reply.tokens, expected);
  EXPECT_GT(drafter.rounds, 15);
  EXPECT_EQ(reply.stats.drafted, drafter.rounds);
  EXPECT_EQ(reply.stats.accepted, drafter.rounds);
}

// A draft model whose logits are narrower than the target's.
TEST_F(DecoderTest, DraftModelWithANarrowerVocabulary) {
  TinySpec narrow;
  narrow.vocab = 80;
  const TinyFile file(narrow);
  DraftModelOptions draft;
  draft.vocab = model_->config().vocab;
  draft.max_positions = options_.max_positions;
  const auto drafter =
      std::move(make_draft_model_drafter(file.load(test::model_options()), draft)).value();
  SequenceOptions options = sequence_options(40);
  options.sampling.logit_bias = {{90, 8.0f}, {3, 2.0f}};
  options.sampling.logprobs = 90;
  const test::Request request{test::random_tokens(7, 20, 80), options, 0, nullptr};
  const auto expected = test::decode(*model_, *cache_, nullptr, options_, {&request, 1});
  const auto actual = test::decode(*model_, *cache_, drafter.get(), options_, {&request, 1});
  EXPECT_EQ(test::difference(expected.of, actual.of), "");
  EXPECT_GT(actual.of[0].stats.drafted, 0);
}

// Beyond the draft model's own context there are no drafts, and decoding goes on.
TEST_F(DecoderTest, DraftModelWithAShorterContext) {
  TinySpec shorter;
  shorter.context = 64;
  const TinyFile file(shorter);
  ModelOptions model_options = test::model_options();
  model_options.max_positions = 64;
  DraftModelOptions draft;
  draft.vocab = model_->config().vocab;
  draft.max_positions = options_.max_positions;
  const auto drafter = std::move(make_draft_model_drafter(file.load(model_options), draft)).value();
  const test::Request request{test::random_tokens(7, 20, TinySpec{}.vocab), sequence_options(150),
                              0, nullptr};
  const auto expected = test::decode(*model_, *cache_, nullptr, options_, {&request, 1});
  const auto actual = test::decode(*model_, *cache_, drafter.get(), options_, {&request, 1});
  EXPECT_EQ(test::difference(expected.of, actual.of), "");
  // 44 tokens in rounds of 6, and then one at a time.
  EXPECT_GT(actual.of[0].stats.drafted, 30);
  EXPECT_LE(actual.of[0].stats.drafted, 45);
}

}  // namespace aerie::decoder_test
