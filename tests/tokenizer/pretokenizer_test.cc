#include "tokenizer/pretokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/tokenizer/vocabularies.h"

namespace aerie {
namespace {

using Words = std::vector<std::string>;

Words split(std::string_view name, std::string_view text) {
  auto pre = PreTokenizer::create(name);
  EXPECT_TRUE(pre.ok());
  std::vector<std::string_view> words;
  pre->split(text, words);
  return {words.begin(), words.end()};
}

TEST(PreTokenizer, Gpt2Words) {
  EXPECT_EQ(split("gpt-2", "Hello, world's 2nd  try!\n"),
            (Words{"Hello", ",", " world", "'s", " 2", "nd", " ", " try", "!", "\n"}));
  EXPECT_EQ(split("gpt-2", "a12345 678"), (Words{"a", "12345", " 678"}));
}

TEST(PreTokenizer, SpacesLeaveOneForTheNextWord) {
  EXPECT_EQ(split("gpt-2", "a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(split("gpt-2", "a   "), (Words{"a", "   "}));
  EXPECT_EQ(split("gpt-2", "\n\n\n"), (Words{"\n\n\n"}));
  EXPECT_EQ(split("gpt-2", "a\n\nb"), (Words{"a", "\n", "\n", "b"}));
}

TEST(PreTokenizer, ContractionsAreLowerCaseOnly) {
  EXPECT_EQ(split("gpt-2", "we'll WE'LL don't"),
            (Words{"we", "'ll", " WE", "'", "LL", " don", "'t"}));
}

TEST(PreTokenizer, WhiteSpaceIsUnicodes) {
  for (const char* space : {"\u0085", "\u00a0", "\u1680", "\u2000", "\u200a", "\u2028", "\u2029",
                            "\u202f", "\u205f", "\u3000", "\t", "\v", "\f", "\r"}) {
    EXPECT_EQ(split("gpt-2", std::string("a ") + space + "b"), (Words{"a", " ", space, "b"}));
  }
  // Not white space: U+180E since Unicode 6.3, U+200B, U+FEFF and separators of ASCII.
  for (const char* other : {"\u180e", "\u200b", "\ufeff", "\u2060", "\x1c", "\x1f"}) {
    EXPECT_EQ(split("gpt-2", std::string("a ") + other + "b"),
              (Words{"a", std::string(" ") + other, "b"}));
  }
}

TEST(PreTokenizer, SmolLmSplitsEveryDigit) {
  EXPECT_EQ(split("smollm", "a12345 678"),
            (Words{"a", "1", "2", "3", "4", "5", " ", "6", "7", "8"}));
  EXPECT_EQ(split("smollm", "½²Ⅷ٣x"), (Words{"½", "²", "Ⅷ", "٣", "x"}));
  // GPT-2's expression sees the pieces between digits each as a text of its own.
  EXPECT_EQ(split("smollm", "x  1 y"), (Words{"x", "  ", "1", " y"}));
  EXPECT_EQ(split("gpt-2", "x  1 y"), (Words{"x", " ", " 1", " y"}));
}

TEST(PreTokenizer, InvalidBytesAreWordsOfTheirOwn) {
  EXPECT_EQ(split("gpt-2",
                  "a\xFF\xFE"
                  "b \xC3"),
            (Words{"a", "\xFF", "\xFE", "b", " ", "\xC3"}));
  EXPECT_EQ(split("gpt-2", "\xE2\x82!"), (Words{"\xE2", "\x82", "!"}));
  // The text before one ends there: both spaces stay together.
  EXPECT_EQ(split("gpt-2", "a  \x80"), (Words{"a", "  ", "\x80"}));
  EXPECT_EQ(split("gpt-2", ""), Words{});
}

TEST(PreTokenizer, WordsAreTheText) {
  std::mt19937 random(3);
  for (const char* name : {"gpt-2", "smollm"}) {
    const auto pre = PreTokenizer::create(name);
    for (int round = 0; round < 2000; ++round) {
      const std::string text = test::random_bytes(random, random() % 60);
      std::vector<std::string_view> words;
      pre.value().split(text, words);
      std::string joined;
      for (const std::string_view word : words) {
        ASSERT_FALSE(word.empty());
        joined += word;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

TEST(PreTokenizer, UnknownOnesAreNamed) {
  const auto pre = PreTokenizer::create("llama-bpe");
  ASSERT_FALSE(pre.ok());
  EXPECT_EQ(pre.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(pre.status().message().find("'llama-bpe'"), std::string::npos);
  EXPECT_NE(pre.status().message().find("smollm"), std::string::npos);
}

}  // namespace
}  // namespace aerie
