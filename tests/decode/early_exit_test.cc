// Drafts by the target's first layers: verification goes on from them, and what it says is plain
// decoding's to the bit, whatever became of the draft in between.

#include "draft/network/early_exit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/testing/decoding.h"
#include "tests/testing/test_drafters.h"
#include "tests/testing/tiny_model.h"

namespace aerie::early_exit_test {

using test::TinyFile;
using test::TinySpec;

constexpr int kLayers = 4;
constexpr int kExit = 2;

TinySpec spec_with(std::vector<int> silent) {
  TinySpec spec;
  spec.layers = kLayers;
  spec.silent_layers = std::move(silent);
  return spec;
}

std::unique_ptr<Drafter> early_exit(int exit_layer, int num_tokens) {
  return std::move(make_early_exit_drafter({exit_layer, num_tokens})).value();
}

// Counts the rows that go through each layer.
class RowCounter final : public test::CheckedModel {
 public:
  RowCounter(Model& model, const ModelOptions& options) : CheckedModel(model, options) {}
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override {
    for (int l = batch.first_layer; l < batch.end_of(kLayers); ++l) rows[l] += batch.size();
    return CheckedModel::forward(batch, cache);
  }
  int rows[kLayers] = {};
};

class EarlyExit : public testing::Test {
 protected:
  EarlyExit() {
    options_.max_positions = 256;
    options_.max_nodes = 8;
    for (int i = 0; i < 3; ++i) {
      test::Request request;
      request.prompt = test::random_tokens(7 + static_cast<uint64_t>(i), 58 + i, TinySpec{}.vocab);
      request.options.max_tokens = 60 + 7 * i;
      request.options.sampling.temperature = 0.4 * i;
      request.options.sampling.logprobs = 4;
      request.joins_at = i;
      requests_.push_back(request);
    }
  }

  test::Replies decode(const TinyFile& file, Drafter* drafter) {
    const auto model = file.load(test::model_options());
    counter_ = std::make_unique<RowCounter>(*model, test::model_options());
    const ModelCache owned_cache = test::cache_for(*model, options_, 3);
    KvCache& cache = *owned_cache;
    return test::decode(*counter_, cache, drafter, options_, requests_);
  }
  // Not the tokens alone, but the logits behind them.
  static void expect_same(const test::Replies& expected, const test::Replies& actual) {
    ASSERT_EQ(test::difference(expected.of, actual.of), "");
    for (size_t i = 0; i < expected.of.size(); ++i) {
      for (size_t t = 0; t < expected.of[i].emitted.size(); ++t) {
        const auto& a = expected.of[i].emitted[t].logprobs;
        const auto& b = actual.of[i].emitted[t].logprobs;
        ASSERT_TRUE(std::ranges::equal(a, b,
                                       [](const TokenLogprob& x, const TokenLogprob& y) {
                                         return x.token == y.token && x.logprob == y.logprob;
                                       }))
            << "reply " << i << ", token " << t;
      }
    }
  }

