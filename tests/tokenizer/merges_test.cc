#include "tokenizer/load/merges.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace aerie::merges_test {

using Pair = std::pair<int32_t, int32_t>;

// By definition: while a pair of neighbours has a rule, join the leftmost of those of least rank.
std::vector<int32_t> brute_force(const std::vector<MergeRule>& rules, std::vector<int32_t> word) {
  std::map<Pair, size_t> ranks;
  for (size_t rank = 0; rank < rules.size(); ++rank) {
    ranks[{rules[rank].left, rules[rank].right}] = rank;
  }
  while (true) {
    size_t best = rules.size(), at = 0;
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      const auto found = ranks.find({word[i], word[i + 1]});
      if (found != ranks.end() && found->second < best) best = found->second, at = i;
    }
    if (best == rules.size()) return word;
    word[at] = rules[best].result;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Random rules over `letters` letters. Results may be letters and earlier results: unlike in a
// trained vocabulary, a rule may make what an earlier rule joins.
std::vector<MergeRule> random_rules(std::mt19937& random, int32_t letters, int32_t vocab) {
  std::map<Pair, bool> seen;
  std::vector<MergeRule> rules;
  for (int i = 0; i < 60; ++i) {
    const auto id = [&](int32_t below) { return static_cast<int32_t>(random() % below); };
    const MergeRule rule{id(vocab), id(vocab), letters + id(vocab - letters)};
    if (!seen.emplace(Pair{rule.left, rule.right}, true).second) continue;
    rules.push_back(rule);
  }
  return rules;
}

TEST(Merger, AgreesWithTheDefinition) {
  std::mt19937 random(1);
  constexpr int32_t kLetters = 4, kVocab = 12;
  size_t joined = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto rules = random_rules(random, kLetters, kVocab);
    const MergeTable table(rules, kVocab);
    ASSERT_EQ(table.duplicate(), MergeTable::kNoRank);
    Merger merger(table);
    // Both sides of the length at which the method changes, the merger used again.
    for (const size_t length : {random() % 20, random() % 60, 40 + random() % 200}) {
      std::vector<int32_t> word(length);
      for (int32_t& id : word) id = static_cast<int32_t>(random() % kLetters);
      std::vector<int32_t> merged = word;
      merger.merge(merged);
      ASSERT_EQ(merged, brute_force(rules, word)) << "length " << length;
      joined += word.size() - merged.size();
    }
  }
  EXPECT_GT(joined, 100'000u);
}

TEST(Merger, LeftmostOfEqualRankFirst) {
  const std::vector<MergeRule> rules = {{0, 0, 1}};
  const MergeTable table(rules, 2);
  for (const size_t length : {3u, 4u, 101u, 100u}) {
    std::vector<int32_t> word(length, 0);
    Merger(table).merge(word);
    std::vector<int32_t> expected(length / 2, 1);
    if (length % 2 == 1) expected.push_back(0);
    EXPECT_EQ(word, expected);
  }
}

TEST(MergeTable, FindsEveryRuleAndNothingElse) {
  std::mt19937 random(2);
  const auto rules = random_rules(random, 3, 9);
  const MergeTable table(rules, 9);
  size_t found = 0;
  for (int32_t left = 0; left < 9; ++left) {
    for (int32_t right = 0; right < 9; ++right) {
      const auto pair = table.find(left, right);
      if (pair.rank == MergeTable::kNoRank) continue;
      ++found;
      ASSERT_EQ(rules[pair.rank].left, left);
      ASSERT_EQ(rules[pair.rank].right, right);
      ASSERT_EQ(rules[pair.rank].result, pair.result);
    }
  }
  EXPECT_EQ(found, rules.size());
}

TEST(MergeTable, NamesADuplicate) {
  const std::vector<MergeRule> rules = {{0, 1, 2}, {1, 0, 2}, {0, 1, 2}};
  EXPECT_EQ(MergeTable(rules, 3).duplicate(), 2u);
}

}  // namespace aerie::merges_test
