#include "tokenizer/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace aerie::stop_strings_test {

struct Result {
  std::string text;
  bool stopped = false;
  bool operator==(const Result&) const = default;
};

// By definition: the match that ends first, of these the longest.
Result brute_force(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (!stop.empty() && text.substr(0, end).ends_with(stop)) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

// The longest end of `text` that begins a stop string (and is not one).
size_t brute_force_held(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t length = text.size(); length > 0; --length) {
    for (const std::string& stop : stops) {
      if (stop.starts_with(text.substr(text.size() - length))) return length;
    }
  }
  return 0;
}

// Cuts where `cuts` has a bit; checks that nothing is held longer than it must be.
Result stream(const std::vector<std::string>& stops, const std::string& text, uint32_t cuts) {
  StopStrings matcher(stops);
  Result result;
  size_t begin = 0;
  for (size_t end = 1; end <= text.size() && !result.stopped; ++end) {
    if (end != text.size() && (cuts >> (end - 1) & 1) == 0) continue;
    result.stopped = matcher.push(text.substr(begin, end - begin), result.text);
    begin = end;
    if (result.stopped) break;
    EXPECT_EQ(result.text.size(), end - brute_force_held(stops, text.substr(0, end)));
  }
  if (!result.stopped) matcher.finish(result.text);
  return result;
}

TEST(StopStrings, TextBeforeTheMatch) {
  EXPECT_EQ(stream({"END"}, "abcENDxyz", 0), (Result{"abc", true}));
  EXPECT_EQ(stream({"END"}, "abcENDxyz", ~0u), (Result{"abc", true}));
  EXPECT_EQ(stream({"END"}, "abcENxyzEN", ~0u), (Result{"abcENxyzEN", false}));
}

TEST(StopStrings, HeldBackUntilDecided) {
  StopStrings matcher({"\n\nUser:"});
  std::string out;
  EXPECT_FALSE(matcher.push("Hi\n", out));
  EXPECT_EQ(out, "Hi");
  EXPECT_FALSE(matcher.push("\nUse", out));
  EXPECT_EQ(out, "Hi");
  EXPECT_FALSE(matcher.push("ful", out));
  EXPECT_EQ(out, "Hi\n\nUseful");
}

TEST(StopStrings, AFailedPrefixMayHoldAnother) {
  EXPECT_EQ(stream({"aab"}, "aaab", ~0u), (Result{"a", true}));
  EXPECT_EQ(stream({"abab"}, "abaabab", ~0u), (Result{"aba", true}));
}

TEST(StopStrings, FirstToBeCompleteThenLongest) {
  EXPECT_EQ(stream({"abcd", "bc"}, "xabcd", 0), (Result{"xa", true}));
  EXPECT_EQ(stream({"c", "abc"}, "xabcd", 0), (Result{"x", true}));
}

TEST(StopStrings, EmptyOnesAreIgnored) {
  EXPECT_EQ(stream({"", ""}, "abc", ~0u), (Result{"abc", false}));
  EXPECT_EQ(stream({}, "abc", 0), (Result{"abc", false}));
}

TEST(StopStrings, NulBytes) {
  const std::string nul(1, '\0');
  EXPECT_EQ(stream({"a" + nul}, "xa" + nul + "b", ~0u), (Result{"x", true}));
  EXPECT_EQ(stream({nul + nul + "a"}, nul + nul + nul + "a", ~0u), (Result{nul, true}));
}

TEST(StopStrings, EveryChunkingAgreesWithTheDefinition) {
  std::mt19937 random(20);
  int stopped = 0;
  for (int round = 0; round < 400; ++round) {
    const auto word = [&](size_t longest) {
      std::string text(1 + random() % longest, ' ');
      for (char& c : text) c = static_cast<char>('a' + random() % 2);
      return text;
    };
    std::vector<std::string> stops(1 + random() % (round % 8 == 7 ? 40 : 3));
    for (std::string& stop : stops) stop = word(round % 2 == 0 ? 3 : 6);
    const std::string text = word(9);
    const Result expected = brute_force(stops, text);
    stopped += expected.stopped;
    for (uint32_t cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
      ASSERT_EQ(stream(stops, text, cuts), expected) << text << " cut at " << cuts;
    }
  }
  EXPECT_GT(stopped, 100);
  EXPECT_LT(stopped, 300);
}

TEST(StopStrings, LinearInALongRepetitiveText) {
  StopStrings matcher({std::string(100'000, 'a') + "b"});
  std::string out;
  const std::string text(1'000'000, 'a');
  EXPECT_FALSE(matcher.push(text, out));
  EXPECT_EQ(out.size(), 900'000u);
  EXPECT_TRUE(matcher.push("b", out));
  EXPECT_EQ(out.size(), 900'000u);
}

// Were each looked at for each byte, this would take minutes.
TEST(StopStrings, ThousandsOfThemTakeNoLongerThanOne) {
  std::vector<std::string> stops;
  for (int i = 0; i < 50'000; ++i) stops.push_back(std::to_string(1'000'000 + i) + "!");
  StopStrings matcher(stops);
  std::string out, text;
  while (text.size() < 10'000'000) text += "1012345?";
  EXPECT_FALSE(matcher.push(text, out));
  EXPECT_EQ(out.size(), text.size());
  EXPECT_TRUE(matcher.push("1049999!", out));
  EXPECT_EQ(out.size(), text.size());
  EXPECT_EQ(matcher.matched(), "1049999!");
}

}  // namespace aerie::stop_strings_test
