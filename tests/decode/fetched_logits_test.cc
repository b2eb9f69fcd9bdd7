// A target whose logits come when they are asked for gives the same tokens, and is asked for none
// where the best token decides; one whose passes fail ends what was in the pass, and nothing else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "draft/auto/pass_cost.h"
#include "draft/network/draft_model.h"
#include "draft/network/early_exit.h"
#include "draft/network/layer_skip.h"
#include "tests/decode/exactness.h"
#include "tests/decode/faults/fetching_model.h"

namespace aerie::fetched_logits_test {

using test::FetchingModel;
using ::testing::HasSubstr;

Wrap fetching(FetchingModel::Counts& counts, FetchingModel::Behaviour behaviour = {}) {
  return [&counts, behaviour](Model& model) {
    return std::make_unique<FetchingModel>(model, behaviour, counts);
  };
}

// What these drafters are told of verified rows are the likeliest tokens.
bool ranks_rows(DraftKind kind) {
  return kind == DraftKind::kRecycling || kind == DraftKind::kLookahead ||
         kind == DraftKind::kMerged || kind == DraftKind::kAuto || kind == DraftKind::kGatedWindow;
}

class FetchedLogits : public testing::TestWithParam<DraftKind> {};

INSTANTIATE_TEST_SUITE_P(Drafters, FetchedLogits, testing::ValuesIn(kDraftKinds),
                         draft_kind_test_name);

TEST_P(FetchedLogits, GiveTheSameTokens) {
  for (const VerifyRule rule : {VerifyRule::kExact, VerifyRule::kRejection}) {
    for (const double temperature : {0.0, 0.8}) {
      if (rule == VerifyRule::kRejection && temperature > 0.0) continue;
      Setting setting;
      setting.kind = GetParam();
      setting.rule = rule;
      setting.requests = {request_with(sampling_with(temperature, Filter::kNone, 3), 40),
                          request_with(sampling_with(temperature, Filter::kTopP, 4), 30)};
      FetchingModel::Counts counts;
      const Comparison result = compare_with_plain(setting, fetching(counts));
      EXPECT_EQ(result.difference, "");
      EXPECT_GT(counts.passes, 0);
      if (temperature > 0.0) {
        EXPECT_GE(counts.fetches, 70);
      } else if (!ranks_rows(GetParam())) {
        EXPECT_EQ(counts.fetches, 0);
      }
    }
  }
}

class FetchingTest : public testing::Test {
 protected:
  FetchingTest() {
    options_.max_positions = 256;
    options_.max_nodes = 8;
    options_.prefill_chunk = 32;
  }
  test::Request request(uint64_t seed) const {
    test::Request request;
    request.prompt = test::random_tokens(seed, 50, spec_.vocab);
    request.options.max_tokens = 30;
    request.options.sampling.temperature = 0.0;
    return request;
  }
  std::unique_ptr<Model> load() const { return file_.load(test::model_options()); }
  test::Replies decode(Model& model, const test::Request& request, Drafter* drafter = nullptr) {
    const ModelCache cache = test::cache_for(model, options_, 1);
    return test::decode(model, *cache, drafter, options_, {&request, 1});
  }
  // How many rows were fetched, and that nothing became another for it.
  int fetches_of(const test::Request& request, bool finds_best = true) {
    const auto model = load();
    FetchingModel::Counts counts;
    FetchingModel late(*model, {.finds_best = finds_best}, counts);
    const test::Replies expected = decode(*model, request), actual = decode(late, request);
    EXPECT_EQ(test::difference(expected.of, actual.of), "");
    for (size_t i = 0; i < expected.of[0].emitted.size(); ++i) {
      const auto& ours = actual.of[0].emitted[i].logprobs;
      const auto& theirs = expected.of[0].emitted[i].logprobs;
      EXPECT_EQ(ours.size(), theirs.size());
      for (size_t k = 0; k < ours.size(); ++k) {
        EXPECT_EQ(ours[k].token, theirs[k].token);
        EXPECT_EQ(ours[k].logprob, theirs[k].logprob);
      }
    }
    return counts.fetches;
  }

