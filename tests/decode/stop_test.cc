// Whatever ends a reply cuts an accepted run where plain decoding would have ended.

#include <gtest/gtest.h>

#include "tests/decode/exactness.h"
#include "tests/testing/tiny_model.h"

namespace aerie::stop_test {

using test::Request;

Setting setting_for(DraftKind kind, int length, Request request) {
  Setting setting;
  setting.kind = kind;
  setting.length = length;
  setting.requests.push_back(std::move(request));
  return setting;
}

// Ends with the n-th token that it sees, or with the first of an id.
class TestStop final : public StopCondition {
 public:
  TestStop(int after, int32_t id, std::vector<int32_t>* seen)
      : after_(after), id_(id), seen_(seen) {}
  bool stops_after(int32_t token) override {
    seen_->push_back(token);
    return static_cast<int>(seen_->size()) == after_ || token == id_;
  }

 private:
  int after_;
  int32_t id_;
  std::vector<int32_t>* seen_;
};

class Stop : public testing::TestWithParam<DraftKind> {};

TEST_P(Stop, AtMaxTokens) {
  for (int tokens = 1; tokens <= 24; ++tokens) {
    const Setting setting =
        setting_for(GetParam(), 7, request_with(sampling_with(0.7, Filter::kTopP, 4), tokens));
    const Comparison comparison = compare_with_plain(setting);
    EXPECT_EQ(comparison.difference, "");
    const test::Reply& reply = comparison.speculative.of[0];
    EXPECT_EQ(static_cast<int>(reply.tokens.size()), tokens);
    EXPECT_EQ(reply.finish, FinishReason::kLength);
  }
}

TEST_P(Stop, ByAConditionAnywhereInARun) {
  for (int after = 1; after <= 24; ++after) {
    std::vector<int32_t> seen;
    Request request = request_with(sampling_with(0.7, Filter::kTopP, 4));
    request.make_stop = [&] {
      seen.clear();
      return std::make_unique<TestStop>(after, -1, &seen);
    };
    const Comparison comparison = compare_with_plain(setting_for(GetParam(), 7, request));
    EXPECT_EQ(comparison.difference, "");
    const test::Reply& reply = comparison.speculative.of[0];
    EXPECT_EQ(static_cast<int>(reply.tokens.size()), after);
    EXPECT_EQ(reply.finish, FinishReason::kStop);
    // Each token was shown to it once, and none behind the last.
    EXPECT_EQ(seen, reply.tokens);
  }
}

TEST_P(Stop, ByAToken) {
  const SamplingParams sampling = sampling_with(1.2, Filter::kNone, 4);
  std::vector<Request> whole(1, request_with(sampling, 60));
  const std::vector<int32_t> tokens = plain_replies(whole, VerifyRule::kExact).of[0].tokens;
  for (const size_t at : {3u, 17u, 41u}) {
    std::vector<int32_t> seen;
    Request request = whole[0];
    request.make_stop = [&] {
      seen.clear();
      return std::make_unique<TestStop>(-1, tokens[at], &seen);
    };
    const Comparison comparison = compare_with_plain(setting_for(GetParam(), 9, request));
    EXPECT_EQ(comparison.difference, "");
    EXPECT_EQ(comparison.speculative.of[0].finish, FinishReason::kStop);
    EXPECT_EQ(comparison.speculative.of[0].tokens.back(), tokens[at]);
  }
}

TEST_P(Stop, AtTheEndOfTheContext) {
  for (int length = 1; length <= 16; ++length) {
    Request request = request_with(sampling_with(0.7, Filter::kTopP, 4), 1000);
    request.prompt = test::random_tokens(8, kMaxPositions - 20, test::TinySpec{}.vocab);
    const Comparison comparison = compare_with_plain(setting_for(GetParam(), length, request));
    EXPECT_EQ(comparison.difference, "") << length;
    // The last token needs no place in the cache.
    EXPECT_EQ(comparison.speculative.of[0].tokens.size(), 21u);
    EXPECT_EQ(comparison.speculative.of[0].finish, FinishReason::kLength);
  }
}

INSTANTIATE_TEST_SUITE_P(Drafters, Stop, testing::ValuesIn(kDraftKinds), draft_kind_test_name);

}  // namespace aerie::stop_test
