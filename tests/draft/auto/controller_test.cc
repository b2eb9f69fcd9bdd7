#include "draft/auto/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "draft/auto/calibration.h"
#include "draft/auto/call_time.h"
#include "sampling/noise.h"
#include "tests/testing/test_drafters.h"

namespace aerie::controller_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Tokens = std::vector<int32_t>;

// Says a chain with these estimates for every sequence, in the time that it is given.
class Speaker final : public test::TestDrafter {
 public:
  Status open(const DraftSequence& sequence) override {
    opened.push_back(sequence.id);
    return {};
  }
  void close(SequenceId id) override { closed.push_back(id); }
  Status observe(std::span<const DraftCommit> commits) override {
    for (const DraftCommit& commit : commits) observed.push_back(commit.id);
    return {};
  }
  int reusable(std::span<const int32_t> tokens, int, std::string_view) const override {
    return std::min(reuses, static_cast<int>(tokens.size()) - 1);
  }
  Status propose(std::span<DraftRequest> requests) override {
    ++calls;
    if (const size_t unread = requests[0].tokens.size() - read; piece > 0 && unread > piece) {
      read += piece;
      requests[0].unread = static_cast<int>(unread - piece);
      *clock += reading_seconds * static_cast<double>(piece);
      return {};
    }
    for (DraftRequest& request : requests) {
      depths.push_back(std::min<int>(request.max_depth, static_cast<int>(chain.size())));
      float probability = 1.0f;
      for (int i = 0; i < depths.back() && i < request.max_nodes; ++i) {
        if (needs_.pays_by_level && i > 0 && probability < request.least_path) depths.back() = i;
        if (depths.back() == i) break;
        probability *= says;
        request.tree->add(chain[static_cast<size_t>(i)], i - 1, sampled, probability);
      }
    }
    if (clock != nullptr) *clock += takes;
    if (clock != nullptr && !depths.empty()) {
      *clock += level_seconds * depths.back();
      *clock += reading_seconds * static_cast<double>(requests[0].tokens.size() - read);
      read = requests[0].tokens.size();
    }
    return {};
  }
  void forget() override { ++forgotten; }
  void pays_by_level() { needs_.pays_by_level = true; }
  void knows_noise(bool knows) { needs_.knows_noise = knows; }

  Tokens chain;
  float says = 0.5f;
  const Distribution* sampled = nullptr;
  double* clock = nullptr;
  double takes = 0.0;            // by which it goes on with a call
  double level_seconds = 0.0;    // and with each level
  double reading_seconds = 0.0;  // of a token that came since
  size_t read = 0;
  size_t piece = 0;  // that it reads in a call at most; 0: all
  int calls = 0;
  int forgotten = 0;
  std::vector<int> depths;
  std::vector<SequenceId> opened, closed, observed;
  int reuses = 1 << 20;
};

