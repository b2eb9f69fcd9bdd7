#include <gtest/gtest.h>

#include <random>

#include "tests/tokenizer/vocabularies.h"
#include "tokenizer/load/recipes.h"
#include "tokenizer/pieces/pretokenizer.h"

namespace aerie::pretokenizer_test {

using Words = std::vector<std::string>;

Words split(std::string_view name, std::string_view text) {
  const auto recipe = recipe_of_name(name);
  EXPECT_TRUE(recipe.ok()) << recipe.status().message();
  Normalizer normalizer;
  PreTokenizer pre;
  EXPECT_TRUE(add_recipe(*recipe, normalizer, pre).ok());
  std::vector<std::string_view> words;
  auto scratch = pre.make_scratch();
  EXPECT_TRUE(pre.split(text, {true, false}, scratch, words).ok());
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

TEST(PreTokenizer, UnknownOnesAreNamed) {
  const auto recipe = recipe_of_name("no-such-name");
  ASSERT_FALSE(recipe.ok());
  EXPECT_EQ(recipe.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(recipe.status().message().find("'no-such-name'"), std::string::npos);
  EXPECT_NE(recipe.status().message().find("smollm"), std::string::npos);
}

}  // namespace aerie::pretokenizer_test
