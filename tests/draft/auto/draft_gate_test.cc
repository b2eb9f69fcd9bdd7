#include "draft/auto/draft_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sampling/noise.h"
#include "tests/testing/test_drafters.h"

namespace aerie::draft_gate_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Tokens = std::vector<int32_t>;

// Says a chain, in the time that it is given on the test's clock.
class Speaker final : public test::TestDrafter {
 public:
  Status open(const DraftSequence& sequence) override {
    opened.push_back(sequence.id);
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override {
    for (const DraftCommit& commit : commits) observed.push_back(commit.id);
    return {};
  }
  Status propose(std::span<DraftRequest> requests) override {
    ++calls;
    told = requests.front().ahead;
    if (told != nullptr) told->expect({}, {});
    for (DraftRequest& request : requests) {
      asked.push_back(request.id);
      if (const size_t unread = request.tokens.size() - read; piece > 0 && unread > piece) {
        read += piece;
        request.unread = static_cast<int>(unread - piece);
        *clock += reading * static_cast<double>(piece);
        continue;
      }
      float probability = 1.0f;
      for (size_t i = 0; i < chain.size(); ++i) {
        probability *= says;
        request.tree->add(chain[i], static_cast<int>(i) - 1, sampled, probability);
      }
      for (int i = 0; i < window; ++i) {
        request.tree->add(90 + i, -1, nullptr, 1e-6f);
        request.tree->nodes.back().role = NodeRole::kProbe;
      }
      *clock += reading * static_cast<double>(request.tokens.size() - read);
      read = request.tokens.size();
    }
    *clock += seconds;
    return {};
  }

  Tokens chain;
  float says = 0.5f;
  const Distribution* sampled = nullptr;
  int window = 0;  // rows of its own
  double* clock = nullptr;
  double seconds = 0.0;  // of a call
  double reading = 0.0;  // of a token that it has not seen
  size_t read = 0;
  size_t piece = 0;  // that it reads in a call at most; 0: all
  int calls = 0;
  DraftsAhead* told = nullptr;  // in the last one
  std::vector<SequenceId> opened, observed, asked;
};

class GateTest : public testing::Test {
 protected:
  // `row`: what each further row adds to a pass, as a part of the first, which takes a second.
  Speaker& start(Tokens chain, float says, double row, double call_seconds, int sequences = 1) {
    auto speaker = std::make_unique<Speaker>();
    Speaker& made = *speaker;
    made.chain = std::move(chain);
    made.says = says;
    made.clock = &now_;
    made.seconds = call_seconds;
    row_ = row;
    cost_ = std::make_unique<PassCost>(
        std::vector<PassCost::Point>{{1, 1.0, 0.0}, {101, 1.0 + 100.0 * row, 0.0}});
    GateOptions options;
    options.clock = [this] { return now_; };
    if (max_rows_ > 0) options.max_rows = max_rows_;
    gate_ = make_gate(std::move(speaker), *cost_, options);
    texts_.assign(static_cast<size_t>(sequences), {1, 2, 3});
    for (int i = 0; i < sequences; ++i) open(i);
    return made;
  }
  void open(SequenceId id, const std::string& tenant = "") {
    DraftSequence sequence;
    sequence.id = id;
    sequence.tenant = tenant;
    ASSERT_TRUE(gate_->open(sequence).ok());
  }
  const std::vector<TokenTree>& propose() {
    trees_.assign(texts_.size(), {});
    std::vector<DraftRequest> requests;
    for (size_t i = 0; i < texts_.size(); ++i) {
      requests.push_back({static_cast<SequenceId>(i), texts_[i], 50, &trees_[i]});
      requests.back().ahead = ahead_;
    }
    EXPECT_TRUE(gate_->propose(requests).ok());
    return trees_;
  }
  // The pass is run, and all texts go on with what comes true of the drafts and one token more.
  void settle(const std::vector<Tokens>& truths) {
    int rows = 0;
    for (const TokenTree& tree : trees_) rows += 1 + tree.size();
    now_ += pass_factor_ * (1.0 + row_ * (rows - 1)) *
            (rows > static_cast<int>(trees_.size()) ? drafted_factor_ : 1.0);
    std::vector<DraftCommit> commits;
    for (size_t i = 0; i < texts_.size(); ++i) {
      const Tokens& truth = truths[i];
      size_t stood = 0;
      for (const TokenTree::Node& node : trees_[i].nodes) {
        if (node.role != NodeRole::kDraft || stood + 1 >= truth.size()) break;
        if (node.token != truth[stood]) break;
        ++stood;
      }
      texts_[i].insert(texts_[i].end(), truth.begin(),
                       truth.begin() + static_cast<std::ptrdiff_t>(stood) + 1);
      emitted_ += static_cast<int>(stood) + 1;
      DraftCommit commit;
      commit.id = static_cast<SequenceId>(i);
      commit.tokens = texts_[i];
      commit.tree = &trees_[i];
      commits.push_back(commit);
    }
    EXPECT_TRUE(gate_->observe(commits).ok());
  }
  void run(int rounds, const Tokens& truth) {
    for (int i = 0; i < rounds; ++i) {
      propose();
      settle(std::vector<Tokens>(texts_.size(), truth));
    }
  }
  // Of rounds from now on: tokens a second by those of plain decoding.
  double speedup(int rounds, const Tokens& truth) {
    const double before = now_;
    const int tokens = emitted_;
    run(rounds, truth);
    const double plain = 1.0 + row_ * (static_cast<double>(texts_.size()) - 1.0);
    return (emitted_ - tokens) / (now_ - before) * plain / static_cast<double>(texts_.size());
  }
  static Tokens tokens(const TokenTree& tree) {
    Tokens all;
    for (const TokenTree::Node& node : tree.nodes) all.push_back(node.token);
    return all;
  }