class ControllerTest : public testing::Test {
 protected:
  Speaker& add(Tokens chain, float says) {
    auto speaker = std::make_unique<Speaker>();
    Speaker& added = *speaker;
    added.chain = std::move(chain);
    added.says = says;
    drafters_.push_back(std::move(speaker));
    return added;
  }
  // `row`: what each further row adds to a pass, as a part of the first.
  void start(double row, double first_seconds = 1.0, int sequences = 1,
             const ControllerOptions& options = {}) {
    cost_ = std::make_unique<PassCost>(std::vector<PassCost::Point>{
        {1, first_seconds, 0.0}, {101, first_seconds * (1.0 + 100.0 * row), 0.0}});
    controller_ = make_controller(std::move(drafters_), *cost_, options).value();
    texts_.assign(static_cast<size_t>(sequences), {1, 2, 3});
    for (int i = 0; i < sequences; ++i) open(i);
  }
  static ControllerOptions timed_by(const double& now) {
    ControllerOptions options;
    options.clock = [&now] { return now; };
    return options;
  }
  void open(SequenceId id, const std::string& tenant = "") {
    DraftSequence sequence;
    sequence.id = id;
    sequence.tenant = tenant;
    ASSERT_TRUE(controller_->open(sequence).ok());
  }
  // What is drafted for each sequence.
  const std::vector<TokenTree>& propose(int max_nodes = 50) {
    trees_.assign(texts_.size(), {});
    std::vector<DraftRequest> requests;
    for (size_t i = 0; i < texts_.size(); ++i) {
      requests.push_back({static_cast<SequenceId>(i), texts_[i], max_nodes, &trees_[i]});
    }
    EXPECT_TRUE(controller_->propose(requests).ok());
    return trees_;
  }
  // The text goes on with these tokens.
  void settle(const Tokens& truth, size_t sequence = 0) {
    Tokens& text = texts_[sequence];
    text.insert(text.end(), truth.begin(), truth.end());
    DraftCommit commit;
    commit.id = static_cast<SequenceId>(sequence);
    commit.tokens = text;
    commit.tree = &trees_[sequence];
    EXPECT_TRUE(controller_->observe({&commit, 1}).ok());
  }
  static Tokens tokens(const TokenTree& tree) {
    Tokens all;
    for (const TokenTree::Node& node : tree.nodes) all.push_back(node.token);
    return all;
  }

  std::vector<std::unique_ptr<Drafter>> drafters_;
  std::unique_ptr<PassCost> cost_;
  std::unique_ptr<Drafter> controller_;
  std::vector<Tokens> texts_;
  std::vector<TokenTree> trees_;
};

TEST_F(ControllerTest, TakesAsManyNodesAsMakeTheMostOfAPass) {
  // A chain with 0.9, 0.81, 0.73, ... (p = 0.9^n), of which p (1 - (1 - p) / 2) counts. With a row
  // at 0.3 the rate peaks after 4 nodes: 1, 1.86/1.3 = 1.43, 2.59/1.6 = 1.62, 3.22/1.9 = 1.69,
  // 3.76/2.2 = 1.71, 4.23/2.5 = 1.69, ...
  add({10, 11, 12, 13, 14, 15, 16, 17}, 0.9f);
  start(0.3);
  EXPECT_EQ(propose()[0].size(), 4);
}

// Of what is as likely, what the target's noise is with, unless drafters have looked at that.
TEST_F(ControllerTest, GoesByTheNoiseThatDraftersDoWithout) {
  for (const bool known : {false, true}) {
    add({10}, 0.5f).knows_noise(known);
    add({11}, 0.5f).knows_noise(known);
    start(0.1);
    int with_noise = 0, against = 0;
    for (SequenceId id = 1; id <= 40; ++id) {
      DraftSequence sequence;
      sequence.id = id;
      sequence.sampling.temperature = 1.0;
      sequence.sampling.seed = static_cast<uint64_t>(id);
      ASSERT_TRUE(controller_->open(sequence).ok());
      TokenTree tree;
      DraftRequest request = {id, texts_[0], 1, &tree};
      ASSERT_TRUE(controller_->propose({&request, 1}).ok());
      controller_->close(id);
      if (tree.empty()) continue;
      const auto noise = [&](int32_t token) {
        return target_gumbel({sequence.sampling.seed, 0}, texts_[0].size(), token);
      };
      const bool is_better = noise(tree.nodes[0].token) >= std::max(noise(10), noise(11));
      ++(is_better ? with_noise : against);
    }
    EXPECT_GT(with_noise, known ? 10 : 30);
    EXPECT_EQ(against > 10, known) << against;
  }
}

TEST_F(ControllerTest, DraftsNothingWhereRowsAreDear) {
  add({10, 11, 12}, 0.9f);
  start(0.95);
  EXPECT_THAT(tokens(propose()[0]), IsEmpty());
}

