#include "measure/spec/spec_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "measure/spec/speculation_model.h"

namespace aerie::measure::spec_summary_test {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

Tally paced(int64_t tokens, double seconds, double prompt_seconds = 0.0) {
  Tally tally;
  tally.tokens = tokens;
  tally.seconds = seconds;
  tally.prompt_seconds = prompt_seconds;
  return tally;
}

// Plain decoding took `plain` seconds, the method `own`.
Reply reply(int prompt, double plain, double own, bool looped = false, int64_t tokens = 100) {
  return {prompt, "task", looped, {paced(tokens, plain, 1.0), paced(tokens, own, 1.0)}};
}

std::vector<int32_t> repeating(int before, int period, int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(before));
  std::iota(tokens.begin(), tokens.end(), 1000);
  for (int i = 0; i < count; ++i) tokens.push_back(i % period);
  return tokens;
}

TEST(SpecSummary, FindsLoops) {
  EXPECT_TRUE(is_looped(repeating(50, 1, 22)));
  EXPECT_FALSE(is_looped(repeating(50, 1, 21)));
  EXPECT_TRUE(is_looped(repeating(0, 30, 80)));
  EXPECT_FALSE(is_looped(repeating(0, 30, 79)));
  EXPECT_FALSE(is_looped({}));
  // Wherever it is, and with other tokens between.
  std::vector<int32_t> refrain;
  for (int32_t verse = 0; verse < 3; ++verse) {
    refrain.push_back(100 + verse);
    for (int32_t i = 0; i < 20; ++i) refrain.push_back(i);
  }
  refrain.push_back(77);
  EXPECT_TRUE(is_looped(refrain));
  refrain[45] = 88;
  EXPECT_FALSE(is_looped(refrain));
}

TEST(SpecSummary, ComparesIds) {
  const std::vector<int32_t> plain = {5, 6, 7};
  const auto message = [&](const std::vector<int32_t>& own) {
    const Status status = check_same_ids("here", plain, own);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    return status.message();
  };
  EXPECT_TRUE(check_same_ids("here", plain, plain).ok());
  EXPECT_TRUE(check_same_ids("here", {}, {}).ok());
  EXPECT_THAT(message({5, 9, 7}), HasSubstr("here: "));
  EXPECT_THAT(message({5, 9, 7}), HasSubstr("token 1 is 9 and should be 6"));
  EXPECT_THAT(message({5, 6}), HasSubstr("token 2 is the end and should be 7"));
  EXPECT_THAT(message({5, 6, 7, 8}), HasSubstr("token 3 is 8 and should be the end"));
}

TEST(SpecSummary, TheMedianRepetitionCounts) {
  EXPECT_EQ(median_of({paced(1, 5.0)}).seconds, 5.0);
  EXPECT_EQ(median_of({paced(1, 17000.0), paced(1, 2.0), paced(1, 3.0)}).seconds, 3.0);
  EXPECT_EQ(median_of({paced(1, 9.0), paced(1, 2.0)}).seconds, 2.0);
  EXPECT_EQ(median_of({paced(1, 1.0, 9.0), paced(1, 2.0), paced(1, 3.0)}).seconds, 3.0);
}

TEST(SpecSummary, SpeedupIsTheRatioOfTokensPerSecond) {
  // Long replies weigh more: 12 s against 4 s.
  const std::vector<Reply> replies = {reply(0, 10.0, 2.0), reply(1, 2.0, 2.0)};
  const Figures f = summarize(replies, 1, 1);
  EXPECT_EQ(f.replies, 2);
  EXPECT_EQ(f.tokens, 200);
  EXPECT_DOUBLE_EQ(f.tokens_per_second, 50.0);
  EXPECT_DOUBLE_EQ(f.speedup.value, 3.0);
  EXPECT_DOUBLE_EQ(f.speedup_with_prompt.value, 14.0 / 6.0);
  const Figures plain = summarize(replies, 0, 1);
  EXPECT_EQ(plain.speedup.value, 1.0);
  EXPECT_EQ(plain.speedup.interval, std::pair(1.0, 1.0));
  // A method that writes other replies is judged by its own tokens.
  std::vector<Reply> other = {reply(0, 10.0, 10.0)};
  other[0].methods[1].tokens = 200;
  EXPECT_DOUBLE_EQ(summarize(other, 1, 1).speedup.value, 2.0);
}

TEST(SpecSummary, IntervalsAreOfPrompts) {
  std::vector<Reply> replies;
  for (int i = 0; i < 40; ++i) replies.push_back(reply(i, 1.0, i % 2 == 0 ? 1.0 : 0.25));
  const Figures f = summarize(replies, 1, 1);
  EXPECT_DOUBLE_EQ(f.speedup.value, 1.6);
  ASSERT_TRUE(f.speedup.interval);
  // The mean of 40 draws of 1 and 0.25 has the deviation 0.375 / sqrt(40) = 0.0593, so 95 % of the
  // speed-ups lie between 1 / (0.625 + 0.116) and 1 / (0.625 - 0.116).
  EXPECT_NEAR(f.speedup.interval->first, 1.35, 0.04);
  EXPECT_NEAR(f.speedup.interval->second, 1.97, 0.08);
  EXPECT_EQ(summarize(replies, 1, 1).speedup.interval, f.speedup.interval);
  // Turns of a prompt go together: all of one prompt leave nothing to draw.
  for (Reply& one : replies) one.prompt = 3;
  EXPECT_FALSE(summarize(replies, 1, 1).speedup.interval);
  for (size_t i = 0; i < replies.size(); ++i) replies[i].prompt = static_cast<int>(i / 20);
  EXPECT_DOUBLE_EQ(summarize(replies, 1, 1).speedup.interval->first, 1.6);
}