  static test::TinySpec three_layers() {
    test::TinySpec spec;
    spec.layers = 3;
    return spec;
  }

  test::TinySpec spec_ = three_layers();
  test::TinyFile file_{spec_};
  DecoderOptions options_;
};

// Allows even tokens.
class Even final : public TokenConstraint {
 public:
  std::unique_ptr<TokenConstraint> fork() const override { return std::make_unique<Even>(*this); }
  void advance(int32_t /*token*/) override {}
  void mask(std::span<bool> allowed) const override {
    for (size_t i = 0; i < allowed.size(); ++i) allowed[i] = i % 2 == 0;
  }
  bool allows(int32_t token) const override { return token % 2 == 0; }
  std::string forced() const override { return {}; }
};

TEST_F(FetchingTest, WhatNeedsLogitsFetchesThem) {
  EXPECT_EQ(fetches_of(request(1)), 0);
  EXPECT_EQ(fetches_of(request(1), false), 30);
  test::Request one = request(2);
  one.options.sampling.logprobs = 2;
  EXPECT_EQ(fetches_of(one), 30);
  one = request(3);
  one.options.sampling.prompt_logprobs = 0;
  EXPECT_EQ(fetches_of(one), 49);
  one = request(4);
  one.options.sampling.presence_penalty = 0.5;
  EXPECT_EQ(fetches_of(one), 30);
  one = request(5);
  one.options.sampling.logit_bias = {{7, 2.0f}};
  EXPECT_EQ(fetches_of(one), 30);
  one = request(6);
  one.options.constraint = std::make_shared<Even>();
  EXPECT_EQ(fetches_of(one), 30);
  one = request(7);
  one.options.sampling.temperature = 0.7;
  EXPECT_EQ(fetches_of(one), 30);
}

// Whatever pass it is, and whatever fetch: what was in the pass is over, and who comes next finds
// nothing that was not computed.
TEST_F(FetchingTest, AFailedPassEndsItsSequencesAlone) {
  const auto model = load();
  const test::Request first = request(1), second = request(2);
  const std::vector<int32_t> expected = decode(*model, first).of[0].tokens;
  options_.reuse_prefixes = true;
  int failed = 0;
  for (int at = 0; at < 12; ++at) {
    for (const bool late : {false, true}) {
      FetchingModel::Counts counts;
      FetchingModel::Behaviour behaviour = {.finds_best = !late};
      if (late) {
        behaviour.loses = [at](int fetch) { return fetch == at; };
      } else {
        behaviour.fails = [at](const ForwardBatch&, int pass) { return pass == at; };
      }
      FetchingModel lost(*model, behaviour, counts);
      const ModelCache cache = test::cache_for(lost, options_, 4);
      Decoder decoder(lost, *cache, nullptr, options_);
      auto a = decoder.open(first.prompt, first.options).value();
      auto b = decoder.open(second.prompt, second.options).value();
      Status status = decoder.prefill(*a);
      if (status.ok()) status = decoder.prefill(*b);
      Sequence* both[] = {a.get(), b.get()};
      for (int i = 0; i < 12 && status.ok(); ++i) status = decoder.round(both);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(counts.failures, 1);
      // Not the cache's, for which others would be preempted.
      EXPECT_EQ(status.code(), StatusCode::kInternal);
      EXPECT_THAT(status.message(), HasSubstr(FetchingModel::kFailure));
      decoder.close(*a);
      decoder.close(*b);
      EXPECT_EQ(cache->used_pages(), 0);
      const auto again = test::serve(lost, *cache, nullptr, options_, {&first, 1}, 0);
      EXPECT_EQ(again.of[0].tokens, expected) << at;
      ++failed;
    }
  }
  EXPECT_EQ(failed, 24);
}

// A draft model's passes that fail cost drafts and nothing else, and it drafts as before after.
TEST_F(FetchingTest, AFailedDraftIsNone) {
  const auto model = load();
  test::Request one = request(1);
  one.options.max_tokens = 100;
  const test::Replies plain = decode(*model, one);
  for (const bool skips : {false, true}) {
    for (const int at : {0, 1, 2, 5, 9, 20}) {
      for (const bool late : {false, true}) {
        FetchingModel::Counts counts;
        FetchingModel::Behaviour behaviour;
        if (late) {
          behaviour.loses = [at](int fetch) { return fetch == at; };
        } else {
          behaviour.fails = [at](const ForwardBatch&, int pass) { return pass == at; };
        }
        DraftModelOptions options;
        options.num_tokens = 4;
        options.vocab = spec_.vocab;
        options.max_positions = options_.max_positions;
        options.max_sequences = 1;
        options.max_rows = 16;  // of a prompt in several passes
        FetchingModel late_model(load(), behaviour, counts);
        auto drafter =
            skips ? make_layer_skip_drafter(late_model, {}, options)
                  : make_draft_model_drafter(
                        std::make_unique<FetchingModel>(load(), behaviour, counts), options);
        ASSERT_TRUE(drafter.ok()) << drafter.status().message();
        testing::internal::CaptureStderr();
        const test::Replies replies = decode(*model, one, drafter->get());
        EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(FetchingModel::kFailure));
        EXPECT_EQ(test::difference(plain.of, replies.of), "");
        EXPECT_EQ(counts.failures, 1);
        const SequenceStats& stats = replies.of[0].stats;
        EXPECT_EQ(stats.accepted, stats.drafted);
        EXPECT_GT(stats.accepted, 60);
      }
    }
  }
}