TEST_F(ControllerTest, WhereNoDraftCouldPayNobodyDrafts) {
  Speaker& speaker = add({10, 11, 12}, 0.9f);
  start(0.95);
  for (int round = 0; round < 160; ++round) {
    propose();
    settle({10});
  }
  EXPECT_GE(speaker.calls, 9);  // to see how it fares
  EXPECT_LE(speaker.calls, 11);
}

TEST_F(ControllerTest, ALimitOnNodesHolds) {
  add({10, 11, 12, 13}, 0.9f);
  add({20, 21, 22, 23}, 0.8f);
  start(0.0);
  EXPECT_EQ(propose(3)[0].size(), 3);
  EXPECT_EQ(propose()[0].size(), 8);
}

TEST_F(ControllerTest, WhatDraftersSayIsHeldAgainstWhatComesTrue) {
  add({10, 11}, 0.95f);  // is never right
  add({20, 21}, 0.15f);  // always is
  start(0.4);
  EXPECT_THAT(tokens(propose()[0]), ElementsAre(10, 11));
  for (int i = 0; i < 30; ++i) {
    propose();
    settle({20, 21, 9});
  }
  EXPECT_THAT(tokens(propose()[0]), ElementsAre(20, 21));
  // The tides turn.
  for (int i = 0; i < 60; ++i) {
    propose();
    settle({10, 11, 9});
  }
  EXPECT_THAT(tokens(propose()[0]), ElementsAre(10, 11));
}

TEST_F(ControllerTest, WhatOneSequenceTaughtHelpsTheNext) {
  add({10}, 0.95f);
  start(0.4);
  for (int i = 0; i < 30; ++i) {
    propose();
    settle({9});
  }
  controller_->close(0);
  DraftSequence sequence;
  ASSERT_TRUE(controller_->open(sequence).ok());
  texts_[0] = {1, 2, 3};
  EXPECT_THAT(tokens(propose()[0]), IsEmpty());
  controller_->close(0);
  controller_->forget();
  ASSERT_TRUE(controller_->open(sequence).ok());
  EXPECT_THAT(tokens(propose()[0]), ElementsAre(10));
}

TEST_F(ControllerTest, SequencesShareAPassByWhatTheyPromise) {
  add({10, 11, 12, 13}, 0.9f);
  start(0.15, 1.0, 2);
  for (int i = 0; i < 40; ++i) {
    propose();
    settle({10, 11, 12, 13, 9}, 0);  // always right here
    settle({9}, 1);                  // never there
  }
  const auto& trees = propose();
  EXPECT_EQ(trees[0].size(), 4);
  EXPECT_EQ(trees[1].size(), 0);
}

TEST_F(ControllerTest, ADearDrafterIsAskedWhileItPays) {
  double now = 0.0;
  Speaker& dear = add({10, 11, 12, 13}, 0.8f);
  dear.clock = &now;
  dear.takes = 400e-6;
  start(0.05, 2e-3, 1, timed_by(now));  // a level of its draft takes a twentieth of a pass
  for (int i = 0; i < 50; ++i) {
    propose();
    settle({10, 11, 12, 13, 9});
  }
  EXPECT_EQ(dear.calls, 50);
  // It stops being right: from then on it is only looked at now and then.
  for (int i = 0; i < 120; ++i) {
    propose();
    settle({9});
  }
  const int before = dear.calls;
  for (int i = 0; i < 400; ++i) {
    propose();
    settle({9});
  }
  EXPECT_LT(dear.calls - before, 20);
  EXPECT_GT(dear.calls - before, 1);
  // And when it is right again that is found out.
  for (int i = 0; i < 3000; ++i) {
    if (propose()[0].empty()) {
      settle({10});
    } else {
      settle({10, 11, 12, 13, 9});
    }
  }
  EXPECT_GT(propose()[0].size(), 1);
}

