// The rules that keep the distribution, and above temperature 0 not the tokens.

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "tests/decode/exactness.h"
#include "tests/testing/nightly.h"
#include "tests/testing/sanitized.h"

namespace aerie::rules_test {

class Rule : public testing::TestWithParam<VerifyRule> {
 protected:
  static Setting setting(DraftKind kind, int length, double temperature, Filter filter) {
    Setting setting;
    setting.kind = kind;
    setting.length = length;
    setting.rule = GetParam();
    setting.requests.push_back(request_with(sampling_with(temperature, filter, 12)));
    return setting;
  }
};

constexpr DraftKind kChains[] = {DraftKind::kNgram,     DraftKind::kPrediction,
                                 DraftKind::kSuffix,    DraftKind::kOtherModel,
                                 DraftKind::kSameModel, DraftKind::kRandomChain};

constexpr DraftKind kTrees[] = {
    DraftKind::kNgramTree,   DraftKind::kSuffixTree, DraftKind::kRecycling, DraftKind::kRest,
    DraftKind::kProphetTree, DraftKind::kMerged,     DraftKind::kAuto,      DraftKind::kSampledTree,
    DraftKind::kModelTree,   DraftKind::kStaticTree, DraftKind::kGated,     DraftKind::kGatedTree};

// What the rule can judge.
std::vector<DraftKind> kinds_for(VerifyRule rule) {
  std::vector<DraftKind> kinds(std::begin(kChains), std::end(kChains));
  kinds.insert(kinds.end(), std::begin(kTrees), std::end(kTrees));
  // Of other trees it judges the likeliest path, but what is drawn must not be cut.
  if (rule == VerifyRule::kBlock) {
    std::erase_if(kinds, [](DraftKind kind) {
      return kind == DraftKind::kSampledTree || kind == DraftKind::kModelTree ||
             kind == DraftKind::kStaticTree || kind == DraftKind::kGatedTree;
    });
  }
  return kinds;
}

TEST_P(Rule, KeepsTokensAtTemperatureZero) {
  constexpr int kLengths[] = {4, 1, 11};
  for (const Filter filter : kFilters) {
    if (test::kSanitized && filter != Filter::kNone && filter != Filter::kAll) continue;
    const std::vector<test::Request> requests = setting(DraftKind::kNgram, 4, 0.0, filter).requests;
    const test::Replies plain = plain_replies(requests, GetParam());
    // Those are the tokens of the exact rule.
    EXPECT_EQ(test::difference(plain_replies(requests, VerifyRule::kExact).of, plain.of), "");
    auto turn = static_cast<size_t>(filter);
    for (const DraftKind kind : kinds_for(GetParam())) {
      ++turn;
      for (size_t i = 0; i < std::size(kLengths); ++i) {
        if (test::kSanitized ? i > 0 : !test::nightly() && i != turn % 3) continue;
        Setting s = setting(kind, kLengths[i], 0.0, filter);
        s.plain = &plain;
        const Comparison comparison = compare_with_plain(s);
        EXPECT_EQ(comparison.difference, "")
            << draft_kind_name(kind) << ", " << filter_name(filter) << ", length " << kLengths[i];
        EXPECT_GT(comparison.speculative.of[0].stats.drafted, 0);
      }
    }
  }
}

TEST_P(Rule, AcceptsAllThatTheTargetItselfDrafts) {
  for (const double temperature : {0.0, 0.7, 1.2}) {
    for (const Filter filter : kFilters) {
      const Comparison comparison =
          compare_with_plain(setting(DraftKind::kSameModel, 4, temperature, filter));
      const SequenceStats& stats = comparison.speculative.of[0].stats;
      EXPECT_EQ(stats.accepted, stats.drafted) << temperature << ", " << filter_name(filter);
      EXPECT_GT(stats.mean_accepted_length(), 4.5);
    }
  }
}

// As long as the speculation settings stay the same, so do the tokens.
TEST_P(Rule, ReproducesFromASeed) {
  std::vector<DraftKind> kinds = kinds_for(GetParam());
  if (test::kSanitized) kinds.resize(std::min<size_t>(kinds.size(), 4));
  for (const DraftKind kind : kinds) {
    Setting s = setting(kind, 4, 0.9, Filter::kAll);
    const test::Replies first = compare_with_plain(s).speculative;
    s.chunk = 7;
    s.threads = 2;
    EXPECT_EQ(test::difference(first.of, compare_with_plain(s).speculative.of), "");
    s.requests[0].options.sampling.seed += 1;
    EXPECT_NE(test::difference(first.of, compare_with_plain(s).speculative.of), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, Rule,
                         testing::Values(VerifyRule::kRejection, VerifyRule::kBlock,
                                         VerifyRule::kTraversal),
                         [](const auto& rule) {
                           return std::string(verify_rule_name(rule.param));
                         });

}  // namespace aerie::rules_test