// The first layers' pass fails: the round is plain. The rest's: it is over.
TEST_F(FetchingTest, AFailedExitIsNoDraft) {
  const auto model = load();
  const test::Request one = request(1);
  const test::Replies plain = decode(*model, one);
  int rests = 0;
  for (int at = 0; at < 20; ++at) {
    FetchingModel::Counts counts;
    int exits = 0;
    FetchingModel::Behaviour behaviour;
    behaviour.fails = [&](const ForwardBatch& batch, int /*pass*/) {
      return batch.end_layer != ForwardBatch::kAllLayers && exits++ == at;
    };
    FetchingModel lost(*model, behaviour, counts);
    EarlyExitOptions options;
    options.exit_layer = 1;
    options.num_tokens = 3;
    const auto drafter = make_early_exit_drafter(options).value();
    const ModelCache cache = test::cache_for(lost, options_, 1);
    Decoder decoder(lost, *cache, drafter.get(), options_);
    const auto sequence = decoder.open(one.prompt, one.options).value();
    testing::internal::CaptureStderr();
    Status status = decoder.prefill(*sequence);
    std::vector<int32_t> tokens(sequence->tokens.begin() + 50, sequence->tokens.end());
    Sequence* alone[] = {sequence.get()};
    while (status.ok() && sequence->finish == FinishReason::kNone) {
      status = decoder.round(alone);
      if (status.ok()) {
        for (const EmittedToken& token : sequence->emitted) tokens.push_back(token.id);
      }
    }
    testing::internal::GetCapturedStderr();
    EXPECT_EQ(counts.failures, 1);
    if (status.ok()) {
      EXPECT_EQ(tokens, plain.of[0].tokens) << at;
    } else {
      ++rests;
      EXPECT_THAT(status.message(), HasSubstr(FetchingModel::kFailure));
      const auto said = std::span(plain.of[0].tokens).first(tokens.size());
      EXPECT_TRUE(std::ranges::equal(tokens, said)) << at;
    }
    decoder.close(*sequence);
    EXPECT_EQ(cache->used_pages(), 0);
  }
  EXPECT_LT(rests, 20);
}

TEST_F(FetchingTest, MeasuringSaysSo) {
  const auto model = load();
  FetchingModel::Counts counts;
  FetchingModel lost(*model, {.fails = [](const ForwardBatch&, int pass) { return pass == 3; }},
                     counts);
  const ModelCache cache = test::cache_for(lost, options_, 1);
  const auto cost = measure_pass_cost(lost, *cache, {16, 0.05});
  ASSERT_FALSE(cost.ok());
  EXPECT_THAT(cost.status().message(), HasSubstr(FetchingModel::kFailure));
  EXPECT_EQ(cache->used_pages(), 0);
}

}  // namespace aerie::fetched_logits_test