// Nothing is learned of what is not asked: misfortune must not be the last word.
TEST_F(ControllerTest, ADearDrafterGetsOverBadLuck) {
  double now = 0.0;
  Speaker& dear = add({10}, 0.5f);
  dear.clock = &now;
  dear.level_seconds = 0.2;
  start(0.08, 1.0, 1, timed_by(now));  // worth it where a third of its tokens stand
  uint32_t draw = 1;
  const auto run = [&](int rounds, double right) {
    const int before = dear.calls;
    for (int i = 0; i < rounds; ++i) {
      propose();
      draw = draw * 1664525U + 1013904223U;
      settle({draw < right * 4294967296.0 ? 10 : 9});
    }
    return dear.calls - before;
  };
  run(100, 0.0);
  EXPECT_GT(run(10000, 0.42), 9400);
  // Where it stays bad it costs next to nothing.
  run(1000, 0.05);
  EXPECT_LT(run(2000, 0.05), 60);
}

TEST_F(ControllerTest, WhatComesWithAnyCallIsNoPriceOfDepth) {
  double now = 0.0;
  Speaker& dear = add({10, 11, 12, 13, 14, 15}, 0.8f);
  dear.clock = &now;
  dear.takes = 0.3;
  dear.level_seconds = 0.02;
  start(0.05, 1.0, 1, timed_by(now));
  // The first token alone is right, and pays; once all are, it is asked for more by and by.
  const auto run = [&](const Tokens& truth) {
    for (int i = 0; i < 1000; ++i) {
      propose();
      settle(truth);
    }
    return dear.depths.back();
  };
  EXPECT_EQ(run({10, 9}), 1);
  EXPECT_EQ(run({10, 11, 12, 13, 14, 15, 9}), 6);
}

// One that says as it goes whether a further level is worth its time goes deep where it is sure,
// and no further than it pays where it is not.
TEST_F(ControllerTest, ADearDrafterGoesAsDeepAsItIsSure) {
  for (const bool by_level : {false, true}) {
    double now = 0.0;
    Speaker& dear = add({10, 11, 12, 13, 14, 15}, 0.95f);
    if (by_level) dear.pays_by_level();
    dear.clock = &now;
    dear.takes = 0.1;
    dear.level_seconds = 0.08;
    start(0.08, 1.0, 1, timed_by(now));
    double sure = 0.0, unsure = 0.0;
    constexpr int kRounds = 400;
    for (int round = 0; round < kRounds; ++round) {
      dear.depths.assign(1, 0);
      const bool is_sure = round % 2 == 0;
      dear.says = is_sure ? 0.95f : 0.4f;
      propose();
      settle(is_sure         ? Tokens{10, 11, 12, 13, 14, 15, 9}
             : round % 5 < 2 ? Tokens{10, 9}
                             : Tokens{9});
      if (round >= kRounds / 2) (is_sure ? sure : unsure) += 4.0 * dear.depths.back() / kRounds;
    }
    if (by_level) {
      EXPECT_GT(sure, 5.5);
      EXPECT_LT(unsure, 1.5);
    } else {
      EXPECT_NEAR(sure, unsure, 0.5);  // it cannot know
    }
  }
}

// Levels that it seldom gets to are neither gained nor paid for: what they promise when they are
// there is no reason to ask for a first one that does not pay.
TEST_F(ControllerTest, LevelsThatAreSeldomDraftedCountAsSeldom) {
  double now = 0.0;
  Speaker& dear = add({10, 11, 12, 13, 14, 15}, 0.95f);
  dear.pays_by_level();
  dear.clock = &now;
  dear.takes = 0.55;
  dear.level_seconds = 0.02;
  start(0.05, 1.0, 1, timed_by(now));
  const auto run = [&](int rounds, int sure_of_ten) {
    const int before = dear.calls;
    for (int round = 0; round < rounds; ++round) {
      const bool is_sure = round % 10 < sure_of_ten;
      dear.says = is_sure ? 0.95f : 0.05f;
      propose();
      settle(is_sure ? Tokens{10, 11, 12, 13, 14, 15, 9} : Tokens{9});
    }
    return dear.calls - before;
  };
  run(300, 5);
  EXPECT_GT(run(300, 5), 250);  // three tokens for 0.9 of a pass
  run(600, 1);
  EXPECT_LT(run(300, 1), 60);  // half of one for 0.6
}

