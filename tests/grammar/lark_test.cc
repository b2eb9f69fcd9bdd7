#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/json.h"
#include "tests/grammar/grammars.h"

namespace aerie::lark_test {

using test::accepts;

auto lark(std::string_view text) {
  return test::compile(GrammarKind::kGrammar, text);
}

Status refusal(std::string_view text) {
  return test::refusal(GrammarKind::kGrammar, text);
}

// All texts over the alphabet of up to so many characters, the shorter ones first.
std::vector<std::string> texts_over(const std::string& alphabet, int64_t longest) {
  std::vector<std::string> all = {""};
  for (size_t begin = 0; longest > 0; --longest) {
    const size_t end = all.size();
    for (; begin < end; ++begin) {
      for (const char c : alphabet) all.push_back(all[begin] + c);
    }
  }
  return all;
}

// lark.json, made by make_lark.py with Lark itself.
TEST(Lark, AcceptsWhatLarkParses) {
  const Json golden = read_json("tests/grammar/lark.json").value();
  size_t cases = 0, accepted = 0;
  for (const Json& one : golden["cases"]) {
    SCOPED_TRACE(one["what"].get<std::string>());
    const auto grammar = lark(one["grammar"].get<std::string>());
    ASSERT_NE(grammar, nullptr);
    const std::string ignored = one["ignored"];
    std::vector<std::string> found;
    for (const std::string& text : texts_over(one["alphabet"], one["longest"])) {
      if (accepts(grammar, text)) found.push_back(text);
    }
    EXPECT_EQ(found, one["accepted"].get<std::vector<std::string>>());
    ++cases;
    accepted += found.size();
  }
  EXPECT_GE(cases, 13U);
  EXPECT_GE(accepted, 1000U);
}

TEST(Lark, IsToldFromGbnf) {
  const std::string rule = "start: \"a::=b\"\n";
  EXPECT_TRUE(accepts(lark(rule), "a::=b"));
  for (const char* before :
       {"// x ::= y\n", "# x ::= y\n", "%import common.INT\n", "\n\n", "?", "!"}) {
    EXPECT_TRUE(accepts(lark(before + rule), "a::=b")) << before;
  }
  EXPECT_TRUE(accepts(lark("# x: y\nroot ::= \"a: b\"\n"), "a: b"));
}

TEST(Lark, BeginsWithStartOrTheFirstRule) {
  EXPECT_TRUE(accepts(lark("b: \"b\"\nstart: \"a\" b\n"), "ab"));
  EXPECT_TRUE(accepts(lark("A: \"a\"\nquery: A b\nb: \"b\"\n"), "ab"));
  // As vLLM's users write it.
  const auto query = lark(R"(
?start: select_statement
?select_statement: "SELECT " column_list " FROM " table_name
?table_name: "table_1" | "table_2"
?column_list: column_name ("," column_name)*
?column_name: "col_1" | "col_2"
)");
  EXPECT_TRUE(accepts(query, "SELECT col_1,col_2 FROM table_2"));
  EXPECT_FALSE(accepts(query, "SELECT col_1, col_2 FROM table_2"));
}

TEST(Lark, WhatLlguidanceAdds) {
  const auto grammar =
      lark("%llguidance {}\nstart: A{2} \"b\"{1,} \"c\"{,2} \"d\"{1,2}\nA: \"a\"\n");
  for (const char* text : {"aabd", "aabbccdd"}) EXPECT_TRUE(accepts(grammar, text)) << text;
  for (const char* text : {"abd", "aad", "aabcccd", "aabddd"}) {
    EXPECT_FALSE(accepts(grammar, text)) << text;
  }
}

TEST(Lark, CaseIsOfAsciiAlone) {
  const auto grammar = lark("start: \"k\u00e9\"i /[^a]/i /\\x6b/i\n");
  EXPECT_TRUE(accepts(grammar, "K\u00e9bk"));
  EXPECT_TRUE(accepts(grammar, "k\u00e9BK"));
  EXPECT_FALSE(accepts(grammar, "k\u00c9bk"));
  EXPECT_FALSE(accepts(grammar, "k\u00e9Ak"));
}

TEST(Lark, IgnoredTextStandsBeforeTerminals) {
  const auto grammar = lark("start: \"a\" \"b\"\n%ignore \" \"\n%ignore /#[^\\n]*\\n/\n");
  for (const char* text : {"ab", " a  b", "a # b\n b"}) EXPECT_TRUE(accepts(grammar, text)) << text;
  for (const char* text : {"ab ", "a # b", "a\nb"}) EXPECT_FALSE(accepts(grammar, text)) << text;
}

TEST(Lark, DeepNestingEndsInTime) {
  const auto grammar = lark("start: \"(\" start \")\" | start \"+\" \"x\" | \"x\"\n");
  EXPECT_TRUE(accepts(grammar, "((x+x)+x)+x+x"));
  std::string sum = "x";
  for (int i = 0; i < 3000; ++i) sum += "+x";
  EXPECT_TRUE(accepts(grammar, sum));
  EXPECT_FALSE(accepts(grammar, std::string(1000, '(') + "x" + std::string(1000, ')')));
}

TEST(Lark, RefusesWithThePlace) {
  const auto says = [](std::string_view text) { return refusal(text).message(); };
  EXPECT_EQ(says("start: \"a"), "line 1, column 10: the text has no end");
  EXPECT_EQ(says("start: a\n"), "line 1, column 8: 'a' is not defined");
  EXPECT_EQ(says("start: \"a\"\n  \"b\"\n"), "line 2, column 3: a name is expected");
  EXPECT_EQ(says("a: \"a\"\na: \"b\"\n"), "line 2, column 1: 'a' is defined twice");
  EXPECT_EQ(says("start: \"a\" )\n"), "line 1, column 12: ')' is not expected here");
  EXPECT_EQ(says("start: (\"a\" \n\"b\" ]\n"), "line 2, column 5: ')' is expected");
  EXPECT_EQ(says("start: \"a\"~3..2\n"),
            "line 1, column 16: the repetition's bounds contradict each other");
  EXPECT_EQ(says("start: /a(/\n"), "line 1, column 8: regular expression, byte 2: ')' is expected");
  EXPECT_EQ(says("B: b\nb: \"x\"\n"),
            "line 1, column 4: the rule 'b' cannot be a part of a terminal");
  EXPECT_EQ(says("Ab: \"x\"\n"),
            "line 1, column 1: 'Ab' is neither a rule (small letters) nor a terminal (capitals)");
  EXPECT_EQ(says("A: \"x\"\n"), "the grammar has no rule");
  for (const char* text :
       {"start: 'a'\n", "start: \"\"\n", "start: \"\\d\"\n", "start: \"b\"..\"a\"\n",
        "start: \"ab\"..\"c\"\n", "start: /a\n", "start: \"a\"**\n", "start: \"\xFF\"\n",
        "start: \xFF\n", "start: \"\\u12\"\n", "start: \"a\" -> \n", "start.x: \"a\"\n",
        "start \"a\": \"b\"\n", "%import common.INT -> int\nstart: \"a\"\n",
        "%import common\nstart: \"a\"\n", "start: \"a\" ~\n", "start: (\"a\"\n", "start: \"\\"}) {
    EXPECT_EQ(refusal(text).code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Lark, RefusesByNameWhatItDoesNotHave) {
  const auto says = [](std::string_view text) {
    const Status status = refusal(text);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << text;
    return status.message();
  };
  EXPECT_EQ(says("%declare A\nstart: \"a\"\n"), "line 1, column 1: %declare is not supported");
  EXPECT_EQ(says("%import common.UUID\nstart: \"a\"\n"),
            "line 1, column 16: %import of common.UUID is not supported");
  EXPECT_EQ(says("start: %json {}\n"),
            "line 1, column 8: a directive within a rule is not supported");
  EXPECT_EQ(says("pair{x}: x x\nstart: pair{\"a\"}\n"),
            "line 1, column 5: a template is not supported");
  EXPECT_EQ(says("start: /a/x\n"), "line 1, column 11: the flag 'x' is not supported");
  for (const char* text :
       {"start: /a(?=b)/\n", "start: /^a/\n", "start: /a$|b/\n", "start: /a{,2}/\n",
        "start: <|im_end|>\n", "start: @other\n", "start: A & B\nA: \"a\"\nB: \"b\"\n",
        "start[lazy]: \"a\"\n", "start: list{\"a\"}\n", "%import python.NAME\nstart: \"a\"\n",
        "%llguidance {\"a\": 1}\nstart: \"a\"\n"}) {
    says(text);
  }
}

TEST(Lark, RefusesRulesThatCannotWork) {
  EXPECT_EQ(refusal("start: a \"x\" | \"y\"\na: start\n").code(), StatusCode::kUnsupported);
  EXPECT_EQ(refusal("start: start start \"a\" |\n").code(), StatusCode::kUnsupported);
  for (const char* text :
       {"start: start\n", "start: start \"a\"\n", "start: \"a\" loop\nloop: \"x\" loop\n"}) {
    EXPECT_EQ(refusal(text).code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Lark, RefusesWhatIsTooLarge) {
  const auto code = [](std::string_view text) { return refusal(text).code(); };
  constexpr StatusCode kTooLarge = StatusCode::kResourceExhausted;
  EXPECT_EQ(code("start: ((\"a\"~1000)~1000)~1000\n"), kTooLarge);
  EXPECT_EQ(code("start: \"a\"~99999999999\n"), kTooLarge);
  EXPECT_EQ(code("start: " + std::string(100000, '(')), kTooLarge);
  EXPECT_EQ(code("start: " + std::string(100000, '[')), kTooLarge);
  EXPECT_EQ(code("start: \"a\"\n//" + std::string(size_t{2} << 20, '#')), kTooLarge);
  std::string many = "start: \"a\"\n", chain = "start: a0\n";
  for (int i = 0; i < 70; ++i) many += fmt::format("A{}: /{}/\n", i, std::string(1000, 'a'));
  EXPECT_EQ(code(many), kTooLarge);
  for (int i = 0; i < 1000; ++i) chain += fmt::format("a{}: \"(\" a{} \")\"\n", i, i + 1);
  EXPECT_EQ(code(chain + "a1000: \"x\"\n"), kTooLarge);
}

}  // namespace aerie::lark_test
