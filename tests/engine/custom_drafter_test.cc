// Drafters of a program's own, through the door: what they propose may be anything, the ids stay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "aerie/engine.h"
#include "tests/testing/temporary_model.h"

namespace aerie::custom_drafter_test {

using ::testing::HasSubstr;

constexpr const char* kAlways = "custom:num_speculative_tokens=4,gate=0";

const std::string& model() {
  static const test::TemporaryModel file("custom", [] {
    test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = test::kByteVocab;
    spec.context = 512;
    return spec;
  }());
  return file.path();
}

// Proposes what a function says, and counts.
class Scripted final : public CustomDrafter {
 public:
  using Propose = std::function<Status(DraftQuery&)>;
  explicit Scripted(Propose propose) : propose_(std::move(propose)) {}

  Status open(uint64_t, std::span<const int32_t> tokens) override {
    ++opened;
    EXPECT_FALSE(tokens.empty());
    prompt = tokens.size();
    return open_status;
  }
  void close(uint64_t) override { ++closed; }
  Status propose(std::span<DraftQuery> queries) override {
    for (DraftQuery& query : queries) {
      ++asked;
      EXPECT_TRUE(query.draft.empty());
      EXPECT_GT(query.max_nodes, 0);
      if (Status status = propose_(query); !status.ok()) return status;
    }
    return {};
  }
  Status observe(std::span<const DraftOutcome> outcomes) override {
    for (const DraftOutcome& outcome : outcomes) {
      accepted += static_cast<int>(outcome.accepted.size());
      if (outcome.drafted > 0) ++verified;
    }
    return observe_status;
  }

  Status open_status, observe_status;
  size_t prompt = 0;  // tokens
  int opened = 0, closed = 0, asked = 0, accepted = 0, verified = 0;

 private:
  Propose propose_;
};

Expected<std::unique_ptr<Engine>> open(const std::string& speculate,
                                       std::shared_ptr<CustomDrafter> drafter) {
  OpenOptions options;
  options.model = model();
  options.threads = 1;
  options.speculate = speculate;
  options.drafter = std::move(drafter);
  return Engine::open(options);
}

Generation generate(Engine& engine, double temperature) {
  Request request;
  request.prompt = engine.tokenize("Once upon a time").value();
  request.sampling.temperature = temperature;
  request.sampling.seed = 7;
  request.max_tokens = 50;
  request.ignore_eos = true;
  auto reply = engine.generate(request);
  EXPECT_TRUE(reply.ok()) << reply.status().message();
  return reply.ok() ? *reply : Generation();
}

std::vector<int32_t> plain_ids(double temperature) {
  return generate(**open("none", nullptr), temperature).tokens;
}

// A chain of the last tokens once more.
Status repeat(DraftQuery& query) {
  const size_t most = std::min<size_t>(4, query.tokens.size());
  for (size_t i = 0; i < most; ++i) {
    query.draft.push_back(
        {query.tokens[query.tokens.size() - most + i], static_cast<int32_t>(i) - 1});
  }
  return {};
}

TEST(CustomDrafter, DraftsAndChangesNoToken) {
  for (const double temperature : {0.0, 0.9}) {
    const std::vector<int32_t> plain = plain_ids(temperature);
    ASSERT_EQ(plain.size(), 50u);
    for (const char* speculate : {kAlways, "custom", "auto,custom", "merge,ngram,custom"}) {
      SCOPED_TRACE(speculate);
      const auto drafter = std::make_shared<Scripted>(repeat);
      const auto engine = open(speculate, drafter);
      ASSERT_TRUE(engine.ok()) << engine.status().message();
      const Generation reply = generate(**engine, temperature);
      EXPECT_EQ(reply.tokens, plain);
      EXPECT_EQ(drafter->opened, 1);
      EXPECT_EQ(drafter->closed, 1);
      if (speculate != std::string(kAlways)) continue;
      EXPECT_GT(drafter->verified, 0);
      EXPECT_GT(reply.stats.drafted, 0);
      EXPECT_EQ(reply.stats.accepted, drafter->accepted);
    }
  }
}

// One that knows what comes saves most of the passes, as a chain and as a tree.
TEST(CustomDrafter, SavesPassesWhereItIsRight) {
  const std::vector<int32_t> plain = plain_ids(0.9);
  for (const bool tree : {false, true}) {
    std::shared_ptr<Scripted> drafter;
    drafter = std::make_shared<Scripted>([&](DraftQuery& query) {
      const size_t done = query.tokens.size() - drafter->prompt;
      int32_t parent = -1;
      for (size_t i = 0; i < 2 && done + i < plain.size(); ++i) {
        if (tree) query.draft.push_back({1, parent, 0.1f});
        query.draft.push_back({plain[done + i], parent, 0.9f});
        parent = static_cast<int32_t>(query.draft.size()) - 1;
      }
      return Status();
    });
    const auto engine = open(kAlways, drafter);
    const Generation reply = generate(**engine, 0.9);
    EXPECT_EQ(reply.tokens, plain);
    EXPECT_GT(reply.stats.mean_accepted_length(), 2.5);
  }
}

TEST(CustomDrafter, WhatGoesWrongEndsDraftsAlone) {
  const Status error(StatusCode::kInternal, "out of ideas");
  const std::vector<int32_t> plain = plain_ids(0.0);
  const auto check = [&](const std::shared_ptr<Scripted>& drafter, int asked) {
    const auto engine = open(kAlways, drafter);
    for (int turn = 1; turn <= 2; ++turn) {
      EXPECT_EQ(generate(**engine, 0.0).tokens, plain);
      EXPECT_EQ(drafter->asked, turn * asked);
      EXPECT_EQ(drafter->closed, turn);
    }
  };
  check(std::make_shared<Scripted>([&](DraftQuery&) { return error; }), 1);
  auto deaf = std::make_shared<Scripted>(repeat);
  deaf->observe_status = error;
  check(deaf, 0);
  auto closed = std::make_shared<Scripted>(repeat);
  closed->open_status = error;
  check(closed, 0);
  for (const ProposedNode& node :
       {ProposedNode{-1, -1, 0.5f}, ProposedNode{test::kByteVocab, -1}, ProposedNode{1, 0},
        ProposedNode{1, -2}, ProposedNode{1, -1, 1.5f}, ProposedNode{1, -1, -0.5f}}) {
    check(std::make_shared<Scripted>([&](DraftQuery& query) {
            query.draft.push_back(node);
            return Status();
          }),
          1);
  }
}

TEST(CustomDrafter, IsGivenWhereItIsNamed) {
  const auto drafter = std::make_shared<Scripted>(repeat);
  EXPECT_THAT(open("custom", nullptr).status().message(), HasSubstr("needs a drafter"));
  EXPECT_THAT(open("ngram", drafter).status().message(), HasSubstr("does not name method custom"));
  const auto refusal = [](const std::string& speculate) {
    return open(speculate, nullptr).status().message();
  };
  EXPECT_TRUE(open(R"({"method": "ngram", "num_speculative_tokens": 3})", nullptr).ok());
  EXPECT_TRUE(open(R"([{"method": "ngram"}, {"method": "recycling"}])", nullptr).ok());
  EXPECT_THAT(refusal(R"({"method": "ngram", "num_spec": 3})"), HasSubstr("num_spec"));
  EXPECT_THAT(refusal("{"), HasSubstr("speculate"));
}

}  // namespace aerie::custom_drafter_test