// A prompt's rows make the pass long, and a node no cheaper: what counts is what a node adds, and
// what a pass of the roots alone would take for its token.
TEST_F(ControllerTest, RowsOfPromptsDoNotMakeNodesCheaper) {
  for (const double row : {0.3, 1.0}) {
    drafters_.clear();
    add({10, 11, 12, 13, 14, 15, 16, 17}, 0.9f);
    start(row);
    TokenTree tree;
    DraftRequest request{0, texts_[0], 50, &tree};
    for (const int prompt : {0, 80}) {
      tree.clear();
      request.other_rows = prompt;
      EXPECT_TRUE(controller_->propose({&request, 1}).ok());
      EXPECT_EQ(tree.size(), row == 1.0 ? 0 : 4);
    }
    // With other sequences in the pass a token costs less.
    tree.clear();
    request.other_rows = request.other_tokens = 50;
    EXPECT_TRUE(controller_->propose({&request, 1}).ok());
    EXPECT_LT(tree.size(), 5);
  }
}

TEST_F(ControllerTest, ADearDrafterThatDoesNotPayIsSparedNewSequences) {
  add({10, 11}, 0.9f);
  Speaker& dear = add({20, 21}, 0.9f);
  double now = 0.0;
  dear.clock = &now;
  dear.takes = 4e-3;
  start(0.1, 2e-3, 1, timed_by(now));
  for (int i = 0; i < 40; ++i) {
    propose();
    settle({7, 7});
  }
  dear.opened.clear();
  dear.observed.clear();
  for (int id = 100; id < 116; ++id) {
    open(id);
    const Tokens text = {1, 2, 3, 4};
    DraftCommit commit;
    commit.id = id;
    commit.tokens = text;
    commit.rows = 4;
    ASSERT_TRUE(controller_->observe({&commit, 1}).ok());
  }
  // One in sixteen, to see whether that has changed.
  EXPECT_EQ(dear.opened.size(), 1u);
  EXPECT_EQ(dear.observed, dear.opened);
}

TEST_F(ControllerTest, WhereNoDraftCouldPayADearDrafterGetsNoNewSequences) {
  Speaker& dear = add({20, 21}, 0.9f);
  double now = 0.0;
  dear.clock = &now;
  dear.takes = 1e-3;
  start(0.95, 2e-3, 1, timed_by(now));
  for (int i = 0; i < 3; ++i) {
    propose();
    settle({20, 21});
  }
  dear.opened.clear();
  for (int id = 100; id < 164; ++id) open(id);
  EXPECT_THAT(dear.opened, IsEmpty());
}

// Whose first drafts failed is not given up: looks go on while what they draft comes true.
TEST_F(ControllerTest, ABadBeginningIsMadeUpFor) {
  double now = 0.0;
  Speaker& dear = add({10, 11}, 0.8f);
  dear.clock = &now;
  dear.takes = 500e-6;  // a level of its draft takes an eighth of a pass
  start(0.1, 2e-3, 1, timed_by(now));
  const auto drafts_of = [&](int rounds, const Tokens& truth) {
    const int before = dear.calls;
    for (int i = 0; i < rounds; ++i) {
      propose();
      settle(truth);
    }
    return dear.calls - before;
  };
  drafts_of(30, {9});
  EXPECT_LT(drafts_of(100, {9}), 8);
  EXPECT_GT(drafts_of(250, {10, 11, 9}), 100);
}

