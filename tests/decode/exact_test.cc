// Turning speculation on changes no token: every drafter, temperature, filter, draft length, prompt
// chunking and thread count meets every other, and speculation is shown to take place.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>

#include "tests/decode/exactness.h"
#include "tests/decode/pairwise_plan.h"
#include "tests/testing/nightly.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/tiny_model.h"

namespace aerie::exact_test {

using test::Reply;

constexpr double kTemperatures[] = {0.0, 0.7, 1.2};
constexpr int kKinds = std::size(kDraftKinds);
constexpr int kLengths = 16;
constexpr int kChunks[] = {1, 7, 64, 512};
constexpr int kThreads[] = {1, 2};

// The same weights draft what the target says: every round that drafts is accepted whole. Where a
// pass has few rows the draft model still reads the prompt in the first rounds, which draft
// nothing.
void expect_perfect_drafts(const Setting& setting, const Reply& reply) {
  const auto length = static_cast<int64_t>(setting.length);
  const auto left = static_cast<int64_t>(reply.tokens.size()) - 1;
  EXPECT_EQ(reply.stats.accepted, reply.stats.drafted);
  const int64_t drafting = reply.stats.proposed_at.at(0);
  const int64_t reading = reply.stats.rounds - drafting;
  EXPECT_EQ(drafting, (left - reading + length) / (length + 1));
  EXPECT_LE(reading, 8);
  if (reading == 0 && left % (length + 1) == 0) {
    EXPECT_EQ(reply.stats.mean_accepted_length(), static_cast<double>(length + 1));
  }
}

TEST(Exact, EveryValueMeetsEveryOther) {
  // Every combination of drafter, temperature and filter, at night twice; with a sanitizer, of
  // drafter and temperature.
  const PairwisePlan plan({kKinds, 3, 6, kLengths, 4, 2}, test::kSanitized ? 2 : 3,
                          test::nightly() && !test::kSanitized ? 2 : 1);
  ASSERT_TRUE(test::kSanitized || plan.covers_all_pairs());
  const int least = test::kSanitized ? 60 : 200;
  for (const PairwisePlan::Combination& c : plan.combinations()) {
    Setting setting;
    setting.kind = kDraftKinds[c[0]];
    setting.length = c[3] + 1;
    setting.chunk = kChunks[c[4]];
    setting.threads = kThreads[c[5]];
    const double temperature = kTemperatures[c[1]];
    const Filter filter = kFilters[c[2]];
    // Rounds of the perfect draft come out even.
    const int tokens = 1 + (setting.length + 1) * (least / (setting.length + 1) + 1);
    setting.requests.push_back(request_with(
        sampling_with(temperature, filter, 1000 + static_cast<uint64_t>(c[3])), tokens));
    SCOPED_TRACE(fmt::format("{}, temperature {}, {}, length {}, chunk {}, {} threads",
                             draft_kind_name(setting.kind), temperature, filter_name(filter),
                             setting.length, setting.chunk, setting.threads));
    const Comparison comparison = compare_with_plain(setting);
    EXPECT_EQ(comparison.difference, "");
    const Reply& reply = comparison.speculative.of[0];
    EXPECT_GE(static_cast<int>(reply.tokens.size()), least);
    expect_speculation(setting, comparison.speculative);
    if (setting.kind == DraftKind::kSameModel) expect_perfect_drafts(setting, reply);
    const bool quotes =
        setting.kind == DraftKind::kNgram || setting.kind == DraftKind::kNgramTree ||
        setting.kind == DraftKind::kSuffix || setting.kind == DraftKind::kSuffixTree;
    const bool good =
        (quotes && temperature == 0.0 && filter != Filter::kPenalties && filter != Filter::kAll) ||
        (setting.kind == DraftKind::kPrediction && setting.length > 1) ||
        setting.kind == DraftKind::kSameModel || setting.kind == DraftKind::kModelTree ||
        setting.kind == DraftKind::kStaticTree || setting.kind == DraftKind::kProphetTree;
    EXPECT_GT(reply.stats.mean_accepted_length(), good ? 1.5 : 0.99);
    if (HasFailure()) return;
  }
}

}  // namespace aerie::exact_test
