// Sequences as a server has them: prompts read beside rounds, prefixes reused, sequences suspended
// and resumed. Each says what it says alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/decode/exactness.h"
#include "tests/model/families/family_goldens.h"

namespace aerie::serve_test {

// Several begin alike.
std::vector<test::Request> alike_requests(int vocab = test::TinySpec{}.vocab) {
  std::vector<test::Request> requests = mixed_requests(vocab);
  const std::vector<int32_t> common = test::random_tokens(3, 200, vocab);
  const int lengths[] = {63, 64, 65, 130, 199, 200};
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<int32_t>& prompt = requests[i].prompt;
    if (i % 3 == 2) prompt.clear();
    prompt.insert(prompt.begin(), common.begin(), common.begin() + lengths[i]);
  }
  return requests;
}

Setting setting_of(DraftKind kind, int length, int threads) {
  Setting setting;
  setting.kind = kind;
  setting.length = length;
  setting.threads = threads;
  setting.chunk = 48;
  setting.requests = alike_requests();
  return setting;
}

class Served : public testing::TestWithParam<DraftKind> {};

TEST_P(Served, SaysWhatEachSaysAlone) {
  for (const int suspends : {0, 11}) {
    const ServedTwice served = serve_twice(setting_of(GetParam(), 5, 2), suspends);
    EXPECT_EQ(served.difference, "") << "suspends " << suspends;
    EXPECT_GT(served.warm.reused, served.cold.reused);
    EXPECT_EQ(served.cold.suspended > 0, suspends > 0);
    for (size_t i = 0; i < served.warm.of.size(); ++i) {
      const bool drafts = served.warm.of[i].stats.drafted > 0;
      EXPECT_TRUE(drafts == (i != 2) || (is_gated(GetParam()) && i != 2)) << i;
    }
  }
}

// States are kept of few beginnings: where another branched off, before a prompt's end, and at a
// reply's.
TEST_P(Served, SaysTheSameWhereLayersKeepStates) {
  for (const char* family : {"qwen35", "qwen3-next", "lfm2", "granite-hybrid"}) {
    const auto file = open_family_model(family);
    ASSERT_NE(file, nullptr);
    for (const int suspends : {0, 11}) {
      SCOPED_TRACE(std::string(family) + ", suspends " + std::to_string(suspends));
      Setting setting = setting_of(GetParam(), 5, 2);
      setting.target = file.get();
      setting.positions = 256;
      for (size_t i = 0; i < setting.requests.size(); ++i) {
        std::vector<int32_t>& prompt = setting.requests[i].prompt;
        prompt.resize(std::min(prompt.size(), 208 - 3 * i));
      }
      const ServedTwice served = serve_twice(setting, suspends);
      EXPECT_EQ(served.difference, "");
      EXPECT_GE(served.warm.reused, served.cold.reused + (suspends == 0 ? 1 : 0));
      EXPECT_GT(served.warm.reused, 0);
      EXPECT_EQ(served.cold.suspended > 0, suspends > 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Drafters, Served, testing::ValuesIn(kDraftKinds), draft_kind_test_name);

// All that is cached is found again: one row of each prompt is left to be read.
TEST(ServedPrefix, IsWhole) {
  Setting setting = setting_of(DraftKind::kSameModel, 4, 1);
  int64_t prompts = 0;
  for (const test::Request& request : setting.requests) {
    prompts += static_cast<int64_t>(request.prompt.size()) - 1;
  }
  const ServedTwice served = serve_twice(setting, 0);
  EXPECT_EQ(served.warm.reused, prompts);
  EXPECT_GT(served.cold.reused, 0);
}

void expect_same_drafts(const ServedTwice& served) {
  EXPECT_EQ(served.difference, "");
  EXPECT_GT(served.warm.reused, served.cold.reused);
  for (size_t i = 0; i < served.warm.of.size(); ++i) {
    const SequenceStats &cold = served.cold.of[i].stats, &warm = served.warm.of[i].stats;
    EXPECT_EQ(cold.rounds, warm.rounds) << i;
    EXPECT_EQ(cold.drafted, warm.drafted) << i;
    EXPECT_EQ(cold.accepted_at, warm.accepted_at) << i;
  }
}

// Of drafters that learn nothing from one sequence for another.
TEST(ServedPrefix, DraftsAreThoseOfAColdCache) {
  for (const DraftKind kind : {DraftKind::kNgram, DraftKind::kOtherModel, DraftKind::kModelTree,
                               DraftKind::kPrunedTree, DraftKind::kLayerSkip}) {
    SCOPED_TRACE(draft_kind_name(kind));
    Setting setting = setting_of(kind, 5, 1);
    setting.draft_rows = 2048;  // while a prompt is read there are no drafts
    expect_same_drafts(serve_twice(setting, 0));
  }
}

TEST(ServedDepth, IsWhatTheRequestAllows) {
  for (const DraftKind kind :
       {DraftKind::kNgram, DraftKind::kNgramTree, DraftKind::kSuffixTree, DraftKind::kSameModel,
        DraftKind::kModelTree, DraftKind::kAuto, DraftKind::kEarlyExit, DraftKind::kProphetTree}) {
    SCOPED_TRACE(draft_kind_name(kind));
    Setting setting = setting_of(kind, 5, 1);
    for (size_t i = 0; i < setting.requests.size(); ++i) {
      setting.requests[i].options.max_draft_depth = static_cast<int>(i % 3);
    }
    const ServedTwice served = serve_twice(setting, 0);
    EXPECT_EQ(served.difference, "");
    for (size_t i = 0; i < served.cold.of.size(); ++i) {
      if (i == 2) continue;  // does not speculate
      const std::vector<int64_t>& proposed = served.cold.of[i].stats.proposed_at;
      const size_t most = i % 3 == 0 ? proposed.size() : i % 3;
      for (size_t depth = 0; depth < proposed.size(); ++depth) {
        EXPECT_TRUE(depth < most || proposed[depth] == 0) << "request " << i;
      }
      EXPECT_GT(proposed[0], 0);
    }
  }
}

class ServedHead : public testing::TestWithParam<test::HeadFamily> {};

TEST_P(ServedHead, DraftsAreThoseOfAColdCache) {
  for (const DraftKind kind : {DraftKind::kHead, DraftKind::kHeadTree}) {
    for (const bool agrees : {true, false}) {
      if (kind == DraftKind::kHeadTree && !agrees) continue;
      SCOPED_TRACE(draft_kind_name(kind));
      Setting setting = setting_of(kind, 4, 1);
      setting.head = &test::easy_head(GetParam(), agrees);
      setting.requests = alike_requests(setting.head->target_vocab());
      const ServedTwice served = serve_twice(setting, 0);
      // Of several modules rows depend on more than the cache holds: nothing is reused.
      if (GetParam() == test::HeadFamily::kMtp) {
        EXPECT_EQ(served.difference, "");
      } else {
        expect_same_drafts(served);
      }
      const ServedTwice suspended = serve_twice(setting, 13);
      EXPECT_EQ(suspended.difference, "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ServedHead, testing::ValuesIn(test::kHeadFamilies),
                         [](const testing::TestParamInfo<test::HeadFamily>& tested) {
                           return std::string(test::head_family_name(tested.param));
                         });

}  // namespace aerie::serve_test
