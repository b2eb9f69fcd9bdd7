// Turning speculation on changes no token: every drafter, temperature, filter, draft length, prompt
// chunking and thread count meets every other, and speculation is shown to take place.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "tests/decode/exactness.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/tiny_model.h"

namespace aerie {
namespace {

using test::Replies;
using test::Reply;
using test::Request;

constexpr double kTemperatures[] = {0.0, 0.7, 1.2};
constexpr int kKinds = std::size(kDraftKinds);
constexpr int kLengths = 16;
constexpr int kChunks[] = {1, 7, 64, 512};
constexpr int kThreads[] = {1, 2};

// Indices into the six lists of values.
using Combination = std::array<int, 6>;
constexpr Combination kSizes = {kKinds, 3, 6, kLengths, 4, 2};

// Every combination of drafter, temperature and filter, `times` times; the other values are chosen
// so that as many new pairs as possible come together.
class PairwisePlan {
 public:
  explicit PairwisePlan(int times) {
    for (int n = 0; n < times * kKinds * 18; ++n) {
      Combination best = {n % kKinds, n / kKinds % 3, n / kKinds / 3 % 6, 0, 0, 0};
      int most = -1;
      for (int rest = 0; rest < kLengths * 8; ++rest) {
        // Starting elsewhere each time spreads what does not matter.
        const int turned = (rest + 37 * n) % (kLengths * 8);
        Combination c = best;
        c[3] = turned % kLengths;
        c[4] = turned / kLengths % 4;
        c[5] = turned / kLengths / 4;
        const int gain = new_pairs(c);
        if (gain > most) most = gain, best = c;
      }
      for_each_pair(best, [&](const Pair& pair) { covered_.insert(pair); });
      combinations.push_back(best);
    }
  }

  size_t covered() const { return covered_.size(); }
  static size_t all_pairs() {
    size_t count = 0;
    for (size_t i = 0; i < kSizes.size(); ++i) {
      for (size_t j = i + 1; j < kSizes.size(); ++j) {
        count += static_cast<size_t>(kSizes[i] * kSizes[j]);
      }
    }
    return count;
  }

  std::vector<Combination> combinations;

 private:
  using Pair = std::array<int, 4>;  // two factors, their values
  template <typename Fn>
  static void for_each_pair(const Combination& c, const Fn& fn) {
    for (int i = 0; i < 6; ++i) {
      for (int j = i + 1; j < 6; ++j) {
        fn(Pair{i, j, c[static_cast<size_t>(i)], c[static_cast<size_t>(j)]});
      }
    }
  }
  int new_pairs(const Combination& c) const {
    int count = 0;
    for_each_pair(c, [&](const Pair& pair) { count += covered_.contains(pair) ? 0 : 1; });
    return count;
  }
  std::set<Pair> covered_;
};

// That the target ran once for each round and chunk, and that drafts were made and judged.
void expect_speculation(const Setting& setting, const Replies& replies) {
  EXPECT_EQ(replies.passes, replies.prefill_passes + replies.rounds);
  for (size_t i = 0; i < replies.of.size(); ++i) {
    const SequenceStats& stats = replies.of[i].stats;
    if (!setting.requests[i].options.speculate) {
      EXPECT_EQ(stats.drafted, 0);
      continue;
    }
    EXPECT_GT(stats.drafted, 0);
    EXPECT_EQ(stats.round_tokens, static_cast<int64_t>(replies.of[i].tokens.size()) - 1);
    EXPECT_EQ(stats.round_tokens, stats.rounds + stats.accepted);
  }
}

// The same weights draft what the target says: every round is accepted whole.
void expect_perfect_drafts(const Setting& setting, const Reply& reply) {
  const auto length = static_cast<int64_t>(setting.length);
  const auto left = static_cast<int64_t>(reply.tokens.size()) - 1;
  EXPECT_EQ(reply.stats.accepted, reply.stats.drafted);
  EXPECT_EQ(reply.stats.rounds, (left + length) / (length + 1));
  if (left % (length + 1) == 0) {
    EXPECT_EQ(reply.stats.mean_accepted_length(), static_cast<double>(length + 1));
  }
}

TEST(Exact, EveryValueMeetsEveryOther) {
  const PairwisePlan plan(test::kSanitized ? 1 : 2);
  ASSERT_TRUE(test::kSanitized || plan.covered() == PairwisePlan::all_pairs());
  const int least = test::kSanitized ? 60 : 200;
  for (const Combination& c : plan.combinations) {
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

}  // namespace
}  // namespace aerie