  DecoderOptions options_;
  std::vector<test::Request> requests_;
  std::unique_ptr<RowCounter> counter_;
  const TinyFile file_{spec_with({})};
};

TEST_F(EarlyExit, SaysWhatPlainDecodingSays) {
  const test::Replies plain = decode(file_, nullptr);
  for (int exit = 1; exit < kLayers; ++exit) {
    for (const int length : {1, 3, 8}) {
      const auto drafter = early_exit(exit, length);
      expect_same(plain, decode(file_, drafter.get()));
    }
  }
}

// All that the first layers say stands where the others say nothing, and each token runs through
// each layer once: what was drafted is not computed again.
TEST_F(EarlyExit, VerificationGoesOnFromTheDraft) {
  const TinyFile shorter(spec_with({2, 3}));
  requests_.resize(1);
  requests_[0].options.max_tokens = 1 + 6 * 9;
  const test::Replies plain = decode(shorter, nullptr);
  const int prompt = static_cast<int>(requests_[0].prompt.size());
  const auto drafter = early_exit(kExit, 5);
  const test::Replies replies = decode(shorter, drafter.get());
  expect_same(plain, replies);
  EXPECT_EQ(replies.of[0].stats.accepted, replies.of[0].stats.drafted);
  EXPECT_EQ(replies.of[0].stats.rounds, 9);
  EXPECT_THAT(counter_->rows, testing::Each(prompt + 6 * 9));
}

// Changes drafts after they were run.
class Meddler final : public test::TestDrafter {
 public:
  explicit Meddler(Drafter& inner) : inner_(inner) {}
  Status open(const DraftSequence& sequence) override { return inner_.open(sequence); }
  void close(SequenceId id) override { inner_.close(id); }
  Status propose(std::span<DraftRequest> requests) override {
    AERIE_RETURN_IF_ERROR(inner_.propose(requests));
    for (DraftRequest& request : requests) {
      TokenTree& tree = *request.tree;
      if (tree.size() < 3) continue;
      const int what = ++calls_ % 4;
      if (what == 0) tree.nodes[1].token = (tree.nodes[1].token + 1) % TinySpec{}.vocab;
      if (what == 1) tree.nodes.resize(1);
      if (what == 2) tree.clear();
      const bool branches = what == 3 && tree.size() + 4 <= request.max_nodes;
      if (!branches) continue;
      tree.add(tree.add(5, 0), 1);
      tree.nodes.back() = {6, tree.size() - 2, 3};
      tree.add(7, -1);
      tree.add(8, 1);
    }
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override { return inner_.observe(commits); }

 private:
  Drafter& inner_;
  int calls_ = 0;
};

TEST_F(EarlyExit, DraftsMayBeChangedAfterTheyWereRun) {
  const TinyFile shorter(spec_with({2, 3}));
  for (const TinyFile* file : {&file_, &shorter}) {
    const test::Replies plain = decode(*file, nullptr);
    const auto drafter = early_exit(kExit, 4);
    Meddler meddler(*drafter);
    const test::Replies replies = decode(*file, &meddler);
    expect_same(plain, replies);
    EXPECT_GT(replies.of[0].stats.drafted, 20);
  }
}

// Two depths of exit in one round, and sequences that have no draft.
TEST_F(EarlyExit, RunsMayDiffer) {
  class Both final : public test::TestDrafter {
   public:
    Status open(const DraftSequence& sequence) override { return of(sequence.id).open(sequence); }
    void close(SequenceId id) override { of(id).close(id); }
    Status propose(std::span<DraftRequest> requests) override {
      for (DraftRequest& request : requests) {
        if (request.id == 2 && request.tokens.size() % 3 == 0) continue;
        AERIE_RETURN_IF_ERROR(of(request.id).propose({&request, 1}));
      }
      return {};
    }
    Status observe(std::span<const DraftCommit> commits) override {
      for (const DraftCommit& commit : commits) {
        AERIE_RETURN_IF_ERROR(of(commit.id).observe({&commit, 1}));
      }
      return {};
    }

   private:
    Drafter& of(SequenceId id) { return id == 1 ? *deep_ : *flat_; }
    std::unique_ptr<Drafter> flat_ = early_exit(1, 3), deep_ = early_exit(3, 4);
  } both;
  const test::Replies plain = decode(file_, nullptr);
  const test::Replies replies = decode(file_, &both);
  expect_same(plain, replies);
  for (const test::Reply& reply : replies.of) EXPECT_GT(reply.stats.drafted, 20);
}

// Taps of the layers that drafting has run already can only come from running them again.
TEST_F(EarlyExit, EarlierTapsAreThere) {
  class Tapping final : public test::TestDrafter {
   public:
    explicit Tapping(int32_t layer) { needs_.tap_layers = {layer}; }
    Status open(const DraftSequence& sequence) override { return inner_->open(sequence); }
    void close(SequenceId id) override { inner_->close(id); }
    Status propose(std::span<DraftRequest> requests) override { return inner_->propose(requests); }
    Status observe(std::span<const DraftCommit> commits) override {
      for (const DraftCommit& commit : commits) {
        taps.insert(taps.end(), commit.taps.begin(), commit.taps.end());
      }
      return inner_->observe(commits);
    }
    std::vector<float> taps;

   private:
    std::unique_ptr<Drafter> inner_ = early_exit(kExit, 3);
  };
  requests_.resize(1);
  const test::Replies plain = decode(file_, nullptr);
  std::vector<std::vector<float>> taps;
  for (const int32_t layer : {1, 2, 4}) {
    Tapping tapping(layer);
    expect_same(plain, decode(file_, &tapping));
    taps.push_back(tapping.taps);
  }
  for (const auto& of_layer : taps) {
    EXPECT_EQ(of_layer.size(), (requests_[0].prompt.size() + plain.of[0].tokens.size() - 1) * 64);
  }
  EXPECT_NE(taps[0], taps[1]);
}

TEST_F(EarlyExit, WrongUseIsAStatus) {
  EXPECT_THAT(make_early_exit_drafter({0, 5}).status().message(), testing::HasSubstr("exit_layer"));
  EXPECT_THAT(make_early_exit_drafter({1, 0}).status().message(), testing::HasSubstr("num_tokens"));
  DraftSequence alone;
  alone.max_tokens = 10;
  EXPECT_THAT(early_exit(1, 1)->open(alone).message(), testing::HasSubstr("no target"));
  const auto drafter = early_exit(kLayers, 5);
  const auto model = file_.load(test::model_options());
  const ModelCache owned_cache = test::cache_for(*model, options_, 1);
  KvCache& cache = *owned_cache;
  Decoder decoder(*model, cache, drafter.get(), options_);
  const auto sequence = decoder.open(requests_[0].prompt, requests_[0].options);
  EXPECT_THAT(sequence.status().message(), testing::HasSubstr("give 1 to 3"));
}

}  // namespace aerie::early_exit_test
