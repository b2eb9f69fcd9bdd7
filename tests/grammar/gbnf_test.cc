#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/grammar/grammars.h"

namespace aerie::gbnf_test {

using test::accepts;

auto gbnf(std::string_view text) {
  return test::compile(GrammarKind::kGrammar, text);
}

Status refusal(std::string_view text) {
  return test::refusal(GrammarKind::kGrammar, text);
}

TEST(Gbnf, RulesAlternativesAndGroups) {
  const auto grammar = gbnf(
      "# a comment\n"
      "root ::= greeting (\", \" name)? \"!\" | \"bye\"\n"
      "greeting ::= \"hi\" |\n  \"hello\" # another\n"
      "name ::= [A-Z] [a-z]*\n");
  for (const char* text : {"hi!", "hello!", "hi, Bob!", "hello, A!", "bye"}) {
    EXPECT_TRUE(accepts(grammar, text)) << text;
  }
  for (const char* text : {"", "hi", "hi, bob!", "hi, !", "bye!", "hibye"}) {
    EXPECT_FALSE(accepts(grammar, text)) << text;
  }
}

TEST(Gbnf, Repetitions) {
  const auto grammar = gbnf("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2} \"d\"+ \"e\"? \"f\"{,1}");
  for (const char* text : {"aabd", "aabbbccddef", "aabcdf"}) EXPECT_TRUE(accepts(grammar, text));
  for (const char* text : {"abd", "aaabd", "aad", "aabcccd", "aabc", "aabdee", "aabdff"}) {
    EXPECT_FALSE(accepts(grammar, text)) << text;
  }
}

TEST(Gbnf, CharactersAndEscapes) {
  const auto grammar =
      gbnf("root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\\\\\\"\" [^a-c\\]\\n] . [\\u4e00-\\u9fff-]");
  const std::string start = "A\u00e9\U0001F600\n\t\\\"";
  EXPECT_TRUE(accepts(grammar, start + "d\n\u4e2d"));
  EXPECT_TRUE(accepts(grammar, start + "\U0001F600\u00e9-"));
  EXPECT_FALSE(accepts(grammar, start + "b\n\u4e2d"));
  EXPECT_FALSE(accepts(grammar, start + "]\n\u4e2d"));
  EXPECT_FALSE(accepts(grammar, start + "dxx"));
  EXPECT_FALSE(accepts(grammar, start + "d\xFF\u4e2d"));
}

TEST(Gbnf, RecursionNestsUpToTheLimit) {
  const auto grammar = gbnf("root ::= \"(\" root \")\" | \"x\"");
  const auto nested = [](size_t depth) {
    return std::string(depth, '(').append("x").append(depth, ')');
  };
  EXPECT_TRUE(accepts(grammar, nested(0)));
  EXPECT_TRUE(accepts(grammar, nested(200)));
  EXPECT_FALSE(accepts(grammar, nested(1000)));
  // At the limit there is a way out.
  const auto constraint = test::after(grammar, std::string(256, '('));
  ASSERT_NE(constraint, nullptr);
  EXPECT_EQ(test::allowed(*constraint, 256), std::vector<int32_t>{'x'});
}

TEST(Gbnf, RightRecursionNeedsNoDepth) {
  const auto grammar = gbnf("root ::= \"x\" root | \"y\"");
  EXPECT_TRUE(accepts(grammar, std::string(5000, 'x') + "y"));
}

TEST(Gbnf, EmptyLoopsEnd) {
  const auto grammar = gbnf("root ::= (a* b?)* \"z\"\na ::= \"\" | \"x\"\nb ::= (a | \"y\"?)+");
  EXPECT_TRUE(accepts(grammar, "z"));
  EXPECT_TRUE(accepts(grammar, "xyxxyz"));
  EXPECT_FALSE(accepts(grammar, "xyw"));
}

TEST(Gbnf, AmbiguityStaysSmall) {
  const auto grammar =
      gbnf("root ::= s \"!\"\ns ::= \"a\" s \"a\" | \"a\" s \"b\" | \"a\" s | \"a\"");
  EXPECT_TRUE(accepts(grammar, std::string(100, 'a') + std::string(50, 'b') + "!"));
}

TEST(Gbnf, RefusesWithThePlace) {
  EXPECT_EQ(refusal("root ::= \"a").message(), "line 1, column 12: the string has no end");
  EXPECT_EQ(refusal("root ::= x\ny ::= \"a\"").message(),
            "line 1, column 10: rule 'x' is not defined");
  EXPECT_EQ(refusal("a ::= \"a\"").message(), "the grammar has no rule 'root'");
  EXPECT_EQ(refusal("root ::= \"a\"\nroot ::= \"b\"").message(),
            "line 2, column 1: rule 'root' is defined twice");
  for (const char* text :
       {"root = \"a\"", "root ::= (\"a\"", "root ::= [a", "root ::= [b-a]", "root ::= \"\\q\"",
        "root ::= \"a\"{2,1}", "root ::= \"a\"{", "root ::= \"\\uD800\"", "root ::= \"a\")",
        "root ::= \"\xFF\"", "::= \"a\"", "root ::= \"\\x4\""}) {
    EXPECT_EQ(refusal(text).code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Gbnf, RefusesRulesThatCannotWork) {
  EXPECT_EQ(refusal("root ::= root \"a\" | \"b\"").code(), StatusCode::kUnsupported);
  EXPECT_EQ(refusal("root ::= e x\ne ::= \"\"\nx ::= e root | \"b\"").code(),
            StatusCode::kUnsupported);
  const Status endless = refusal("root ::= \"a\" | loop\nloop ::= \"x\" loop");
  EXPECT_EQ(endless.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(endless.message().find("'loop'"), std::string::npos);
}

TEST(Gbnf, RefusesWhatIsTooLarge) {
  EXPECT_EQ(refusal("root ::= ((\"a\"{1000}){1000}){1000}").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refusal("root ::= \"a\"{99999999999}").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refusal(std::string("root ::= ").append(100000, '(')).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(refusal(std::string("root ::= \"a\"").append(100000, '?')).code(),
            StatusCode::kResourceExhausted);
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 1000; ++i) {
    chain += fmt::format("r{} ::= \"(\" r{} \")\"\n", i, i + 1);
  }
  EXPECT_EQ(refusal(chain + "r1000 ::= \"x\"").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refusal(std::string(size_t{2} << 20, '#')).code(), StatusCode::kResourceExhausted);
}

}  // namespace aerie::gbnf_test
