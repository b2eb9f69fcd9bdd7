#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "tests/grammar/grammars.h"

namespace aerie::regex_test {

using test::accepts;

auto regex(std::string_view text) {
  return test::compile(GrammarKind::kRegex, text);
}

TEST(Regex, MatchesAsTheStandardLibraryDoes) {
  std::mt19937 random(1);
  const std::string alphabet = "ab01-. \n_";
  for (const char* pattern : {"a",
                              "a*",
                              "(a|b)*0",
                              "[ab]{2,4}",
                              "(?:ab)+?",
                              "a{2}b{0,1}1{1,}",
                              "[^a]\\d",
                              "\\w+\\s\\w",
                              ".*1",
                              "a|b|",
                              "\\D\\S\\W",
                              "(a(b(0)?)?)?",
                              "[\\d\\-]+",
                              "[a\\]]*",
                              "\\x61\\u0062",
                              "a\\.b",
                              "^ab$",
                              "^a|b$",
                              "(a|ab)(0|b0)*",
                              "(a*)*b",
                              "(a?){3}",
                              "[-a]",
                              "[a-]"}) {
    const auto grammar = regex(pattern);
    const std::regex reference(pattern);
    for (int i = 0; i < 2000; ++i) {
      std::string text;
      for (size_t length = random() % 7; text.size() < length;) {
        text += alphabet[random() % alphabet.size()];
      }
      ASSERT_EQ(accepts(grammar, text), std::regex_match(text, reference))
          << pattern << ": " << text;
    }
    for (int i = 0; i < 30; ++i) {
      const std::string text = test::random_output(grammar, test::toy(), random);
      EXPECT_TRUE(accepts(grammar, text)) << pattern << ": " << text;
    }
  }
}

TEST(Regex, Characters) {
  const auto grammar = regex("\\u{1F600}[\u00e0-\u00ff]\\uD83D\\uDE00.");
  EXPECT_TRUE(accepts(grammar, "\U0001F600\u00e9\U0001F600\u4e2d"));
  EXPECT_FALSE(accepts(grammar, "\U0001F600\u00c9\U0001F600\u4e2d"));
  EXPECT_FALSE(accepts(grammar, "\U0001F600\u00e9\U0001F600\n"));
}

TEST(Regex, ABackslashIsEscapedByAnother) {
  const auto grammar = regex("\\\\d[\\\\]x");
  EXPECT_TRUE(accepts(grammar, "\\d\\x"));
  EXPECT_FALSE(accepts(grammar, "1\\x"));
  EXPECT_FALSE(accepts(grammar, "\\1\\x"));
  // A long run of them is no deep one.
  EXPECT_TRUE(accepts(regex(std::string(60000, '\\')), std::string(30000, '\\')));
}

TEST(Regex, RefusesByName) {
  const auto refusal = [](const char* text) { return test::refusal(GrammarKind::kRegex, text); };
  for (const auto& [text, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"(?=a)b", "lookaround"},
                                                                  {"(?<!a)b", "lookaround"},
                                                                  {"(a)\\1", "backreference"},
                                                                  {"a\\b", "'\\b'"},
                                                                  {"\\p{L}", "'\\p'"},
                                                                  {"(?i)a", "(?i"},
                                                                  {"a++", "possessive"},
                                                                  {"a^b", "'^'"},
                                                                  {"(a$)b", "'$'"},
                                                                  {"[[:alpha:]]", "POSIX"}}) {
    EXPECT_EQ(refusal(text).code(), StatusCode::kUnsupported) << text;
    EXPECT_NE(refusal(text).message().find(name), std::string::npos) << refusal(text).message();
  }
  for (const char* text : {"(", ")", "a**", "*", "[", "[b-a]", "a{2,1}", "\\", "\\x1", "[]", "\xFF",
                           "[\\d-z]", "(?<n"}) {
    EXPECT_EQ(refusal(text).code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(refusal("((a{1000}){1000}){1000}").code(), StatusCode::kResourceExhausted);
}

}  // namespace aerie::regex_test
