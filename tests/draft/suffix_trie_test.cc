#include "draft/lookup/suffix_trie.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include "tests/testing/allocation_counter.h"

namespace aerie::suffix_trie_test {

using Tokens = std::vector<int32_t>;

// What is known of one string: what followed it how often, and when last.
struct Next {
  int count = 0;
  size_t latest = 0;
};

// Texts, and every question by going through all of them.
class ByHand {
 public:
  void append(int32_t token) { texts_.back().push_back(token); }
  void end_text() {
    if (!texts_.back().empty()) texts_.emplace_back();
  }
  void drop_oldest() { texts_.pop_front(); }
  const Tokens& text() const { return texts_.back(); }
  const std::deque<Tokens>& texts() const { return texts_; }

  bool occurs(const Tokens& string) const {
    return std::ranges::any_of(texts_, [&](const Tokens& text) {
      return std::ranges::search(text, string).begin() != text.end();
    });
  }
  std::map<int32_t, Next> next(const Tokens& string) const {
    std::map<int32_t, Next> found;
    size_t moment = 0;
    for (const Tokens& text : texts_) {
      for (size_t end = 0; end < text.size(); ++end) {
        ++moment;
        if (end < string.size()) continue;
        const auto begin = text.begin() + static_cast<std::ptrdiff_t>(end - string.size());
        if (!std::equal(string.begin(), string.end(), begin)) continue;
        Next& next = found[text[end]];
        ++next.count;
        next.latest = moment;
      }
    }
    return found;
  }

 private:
  std::deque<Tokens> texts_ = {{}};
};

void expect_same_continuations(const SuffixTrie& trie, SuffixTrie::Point point,
                               const std::map<int32_t, Next>& expected, double least) {
  int total = 0;
  for (const auto& [token, next] : expected) total += next.count;
  std::vector<std::pair<int32_t, Next>> order;
  for (const auto& [token, next] : expected) {
    if (static_cast<double>(next.count) / total >= least) order.emplace_back(token, next);
  }
  std::ranges::sort(order, [](const auto& a, const auto& b) {
    return a.second.count != b.second.count ? a.second.count > b.second.count
                                            : a.second.latest > b.second.latest;
  });
  std::vector<SuffixTrie::Continuation> found;
  trie.continuations(point, least, found);
  ASSERT_EQ(found.size(), order.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].token, order[i].first) << "rank " << i;
    ASSERT_EQ(found[i].share, static_cast<double>(order[i].second.count) / total);
    SuffixTrie::Point next = point;
    ASSERT_TRUE(trie.step(next, found[i].token));
    ASSERT_EQ(next.node, found[i].point.node);
    ASSERT_EQ(next.depth, found[i].point.depth);
  }
}

// Every substring of every text, and one token after it that never follows.
void expect_same(const SuffixTrie& trie, const ByHand& hand, double least) {
  std::map<Tokens, bool> seen;
  for (const Tokens& text : hand.texts()) {
    for (size_t begin = 0; begin < text.size(); ++begin) {
      SuffixTrie::Point point;
      Tokens string;
      for (size_t end = begin; end <= text.size(); ++end) {
        if (!seen[string]) {
          seen[string] = true;
          const bool full = static_cast<int>(string.size()) == trie.max_depth();
          expect_same_continuations(trie, point,
                                    full ? std::map<int32_t, Next>() : hand.next(string), least);
          SuffixTrie::Point none = point;
          EXPECT_FALSE(trie.step(none, 1000));
          if (testing::Test::HasFatalFailure()) return;
        }
        if (end == text.size() || static_cast<int>(string.size()) == trie.max_depth()) break;
        ASSERT_TRUE(trie.step(point, text[end]));
        string.push_back(text[end]);
      }
    }
  }
  const Tokens& text = hand.text();
  const int longest = std::min(trie.max_depth() - 1, static_cast<int>(text.size()));
  for (int length = 0; length <= longest; ++length) {
    SuffixTrie::Point point;
    for (auto i = text.end() - length; i != text.end(); ++i) ASSERT_TRUE(trie.step(point, *i));
    ASSERT_EQ(trie.suffix(length).depth, length);
    ASSERT_EQ(trie.suffix(length).node, point.node) << length;
  }
  ASSERT_LE(trie.nodes(), 2 * trie.size() + 1);
}

TEST(SuffixTrie, CountsOneGrowingText) {
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 300; ++repeat) {
    const int depth = 1 + static_cast<int>(random() % 9);
    const int length = 1 + static_cast<int>(random() % 40);
    const auto alphabet = 1 + random() % 5;
    SuffixTrie trie(depth, length);
    ByHand hand;
    for (int i = 0; i < length; ++i) {
      const auto token = static_cast<int32_t>(random() % alphabet);
      trie.append(token);
      hand.append(token);
      expect_same(trie, hand, random() % 2 == 0 ? 1e-9 : 0.3);
      if (HasFatalFailure()) return;
    }
  }
}

// Texts come and go as in a cache of a fixed size.
TEST(SuffixTrie, CountsTextsThatComeAndGo) {
  std::mt19937 random(2);
  int dropped = 0;
  for (int repeat = 0; repeat < 120; ++repeat) {
    const int depth = 1 + static_cast<int>(random() % 9);
    const int most = 1 + static_cast<int>(random() % 60);
    const auto alphabet = 1 + random() % 5;
    // Half of them have to grow.
    SuffixTrie trie(depth, repeat % 2 == 0 ? most : 1);
    ByHand hand;
    for (int texts = 0; texts < 30; ++texts) {
      const int length = std::min(most, static_cast<int>(random() % 25));
      if (trie.size() + length > trie.max_tokens()) {
        trie.reserve(std::min(most, trie.size() + length));
        if (random() % 3 == 0) expect_same(trie, hand, 1e-9);
      }
      for (; trie.size() + length > most; ++dropped) {
        trie.drop_oldest();
        hand.drop_oldest();
        if (random() % 3 == 0) expect_same(trie, hand, 1e-9);
      }
      for (int i = 0; i < length; ++i) {
        const auto token = static_cast<int32_t>(random() % alphabet);
        trie.append(token);
        hand.append(token);
        if (random() % 10 == 0) expect_same(trie, hand, 1e-9);
      }
      trie.end_text();
      hand.end_text();
      expect_same(trie, hand, 1e-9);
      if (HasFatalFailure()) return;
      EXPECT_EQ(trie.texts(), static_cast<int>(hand.texts().size()) - 1);
    }
    while (trie.texts() > 0) trie.drop_oldest();
    EXPECT_EQ(trie.nodes(), 1);
    EXPECT_EQ(trie.size(), 0);
  }
  EXPECT_GT(dropped, 500);
}

TEST(SuffixTrie, AnyTokenIdIsFine) {
  const Tokens text = {INT32_MIN, -1, INT32_MAX, INT32_MIN, -1};
  SuffixTrie trie(4, 10);
  for (const int32_t token : text) trie.append(token);
  std::vector<SuffixTrie::Continuation> found;
  trie.continuations(trie.suffix(2), 0.1, found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].token, INT32_MAX);
  EXPECT_EQ(trie.text_token(3), INT32_MIN);
}

TEST(SuffixTrie, TokensAllocateNothing) {
  std::mt19937 random(3);
  SuffixTrie trie(24, 5000);
  const int64_t before = allocations();
  for (int i = 0; i < 5000; ++i) trie.append(static_cast<int32_t>(random() % (i < 2000 ? 3 : 400)));
  EXPECT_EQ(allocations(), before);
}

}  // namespace aerie::suffix_trie_test
