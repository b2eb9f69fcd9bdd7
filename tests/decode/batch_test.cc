// Sequences with different settings in one round: each says what it says alone.

#include <gtest/gtest.h>

#include "tests/decode/exactness.h"
#include "tests/testing/tiny_model.h"

namespace aerie {
namespace {

using test::Request;

// Prompts of different lengths, joining and finishing at different times; one does not speculate.
std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  const int lengths[] = {1, 63, 64, 65, 150, 300};
  for (size_t i = 0; i < std::size(lengths); ++i) {
    Request request;
    request.prompt = test::random_tokens(20 + i, lengths[i], test::TinySpec{}.vocab);
    request.options.sampling =
        sampling_with(i % 3 == 0 ? 0.0 : 0.5 + 0.2 * static_cast<double>(i), kFilters[i], 50 + i);
    request.options.max_tokens = 40 + 30 * static_cast<int>(i % 4);
    request.options.speculate = i != 2;
    request.joins_at = 5 * static_cast<int>(i / 2);
    requests.push_back(std::move(request));
  }
  return requests;
}

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
        EXPECT_EQ(replies.of[i].stats.drafted > 0, setting.requests[i].options.speculate);
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

}  // namespace
}  // namespace aerie