// A look at a drafter that has much to read goes on until it has drafted.
TEST_F(ControllerTest, ALookGoesOnWhileTheDrafterReads) {
  double now = 0.0;
  Speaker& dear = add({20, 21}, 0.9f);
  dear.clock = &now;
  dear.level_seconds = 0.05;
  dear.reading_seconds = 1e-5;
  ControllerOptions options;
  options.clock = [&now] { return now; };
  start(0.1, 1.0, 1, options);
  for (int i = 0; i < 60; ++i) {
    propose();
    settle({7});
  }
  // It does not pay, and has not for long.
  const int before = dear.calls;
  EXPECT_LT(before, 30);
  texts_[0].resize(1000, 7);
  dear.piece = 200;
  std::vector<int> calls;
  for (int i = 0; i < 200; ++i) {
    if (dear.calls > before) calls.push_back(dear.calls - before);
    propose();
    settle({7});
  }
  ASSERT_GE(calls.size(), 6u);
  EXPECT_THAT(std::vector<int>(calls.begin(), calls.begin() + 6), ElementsAre(1, 2, 3, 4, 5, 5));
}

// One that came under load gets the drafter that takes time when there are fewer.
TEST_F(ControllerTest, WhereItPaysLaterADearDrafterIsLetIn) {
  double now = 0.0;
  Speaker& dear = add({20, 21}, 0.9f);
  dear.clock = &now;
  dear.level_seconds = 0.05;
  ControllerOptions options;
  options.clock = [&now] { return now; };
  cost_ =
      std::make_unique<PassCost>(std::vector<PassCost::Point>{{1, 1.0}, {20, 1.1}, {101, 101.0}});
  controller_ = make_controller(std::move(drafters_), *cost_, options).value();
  texts_.assign(1, {1, 2, 3});
  open(0);
  for (int i = 0; i < 10; ++i) {
    propose();
    settle({20, 21});
  }
  for (SequenceId id = 63; id > 0; --id) open(id);
  EXPECT_EQ(std::ranges::count(dear.opened, 1), 0);
  for (SequenceId id = 63; id > 1; --id) controller_->close(id);
  texts_.push_back({5, 6, 7});
  for (int i = 0; i < 20; ++i) {
    propose();
    settle({20, 21}, 0);
    settle({20, 21}, 1);
  }
  EXPECT_EQ(std::ranges::count(dear.opened, 1), 1);
  EXPECT_THAT(tokens(propose()[1]), ElementsAre(20, 21));
  // It is told when the sequence ends, and of others not again.
  EXPECT_EQ(std::ranges::count(dear.opened, 0), 1);
  controller_->close(1);
  EXPECT_EQ(std::ranges::count(dear.closed, 1), 1);
}

TEST_F(ControllerTest, ADearDrafterThatLacksMuchOfAPrefixIsLeftOut) {
  add({10, 11}, 0.9f);
  Speaker& dear = add({20, 21}, 0.9f);
  double now = 0.0;
  dear.clock = &now;
  dear.takes = 4e-3;
  start(0.1, 0.1, 1, timed_by(now));
  for (int i = 0; i < 3; ++i) {
    propose();
    settle({20});
  }
  const Tokens prompt(1000, 5);
  for (const int kept : {0, 900, 999}) {
    dear.reuses = kept;
    dear.opened.clear();
    const int reusable = controller_->reusable(prompt, 0, {});
    EXPECT_EQ(reusable, kept == 900 ? 900 : 999);
    DraftSequence sequence;
    sequence.id = 100 + kept;
    sequence.tokens = prompt;
    sequence.reused = reusable;
    ASSERT_TRUE(controller_->open(sequence).ok());
    EXPECT_EQ(dear.opened.size(), kept == 0 ? 0u : 1u);
  }
}

TEST_F(ControllerTest, DrawnTokensAreNeverCut) {
  Distribution half;
  half.ids = {10, 11};
  half.probs = {0.5, 0.5};
  add({10, 11, 10, 11}, 0.01f).sampled = &half;
  add({20}, 0.9f);
  start(0.9);
  const TokenTree& tree = propose()[0];
  EXPECT_THAT(tokens(tree), ElementsAre(10, 11, 10, 11));
  for (const TokenTree::Node& node : tree.nodes) EXPECT_EQ(node.proposal, &half);
}

