// Sequences with different settings in one round: each says what it says alone.

#include <gtest/gtest.h>

#include "tests/decode/exactness.h"

namespace aerie::batch_test {

class Batch : public testing::TestWithParam<DraftKind> {};

TEST_P(Batch, SaysWhatEachSaysAlone) {
  for (const int threads : {1, 2}) {
    for (const int length : {2, 5, 13}) {
      Setting setting;
      setting.kind = GetParam();
      setting.length = length;
      setting.threads = threads;
      setting.chunk = 64;
      setting.requests = mixed_requests();
      const Comparison comparison = compare_with_plain(setting);
      EXPECT_EQ(comparison.difference, "") << "length " << length << ", threads " << threads;
      const test::Replies& replies = comparison.speculative;
      EXPECT_EQ(replies.passes, replies.prefill_passes + replies.rounds);
      for (size_t i = 0; i < replies.of.size(); ++i) {
        const bool drafts = replies.of[i].stats.drafted > 0;
        const bool may = setting.requests[i].options.speculate;
        EXPECT_TRUE(drafts == may || (is_gated(setting.kind) && may)) << i;
      }
    }
  }
}

// Drafts that do not fit a round are left out, and nothing else changes.
TEST_P(Batch, FitsTheModelsLimits) {
  for (const int max_logits : {6, 7, 16, 33}) {
    Setting setting;
    setting.kind = GetParam();
    setting.length = 5;
    setting.chunk = 64;
    setting.max_logits = max_logits;
    setting.requests = mixed_requests();
    EXPECT_EQ(compare_with_plain(setting).difference, "") << max_logits << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(Drafters, Batch, testing::ValuesIn(kDraftKinds), draft_kind_test_name);

}  // namespace aerie::batch_test
