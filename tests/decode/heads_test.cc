// Exactness with trained heads: of every family random ones, which draft badly, and ones that are
// written down and draft well.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "tests/decode/exactness.h"
#include "tests/decode/pairwise_plan.h"
#include "tests/testing/sanitized.h"

namespace aerie::heads_test {

using test::easy_head;
using test::HeadFamily;
using test::Replies;

constexpr double kTemperatures[] = {0.0, 0.7, 1.2};
constexpr DraftKind kShapes[] = {
    DraftKind::kHead,           DraftKind::kHeadTree,  DraftKind::kHeadEagleTree,
    DraftKind::kHeadMedusaTree, DraftKind::kHeadBeams, DraftKind::kHeadFirst,
    DraftKind::kHeadMerged,     DraftKind::kHeadAuto,  DraftKind::kHeadGated};
constexpr int kLengths[] = {1, 2, 4, 7, 13};
constexpr int kChunks[] = {1, 7, 64, 512};
constexpr int kTokens = test::kSanitized ? 60 : 200;

std::string description(const Setting& setting) {
  return fmt::format("{} {}, {}, {}, length {}, chunk {}, {} threads",
                     setting.head->agrees() ? "agreeing" : "random",
                     test::head_family_name(setting.head->family()), draft_kind_name(setting.kind),
                     verify_rule_name(setting.rule), setting.length, setting.chunk,
                     setting.threads);
}

Setting setting_of(HeadFamily family, bool agrees, DraftKind kind, double temperature,
                   Filter filter = Filter::kNone, int tokens = kTokens) {
  Setting setting;
  setting.head = &easy_head(family, agrees);
  setting.kind = kind;
  setting.requests.push_back(request_with(sampling_with(temperature, filter, 3), 1 + tokens, 40,
                                          setting.head->target_vocab()));
  return setting;
}

double mean_accepted_length(const Comparison& comparison) {
  return comparison.speculative.of[0].stats.mean_accepted_length();
}

TEST(Heads, EveryValueMeetsEveryOther) {
  // Every combination of family, quality and shape.
  const PairwisePlan plan({std::size(test::kHeadFamilies), 2, std::size(kShapes), 3, 6,
                           std::size(kLengths), std::size(kChunks), 2},
                          3, 1);
  ASSERT_TRUE(plan.covers_all_pairs());
  size_t place = 0;
  for (const PairwisePlan::Combination& c : plan.combinations()) {
    if (test::kSanitized && place++ % 4 != 0) continue;
    Setting setting = setting_of(test::kHeadFamilies[c[0]], c[1] == 1, kShapes[c[2]],
                                 kTemperatures[c[3]], kFilters[c[4]]);
    setting.length = kLengths[c[5]];
    setting.chunk = kChunks[c[6]];
    setting.threads = 1 + c[7];
    SCOPED_TRACE(fmt::format("{}, temperature {}, {}", description(setting), kTemperatures[c[3]],
                             filter_name(kFilters[c[4]])));
    const Comparison comparison = compare_with_plain(setting);
    EXPECT_EQ(comparison.difference, "");
    EXPECT_EQ(comparison.speculative.of[0].tokens.size(), 1u + kTokens);
    expect_speculation(setting, comparison.speculative);
    if (HasFailure()) return;
  }
}

class Head : public testing::TestWithParam<HeadFamily> {};

// Otherwise nothing above showed that long runs are accepted, and refused.
TEST_P(Head, DraftsWellOrBadly) {
  for (const double temperature : {0.0, 0.7}) {
    const auto tau = [&](bool agrees) {
      const Comparison comparison = compare_with_plain(
          setting_of(GetParam(), agrees, DraftKind::kHead, temperature, Filter::kNone, 200));
      EXPECT_EQ(comparison.difference, "");
      return mean_accepted_length(comparison);
    };
    EXPECT_GT(tau(true), temperature > 0.0 ? 1.5 : 2.0) << "temperature " << temperature;
    EXPECT_LT(tau(false), 1.3) << "temperature " << temperature;
  }
}

// A tree holds more of what may come than a chain as deep.
TEST_P(Head, TreesAreBetterThanChains) {
  const auto tau = [&](DraftKind kind) {
    return mean_accepted_length(
        compare_with_plain(setting_of(GetParam(), true, kind, 1.2, Filter::kNone, 200)));
  };
  const double chain = tau(DraftKind::kHead);
  EXPECT_GT(tau(DraftKind::kHeadTree), chain);
  EXPECT_GT(tau(DraftKind::kHeadMedusaTree), chain);
}

TEST_P(Head, SaysInABatchWhatEachSaysAlone) {
  for (const DraftKind kind :
       {DraftKind::kHead, DraftKind::kHeadTree, DraftKind::kHeadFirst, DraftKind::kHeadAuto}) {
    Setting setting = setting_of(GetParam(), true, kind, 0.0);
    setting.requests = mixed_requests(setting.head->target_vocab());
    setting.threads = 2;
    setting.chunk = 64;
    SCOPED_TRACE(description(setting));
    const Comparison comparison = compare_with_plain(setting);
    EXPECT_EQ(comparison.difference, "");
    const Replies& replies = comparison.speculative;
    EXPECT_EQ(replies.passes, replies.prefill_passes + replies.rounds);
    for (size_t i = 0; i < replies.of.size(); ++i) {
      EXPECT_EQ(replies.of[i].stats.drafted > 0, setting.requests[i].options.speculate);
    }
    // Drafts that do not fit a round are left out, and nothing else changes.
    setting.max_logits = 9;
    EXPECT_EQ(compare_with_plain(setting).difference, "");
  }
}

constexpr VerifyRule kDrawingRules[] = {VerifyRule::kRejection, VerifyRule::kBlock,
                                        VerifyRule::kTraversal};

TEST_P(Head, OtherRulesKeepTokensAtTemperatureZero) {
  int filter = static_cast<int>(GetParam());
  for (const VerifyRule rule : kDrawingRules) {
    for (const DraftKind kind : {DraftKind::kHead, DraftKind::kHeadTree, DraftKind::kHeadEagleTree,
                                 DraftKind::kHeadAuto}) {
      for (const bool agrees : {true, false}) {
        Setting setting =
            setting_of(GetParam(), agrees, kind, 0.0, kFilters[filter++ % 6], kTokens / 2);
        setting.rule = rule;
        SCOPED_TRACE(description(setting));
        const Comparison comparison = compare_with_plain(setting);
        EXPECT_EQ(comparison.difference, "");
        EXPECT_GT(comparison.speculative.of[0].stats.drafted, 0);
      }
    }
  }
}

// What is drawn must not hang on how the prompt was read or on threads, and it is drawn well.
TEST_P(Head, OtherRulesReproduceFromASeed) {
  for (const VerifyRule rule : kDrawingRules) {
    for (const DraftKind kind : {DraftKind::kHead, DraftKind::kHeadTree, DraftKind::kHeadMerged}) {
      if (rule == VerifyRule::kBlock && kind != DraftKind::kHead) continue;
      Setting setting = setting_of(GetParam(), true, kind, 0.7, Filter::kTopP, kTokens / 2);
      setting.rule = rule;
      SCOPED_TRACE(description(setting));
      const Comparison first = compare_with_plain(setting);
      EXPECT_GT(mean_accepted_length(first), 1.5);
      setting.chunk = 7;
      setting.threads = 2;
      const Replies again = compare_with_plain(setting).speculative;
      EXPECT_EQ(test::difference(first.speculative.of, again.of), "");
      setting.requests[0].options.sampling.seed += 1;
      const Replies other = compare_with_plain(setting).speculative;
      EXPECT_NE(test::difference(first.speculative.of, other.of), "");
    }
  }
}

// What is logged while a head drafts for two sequences, one after the other.
std::string warnings_of(const test::TinyFile& target, test::TinyHead& head) {
  const auto model = target.load(test::model_options());
  test::TinyHeadRun run;
  run.drafter.pairing = "this head for that target";
  run.drafter.num_tokens = 3;
  run.max_positions = 256;
  run.pool = &test::pool_of(1);
  const auto drafter = head.drafter(*model, run);
  DecoderOptions options;
  options.max_positions = run.max_positions;
  options.max_nodes = 3;
  const ModelCache owned_cache = test::cache_for(*model, options, 1);
  KvCache& cache = *owned_cache;
  const test::Request request = request_with({}, 100, 20, model->config().vocab);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) test::decode(*model, cache, drafter.get(), options, {&request, 1});
  return testing::internal::GetCapturedStderr();
}

// The usual causes of a head that is never right are the user's to mend.
TEST_P(Head, WarnsOnceOfChance) {
  EXPECT_EQ(warnings_of(test::easy_file(), easy_head(GetParam(), true)), "");
  test::TinySpec spec;
  spec.vocab = 500;  // so that chance is seldom right
  const test::TinyFile target(spec);
  test::TinyHead head(target.gguf(), GetParam(), false);
  const std::string warnings = warnings_of(target, head);
  EXPECT_THAT(warnings, testing::HasSubstr("this head for that target: of its first 48 first "));
  EXPECT_THAT(warnings, testing::HasSubstr("near chance"));
  EXPECT_EQ(std::ranges::count(warnings, '\n'), 1) << warnings;
}

INSTANTIATE_TEST_SUITE_P(Families, Head, testing::ValuesIn(test::kHeadFamilies),
                         [](const auto& family) {
                           return std::string(test::head_family_name(family.param));
                         });

}  // namespace aerie::heads_test