// What a draft model has to read because it was not asked is a price of looks, not of drafts.
TEST_F(ControllerTest, WhatWasMissedIsAPriceOfLooks) {
  Speaker& speaker = add({10, 11}, 0.9f);
  double now = 0.0;
  speaker.clock = &now;
  speaker.level_seconds = 0.2;
  speaker.reading_seconds = 0.05;
  ControllerOptions options;
  options.clock = [&] { return now; };
  start(0.1, 1.0, 1, options);
  const auto run = [&](int rounds, const Tokens& truth) {
    now = 0.0;
    for (int i = 0; i < rounds; ++i) {
      propose();
      settle(trees_[0].empty() ? Tokens{truth.back()} : truth);
    }
    return now;
  };
  run(100, {9});
  // Of plain decoding's 4000 and 40000 seconds.
  EXPECT_LT(run(4000, {9}), 250.0);
  EXPECT_LT(run(40000, {9}), 900.0);
  // It is known for what it takes to draft: another tenant has it at once.
  controller_->close(0);
  texts_.assign(1, {1, 2, 3});
  speaker.read = 3;
  open(0, "b");
  EXPECT_EQ(propose()[0].size(), 2);
}

TEST_F(ControllerTest, WarnsOfADrafterThatTakesLong) {
  for (const double level : {0.2, 0.3}) {
    Speaker& speaker = add({10, 11}, 0.9f);
    double now = 0.0;
    speaker.clock = &now;
    speaker.level_seconds = level;
    ControllerOptions options;
    options.clock = [&] { return now; };
    start(0.1, 1.0, 1, options);
    testing::internal::CaptureStderr();
    for (int i = 0; i < 10; ++i) {
      propose();
      settle({10, 11, 9});
    }
    EXPECT_EQ(
        testing::internal::GetCapturedStderr().find("takes 0.30 of the time") != std::string::npos,
        level > 0.25);
  }
}

TEST_F(ControllerTest, SaysWhatIsWrong) {
  add({10}, 0.5f);
  start(0.1);
  DraftSequence sequence;
  EXPECT_THAT(controller_->open(sequence).message(), HasSubstr("sequence 0 is open already"));
  TokenTree tree;
  DraftRequest request{7, texts_[0], 5, &tree};
  EXPECT_THAT(controller_->propose({&request, 1}).message(), HasSubstr("sequence 7 is not open"));
}

TEST(CallTime, IsALine) {
  CallTime time;
  EXPECT_EQ(time.seconds(3.0), 0.0);
  for (int i = 0; i < 30; ++i) {
    time.learn(1, 3.0);
    time.learn(3, 5.0);
  }
  EXPECT_NEAR(time.seconds(1.0), 3.0, 0.02);
  EXPECT_NEAR(time.seconds(6.0), 8.0, 0.1);
  EXPECT_NEAR(time.per_level(), 2.0, 0.02);
  // Of another machine, or another load.
  for (int i = 0; i < 200; ++i) time.learn(i % 2 == 0 ? 1 : 3, i % 2 == 0 ? 0.3 : 0.5);
  EXPECT_NEAR(time.seconds(6.0), 0.8, 0.02);
}

TEST(CallTime, OfCallsOfOneDepthMostComesWithAny) {
  CallTime time;
  for (int i = 0; i < 100; ++i) time.learn(4, 6.0);
  EXPECT_NEAR(time.seconds(4.0), 6.0, 0.02);
  EXPECT_NEAR(time.seconds(0.0), 2.0, 0.02);
}

TEST(CallTime, IsNeverNegative) {
  CallTime falling, rising;
  for (int i = 0; i < 20; ++i) {
    falling.learn(1, 5.0);
    falling.learn(4, 2.0);
    rising.learn(2, 1.0);
    rising.learn(4, 9.0);
  }
  EXPECT_NEAR(falling.seconds(8.0), 3.5, 0.1);
  EXPECT_GE(rising.seconds(0.0), 0.0);
  EXPECT_GT(rising.seconds(1.0), 0.0);
}