EmittedToken token(TokenOrigin origin) {
  return {0, origin, {}};
}

// Rounds of a draft of three: one refused at once, one after two, one accepted whole, one that had
// no draft, and one whose second token ended the reply.
Generation five_rounds() {
  using enum TokenOrigin;
  Generation g;
  for (const TokenOrigin origin :
       {kTarget, kCorrection, kAccepted, kAccepted, kCorrection, kAccepted, kAccepted, kAccepted,
        kBonus, kTarget, kAccepted, kAccepted}) {
    g.emitted.push_back(token(origin));
    g.tokens.push_back(0);
  }
  g.stats.rounds = 5;
  g.stats.round_tokens = 11;
  g.stats.drafted = 12;
  g.stats.accepted = 7;
  g.stats.proposed_at = {4, 4, 4, 0};
  g.stats.accepted_at = {3, 3, 1, 0};
  g.generation_seconds = 1.1;
  g.prompt_seconds = 0.5;
  g.times.seconds[static_cast<size_t>(Stage::kSample)] = 0.4;
  g.prompt_times.seconds[static_cast<size_t>(Stage::kSample)] = 0.1;
  g.times.seconds[static_cast<size_t>(Stage::kPrefill)] = 0.5;
  g.prompt_times.seconds[static_cast<size_t>(Stage::kPrefill)] = 0.5;
  g.rounds = {{1, 0.1}, {3, 0.3}, {4, 0.2}, {1, 0.1}, {2, 0.4}};
  return g;
}

TEST(SpecSummary, CountsRefusals) {
  const Tally tally = tally_of(five_rounds());
  EXPECT_EQ(tally.tokens, 11);
  EXPECT_THAT(tally.refused_at, ElementsAre(1, 0, 1, 0));
  EXPECT_NEAR(tally.times.of(Stage::kSample), 0.3, 1e-12);
  EXPECT_EQ(tally.times.of(Stage::kPrefill), 0.0);
  EXPECT_EQ(tally_of(Generation()).tokens, 0);
}

TEST(SpecSummary, Acceptance) {
  Reply one = reply(0, 1.0, 1.0);
  one.methods[1] = tally_of(five_rounds());
  const Figures f = summarize(std::vector<Reply>{one}, 1, 1);
  EXPECT_DOUBLE_EQ(f.mean_accepted_length, 2.2);
  EXPECT_DOUBLE_EQ(f.acceptance_rate, 7.0 / 12.0);
  EXPECT_EQ(f.drafted, 12);
  EXPECT_EQ(f.accepted, 7);
  EXPECT_EQ(f.wasted, 5);
  // Over all rounds; over those that were judged there. The fourth depth was never drafted.
  EXPECT_THAT(f.per_position_acceptance, ElementsAre(0.6, 0.6, 0.2));
  EXPECT_THAT(f.n_alpha, ElementsAre(0.75, 1.0, 0.5));
  EXPECT_DOUBLE_EQ(f.alpha, 7.0 / 9.0);
  EXPECT_THAT(f.expected_length, DoubleEq(1.0 + 0.8 * (expected_tokens(7.0 / 9.0, 3) - 1.0)));
}

TEST(SpecSummary, TokensShareTheTimeOfTheirRound) {
  Reply one = reply(0, 1.0, 1.0);
  one.methods[1] = tally_of(five_rounds());
  const Figures f = summarize(std::vector<Reply>{one}, 1, 1);
  // Four at 50 ms, five at 100, two at 200.
  EXPECT_NEAR(f.ms_per_token_p50, 100.0, 1e-9);
  EXPECT_NEAR(f.ms_per_token_p99, 200.0, 1e-9);
}

TEST(SpecSummary, AddsUpDifferentDepths) {
  Reply one = reply(0, 1.0, 1.0), two = reply(1, 1.0, 1.0);
  one.methods[1] = tally_of(five_rounds());
  two.methods[1].rounds = 5;
  two.methods[1].proposed_at = {5};
  two.methods[1].accepted_at = {5};
  two.methods[1].refused_at = {0};
  const Figures f = summarize(std::vector<Reply>{two, one}, 1, 1);
  EXPECT_THAT(f.per_position_acceptance, ElementsAre(0.8, 0.3, 0.1));
}

TEST(SpecSummary, NothingAtAll) {
  const Figures f = summarize({}, 1, 1);
  EXPECT_EQ(f.replies, 0);
  EXPECT_EQ(f.speedup.value, 0.0);
  EXPECT_FALSE(f.speedup.interval);
  EXPECT_EQ(f.expected_length, 0.0);
}

TEST(SpecSummary, TasksAndLoops) {
  std::vector<Reply> replies = {reply(0, 4.0, 1.0, true), reply(1, 1.0, 1.0), reply(2, 1.0, 1.0)};
  replies[1].task = "other";
  EXPECT_THAT(tasks_of(replies), ElementsAre("task", "other"));
  EXPECT_EQ(of_task(replies, "task").size(), 2u);
  EXPECT_EQ(of_task(replies, "task")[1].prompt, 2);
  EXPECT_EQ(without_loops(replies).size(), 2u);
  EXPECT_EQ(summarize(replies, 1, 1).looped, 1);
  EXPECT_DOUBLE_EQ(summarize(replies, 1, 1).speedup.value, 2.0);
  EXPECT_DOUBLE_EQ(summarize(without_loops(replies), 1, 1).speedup.value, 1.0);
}

}  // namespace aerie::measure::spec_summary_test