  double now_ = 0.0;
  double row_ = 0.0;
  int max_rows_ = 0;  // of a pass; 0: as many as one likes
  DraftsAhead* ahead_ = nullptr;
  double pass_factor_ = 1.0;
  double drafted_factor_ = 1.0;  // what a pass with drafts takes, by what it should
  int emitted_ = 0;
  std::unique_ptr<PassCost> cost_;
  std::unique_ptr<Drafter> gate_;
  std::vector<Tokens> texts_;
  std::vector<TokenTree> trees_;
};

// The controller would take five of these eight nodes.
TEST_F(GateTest, TakesADraftWholeOrNotAtAll) {
  const Tokens chain = {10, 11, 12, 13, 14, 15, 16, 17};
  start(chain, 0.9f, 0.3, 1e-4);
  run(4, chain);
  EXPECT_EQ(tokens(propose()[0]), chain);
}

// In each round anew, by what it says of this very draft.
TEST_F(GateTest, ACheapDrafterIsTakenAtItsWordWhileThatHolds) {
  Speaker& speaker = start({10, 11, 12}, 0.9f, 0.1, 1e-4);
  run(20, {10, 11, 12, 9});
  EXPECT_EQ(propose()[0].size(), 3);
  settle({{9}});
  speaker.says = 0.05f;
  EXPECT_THAT(tokens(propose()[0]), IsEmpty());
  settle({{9}});
  speaker.says = 0.9f;
  EXPECT_EQ(propose()[0].size(), 3);
  settle({{9}});
  // And its word is worth what came of it.
  run(200, {9});
  EXPECT_THAT(tokens(propose()[0]), IsEmpty());
  EXPECT_EQ(speaker.calls, 224);
}

// What is said without the noise that the target draws with is worth more where that is with it.
TEST_F(GateTest, GoesByTheNoiseThatTheDrafterDoesWithout) {
  start({10}, 0.4f, 0.3, 1e-4);
  for (int i = 0; i < 40; ++i) run(1, i % 5 < 2 ? Tokens{10, 9} : Tokens{9});
  double least_taken = 100.0, most_left = -100.0;
  for (SequenceId id = 1; id <= 30; ++id) {
    DraftSequence sequence;
    sequence.id = id;
    sequence.sampling.temperature = 1.0;
    sequence.sampling.seed = static_cast<uint64_t>(id);
    ASSERT_TRUE(gate_->open(sequence).ok());
    TokenTree tree;
    const Tokens text = {1, 2, 3};
    DraftRequest request = {id, text, 50, &tree};
    ASSERT_TRUE(gate_->propose({&request, 1}).ok());
    gate_->close(id);
    const double noise = target_gumbel({sequence.sampling.seed, 0}, text.size(), 10);
    if (tree.empty()) {
      most_left = std::max(most_left, noise);
    } else {
      least_taken = std::min(least_taken, noise);
    }
  }
  EXPECT_GT(least_taken, most_left);
  EXPECT_TRUE(least_taken < 50.0 && most_left > -50.0);
}

// Begins whatever it hears of.
class Beginning final : public DraftsAhead {
 public:
  void expect(std::span<const Chain> /*chains*/, const FoundTokens& /*found*/) override {
    begun = true;
  }
  bool has_begun() const override { return begun; }