TEST(Calibration, GoesFromWhatIsSaidToWhatIsSeen) {
  TokenTree tree;
  tree.add(5, -1, nullptr, 0.8f);
  tree.add(6, 0, nullptr, 0.4f);
  const Calibration::Claim first = Calibration::claim(tree, 0),
                           second = Calibration::claim(tree, 1);
  EXPECT_FLOAT_EQ(second.said, 0.5f);
  Calibration own(60), general(600);
  EXPECT_NEAR(own.estimate(first, nullptr), 0.8, 1e-6);
  EXPECT_NEAR(own.estimate(second, nullptr), 0.5, 1e-6);
  for (int i = 0; i < 500; ++i) general.learn(first, i % 4 == 0);
  EXPECT_NEAR(own.estimate(first, &general), 0.25, 0.02);
  EXPECT_NEAR(own.estimate(second, &general), 0.5, 1e-6);
  for (int i = 0; i < 300; ++i) own.learn(first, i % 2 == 0);
  EXPECT_NEAR(own.estimate(first, &general), 0.5, 0.03);
}

// What is learnt of one tenant's sequences decides nothing for another's.
TEST_F(ControllerTest, TenantsAreNotJudgedByEachOther) {
  const auto drafted_for_b = [&](bool a_asks) {
    add({5, 6, 7, 8}, 0.8f);
    start(0.2, 1.0, 0);
    texts_.assign(1, {1, 2, 3});
    if (a_asks) {
      open(0, "a");
      for (int i = 0; i < 100; ++i) {
        propose();
        settle({9});  // never right
      }
      EXPECT_THAT(tokens(propose()[0]), IsEmpty());
      controller_->close(0);
    }
    texts_.assign(1, {1, 2, 3});
    open(0, "b");
    std::vector<Tokens> drafted;
    for (int i = 0; i < 20; ++i) {
      drafted.push_back(tokens(propose()[0]));
      settle({5, 6, 9});
    }
    return drafted;
  };
  const std::vector<Tokens> alone = drafted_for_b(false);
  EXPECT_THAT(alone[0], ElementsAre(5, 6, 7));
  EXPECT_EQ(drafted_for_b(true), alone);
}

// Nor when a drafter that takes time is looked at again.
TEST_F(ControllerTest, TenantsHavePatienceOfTheirOwn) {
  const auto asked_for_b = [&](bool a_asks) {
    Speaker& speaker = add({5, 6, 7, 8}, 0.8f);
    double now = 0.0;
    speaker.clock = &now;
    speaker.level_seconds = 0.125;  // sums of it are exact
    ControllerOptions options;
    options.clock = [&] { return now; };
    start(0.25, 1.0, 0, options);
    texts_.assign(1, {1, 2, 3});
    // Once for somebody else, so that it is known to take time.
    const std::vector<std::pair<std::string, int>> before = {{"first", 3}, {"a", a_asks ? 200 : 0}};
    for (const auto& [tenant, rounds] : before) {
      if (rounds == 0) continue;
      open(0, tenant);
      for (int i = 0; i < rounds; ++i) {
        propose();
        settle({9});
      }
      controller_->close(0);
      texts_.assign(1, {1, 2, 3});
    }
    open(0, "b");
    std::vector<int> asked_in;
    for (int i = 0; i < 200; ++i) {
      const int calls = speaker.calls;
      propose();
      if (speaker.calls > calls) asked_in.push_back(i);
      settle({9});
    }
    return asked_in;
  };
  const std::vector<int> alone = asked_for_b(false);
  EXPECT_GE(alone.size(), 4u);
  EXPECT_EQ(asked_for_b(true), alone);
}

}  // namespace aerie::controller_test