  bool begun = false;
};

// What is left of a draft behind which its pass was begun would be another pass.
TEST_F(GateTest, WhatIsBeingVerifiedIsTaken) {
  for (const bool begins : {false, true}) {
    Beginning ahead;
    Speaker& speaker = start({10, 11, 12}, 0.9f, 0.3, 0.1);
    run(30, {10, 11, 12, 9});
    speaker.says = 0.01f;
    ahead_ = begins ? &ahead : nullptr;
    EXPECT_EQ(propose()[0].size(), begins ? 3 : 0);
    EXPECT_EQ(speaker.told, ahead_);
    EXPECT_EQ(ahead.begun, begins);
    ahead_ = nullptr;
  }
  // Of a drafter at whose word its drafts are taken nothing is begun.
  Beginning ahead;
  Speaker& speaker = start({10, 11, 12}, 0.9f, 0.1, 1e-4);
  run(20, {10, 11, 12, 9});
  ahead_ = &ahead;
  EXPECT_EQ(propose()[0].size(), 3);
  EXPECT_EQ(speaker.told, nullptr);
  EXPECT_FALSE(ahead.begun);
}

TEST_F(GateTest, PoorDraftsCostNextToNothing) {
  // What a call takes of a plain pass: lookup, a head, a draft model.
  for (const double seconds : {1e-4, 0.2, 1.0}) {
    for (const double row : {0.02, 0.3, 1.0}) {
      SCOPED_TRACE(testing::Message() << seconds << " " << row);
      start({10, 11, 12, 13, 14}, 0.9f, row, seconds);
      EXPECT_GT(speedup(2000, {9}), 0.98);
      // What was found out lasts, and looks become fewer.
      EXPECT_GT(speedup(4000, {9}), 0.985);
      EXPECT_GT(speedup(20000, {9}), 0.995);
    }
  }
}

// A short reply, to a drafter that knows nothing: passes of many rows, of which few fit into what a
// trial may lose, and calls that take long.
TEST_F(GateTest, ATrialLosesLittleOfAShortReply) {
  for (const int window : {1, 4, 8, 13}) {
    SCOPED_TRACE(window);
    Speaker& speaker = start({}, 0.9f, 0.3, 1e-4);
    speaker.window = window;
    EXPECT_GT(speedup(128, {9}), 0.96);
  }
  for (const double seconds : {0.25, 0.5, 1.0}) {
    SCOPED_TRACE(seconds);
    start({10, 11, 12, 13, 14}, 0.3f, 0.3, seconds);
    EXPECT_GT(speedup(128, {9}), 0.96);
  }
}

TEST_F(GateTest, GoodDraftsAreMadeInNearlyEveryRound) {
  for (const double seconds : {1e-4, 0.2, 1.0}) {
    start({10, 11, 12, 13, 14}, 0.9f, 0.05, seconds);
    const double best = 6.0 / (1.25 + seconds);
    EXPECT_GT(speedup(2000, {10, 11, 12, 13, 14, 9}), 0.98 * best);
  }
}

// As the engine has it for a drafter that always drafts as much as it may.
TEST_F(GateTest, DraftsThatJustFitIntoAPassAreTaken) {
  max_rows_ = 6;
  Speaker& speaker = start({10, 11, 12, 13, 14}, 0.9f, 0.1, 0.3);
  run(4, {9});
  EXPECT_EQ(speaker.calls, 4);
  start({10, 11, 12, 13, 14}, 0.9f, 0.05, 0.2);
  EXPECT_GT(speedup(2000, {10, 11, 12, 13, 14, 9}), 0.98 * 6.0 / 1.45);
}

// A prompt that takes longer to read than a trial may lose.
TEST_F(GateTest, ALongPromptKeepsNoGoodDrafterAway) {
  Speaker& speaker = start({10, 11, 12, 13, 14}, 0.9f, 0.05, 0.2);
  speaker.reading = 0.05;
  texts_[0].assign(1000, 7);
  EXPECT_GT(speedup(1000, {10, 11, 12, 13, 14, 9}), 0.9 * 6.0 / 1.75);
}

// What a first call took beside reading is not known, which is no reason for another one.
TEST_F(GateTest, WhatIsNotKnownIsNotFree) {
  Speaker& speaker = start({10, 11, 12, 13, 14}, 0.9f, 0.3, 1.5);
  speaker.reading = 0.05;
  texts_[0].assign(200, 7);
  run(60, {10, 9});
  EXPECT_LE(speaker.calls, 4);
}

TEST_F(GateTest, WhatDoesNotPayIsLookedAtLessAndLess) {
  Speaker& speaker = start({10, 11}, 0.9f, 0.3, 0.3);
  run(4, {9});
  EXPECT_EQ(speaker.calls, 4);
  std::vector<int> calls;
  for (const int rounds : {600, 1000, 3000, 10000, 30000}) {
    speaker.calls = 0;
    run(rounds, {9});
    calls.push_back(speaker.calls);
  }
  EXPECT_GT(calls.front(), 0);
  for (const int some : calls) EXPECT_LE(some, 8);
}

TEST_F(GateTest, WhatBeginsToPayIsFoundOut) {
  start({10, 11, 12}, 0.9f, 0.05, 0.2);
  run(600, {9});
  EXPECT_GT(speedup(3000, {10, 11, 12, 9}), 1.5);
  EXPECT_GT(speedup(100, {10, 11, 12, 9}), 2.5);
}

// Reading what it has missed is a part of looking at a draft model.
TEST_F(GateTest, ReadingCounts) {
  Speaker& speaker = start({10, 11}, 0.9f, 0.1, 0.2);
  speaker.reading = 0.05;
  EXPECT_GT(speedup(4000, {9}), 0.97);
  EXPECT_GT(speedup(4000, {9}), 0.98);
}

// Rounds in which it only reads say nothing of what its drafts are worth.
TEST_F(GateTest, ATrialBeginsWhenThePromptIsRead) {
  Speaker& speaker = start({10, 11}, 0.9f, 0.05, 0.1);
  texts_[0].assign(2000, 5);
  speaker.piece = 100;
  speaker.reading = 0.002;
  run(18, {10, 11, 9});
  EXPECT_EQ(speaker.calls, 18);
  EXPECT_TRUE(trees_[0].empty());
  run(40, {10, 11, 9});
  EXPECT_GT(speaker.calls, 50);
  EXPECT_EQ(propose()[0].size(), 2);
}

// Passes with drafts may take longer than they should; what a round takes is measured.
TEST_F(GateTest, WhatARoundAddsCounts) {
  start({10}, 0.9f, 0.1, 1e-4);
  EXPECT_GT(speedup(200, {10, 9}), 1.6);
  drafted_factor_ = 1.9;  // 2 tokens in 2.09 plain passes
  run(100, {10, 9});
  EXPECT_GT(speedup(1000, {10, 9}), 0.97);
}

TEST_F(GateTest, RowsThatPayLaterGetTheirTime) {
  Speaker& speaker = start({}, 0.9f, 0.01, 1e-4);
  speaker.window = 3;
  run(10, {9});
  EXPECT_EQ(propose()[0].size(), 3);
  settle({{9}});
  speaker.chain = {10, 11};
  run(40, {10, 11, 9});
  EXPECT_EQ(propose()[0].size(), 5);
  settle({{9}});
  run(200, {9});
  EXPECT_THAT(tokens(propose()[0]), IsEmpty());
}

TEST_F(GateTest, DrawnTokensAreTakenByWhatOthersBrought) {
  Distribution half;
  half.ids = {10, 11};
  half.probs = {0.5, 0.5};
  Speaker& speaker = start({10, 11}, 0.9f, 0.1, 1e-4);
  speaker.sampled = &half;
  run(20, {10, 11, 9});
  // Not by what it says of these.
  speaker.says = 0.01f;
  const TokenTree& tree = propose()[0];
  EXPECT_THAT(tokens(tree), ElementsAre(10, 11));
  for (const TokenTree::Node& node : tree.nodes) EXPECT_EQ(node.proposal, &half);
}

TEST_F(GateTest, SequencesAreJudgedOneByOne) {
  Speaker& speaker = start({10, 11, 12}, 0.9f, 0.05, 0.2, 2);
  for (int i = 0; i < 400; ++i) {
    propose();
    settle({{10, 11, 12, 9}, {9}});
  }
  speaker.asked.clear();
  for (int i = 0; i < 100; ++i) {
    propose();
    settle({{10, 11, 12, 9}, {9}});
  }
  EXPECT_GT(std::ranges::count(speaker.asked, 0), 95);
  EXPECT_LT(std::ranges::count(speaker.asked, 1), 20);
}

TEST_F(GateTest, WhatDoesNotPayIsSparedNewSequences) {
  Speaker& speaker = start({10, 11}, 0.9f, 0.3, 0.5);
  run(100, {9});
  speaker.opened.clear();
  speaker.observed.clear();
  for (int id = 100; id < 132; ++id) {
    open(id);
    const Tokens text = {1, 2, 3, 4};
    DraftCommit commit;
    commit.id = id;
    commit.tokens = text;
    commit.rows = 4;
    ASSERT_TRUE(gate_->observe({&commit, 1}).ok());
    gate_->close(id);
  }
  EXPECT_THAT(speaker.opened.size(), testing::AllOf(testing::Ge(8u), testing::Le(10u)));
  EXPECT_EQ(speaker.observed, speaker.opened);
}

// A sequence that a drafter was kept from has it once it pays.
TEST_F(GateTest, WhereItPaysLaterADrafterIsLetIn) {
  Speaker& speaker = start({10, 11}, 0.9f, 0.05, 0.2);
  run(100, {9});
  SequenceId kept_from = 0;
  for (SequenceId id = 1; kept_from == 0 && id < 8; ++id) {
    texts_.push_back({1, 2, 3});
    open(id);
    if (std::ranges::count(speaker.opened, id) == 0) kept_from = id;
  }
  ASSERT_GT(kept_from, 0);
  run(100, {9});
  EXPECT_EQ(std::ranges::count(speaker.opened, kept_from), 0);
  run(3000, {10, 11, 9});
  EXPECT_EQ(std::ranges::count(speaker.opened, kept_from), 1);
  EXPECT_GT(std::ranges::count(speaker.asked, kept_from), 100);
}

// What is learnt of one tenant's sequences decides nothing for another's.
TEST_F(GateTest, TenantsAreNotJudgedByEachOther) {
  const auto drafted_for_b = [&](bool a_asks) {
    start({5, 6}, 0.8f, 0.1, 0.2, 0);
    texts_.assign(1, {1, 2, 3});
    open(0, "a");
    run(a_asks ? 300 : 0, {9});
    gate_->close(0);
    texts_.assign(1, {1, 2, 3});
    open(0, "b");
    std::vector<Tokens> drafted;
    for (int i = 0; i < 4; ++i) {
      drafted.push_back(tokens(propose()[0]));
      settle({{5, 6, 9}});
    }
    return drafted;
  };
  EXPECT_THAT(drafted_for_b(false)[0], ElementsAre(5, 6));
  EXPECT_EQ(drafted_for_b(true), drafted_for_b(false));
}

TEST_F(GateTest, ForgetsAsIfItWereNew) {
  start({5, 6}, 0.8f, 0.3, 0.5);
  run(200, {9});
  EXPECT_THAT(tokens(propose()[0]), IsEmpty());
  gate_->close(0);
  gate_->forget();
  open(0);
  texts_.assign(1, {1, 2, 3});
  EXPECT_THAT(tokens(propose()[0]), ElementsAre(5, 6));
}

// A quarter of the target's time a token, of a draft of two.
TEST_F(GateTest, WarnsOnceOfADrafterThatTakesLong) {
  for (const double seconds : {0.45, 0.55}) {
    start({5, 6}, 0.8f, 0.1, seconds);
    testing::internal::CaptureStderr();
    run(20, {5, 6, 9});
    gate_->close(0);
    gate_->forget();
    open(0);
    texts_.assign(1, {1, 2, 3});
    run(20, {5, 6, 9});
    const std::string said = testing::internal::GetCapturedStderr();
    const size_t first = said.find("of the time that the model takes for one");
    EXPECT_EQ(first != std::string::npos, seconds > 0.5) << said;
    EXPECT_EQ(said.find("of the time", first + 20), std::string::npos) << said;
  }
}

TEST_F(GateTest, SaysWhatIsWrong) {
  start({10}, 0.5f, 0.1, 1e-4);
  DraftSequence sequence;
  EXPECT_THAT(gate_->open(sequence).message(), HasSubstr("sequence 0 is open already"));
  TokenTree tree;
  DraftRequest request{7, texts_[0], 5, &tree};
  EXPECT_THAT(gate_->propose({&request, 1}).message(), HasSubstr("sequence 7 is not open"));
}

}  // namespace aerie::draft_gate_test
