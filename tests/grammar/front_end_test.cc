#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/grammar/matching.h"

namespace aerie {
namespace {

using ::testing::HasSubstr;

struct Case {
  GrammarKind kind;
  std::string text;
  std::vector<std::string> matches;
  std::vector<std::string> others;
};

void check(const Case& it) {
  SCOPED_TRACE(it.text);
  const auto grammar = test::must_compile(it.kind, it.text);
  ASSERT_NE(grammar, nullptr);
  for (const std::string& text : it.matches) EXPECT_TRUE(test::accepts(grammar, text)) << text;
  for (const std::string& text : it.others) EXPECT_FALSE(test::accepts(grammar, text)) << text;
}

void refuses(GrammarKind kind, const std::string& text, StatusCode code, const std::string& what) {
  SCOPED_TRACE(text.substr(0, 200));
  const auto grammar = test::compile(kind, text);
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.status().code(), code);
  EXPECT_THAT(grammar.status().message(), HasSubstr(what));
}

TEST(Gbnf, Matches) {
  const auto gbnf = GrammarKind::kGbnf;
  check({gbnf, "root ::= \"a\" | \"bc\"  # comment\n", {"a", "bc"}, {"", "b", "abc", "ac"}});
  check({gbnf, "root ::= [a-c]+ [^a-z\\n]{2}", {"aXY", "cba12"}, {"XY", "aX", "a\nX", "aXYZ"}});
  check({gbnf,
         "root ::= x* y?\nx ::= \"x\"\ny ::= (\"y\" |\n \"z\")",
         {"", "xxy", "z"},
         {"yx", "yz"}});
  check({gbnf,
         "root ::= \"a\"{2,3} \"b\"{1,} \"c\"{0,1}",
         {"aab", "aaabbc"},
         {"ab", "aaaab", "aac"}});
  check({gbnf,
         "root ::= [\\u00E0-\\u00FF\\U0001F600] \"\\x41\"",
         {"àA",
          "\xF0\x9F\x98\x80"
          "A"},
         {"aA", "à"}});
  check({gbnf, "root ::= . .", {"ab", "é\n", "日本"}, {"a", "abc", "\xC3", "\x80\x80"}});
  check({gbnf, "root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", "x)", "()"}});
  check({gbnf, "root ::= (\"a\"*)* \"b\"", {"b", "aab"}, {"a", "ba"}});
  check({gbnf, "root ::= [\\]\\-x] [a-]", {"]a", "--", "xa"}, {"ba", "]b"}});
  check({gbnf, "root ::= (a b)* a\na ::= \"a\"?\nb ::= \"b\"", {"", "abba", "b"}, {"aab", "aa"}});
}

TEST(Gbnf, Refuses) {
  const auto gbnf = GrammarKind::kGbnf;
  const auto wrong = StatusCode::kInvalidArgument;
  refuses(gbnf, "", wrong, "\"root\"");
  refuses(gbnf, "top ::= \"a\"", wrong, "\"root\"");
  refuses(gbnf, "root ::= \"a\"\nb ::= c", wrong, "line 2: rule \"c\" is not defined");
  refuses(gbnf, "root ::= \"a", wrong, "line 1");
  refuses(gbnf, "root ::= [a", wrong, "line 1");
  refuses(gbnf, "root ::= (\"a\"", wrong, "'('");
  refuses(gbnf, "root ::= \"a\"\nroot ::= \"b\"", wrong, "twice");
  refuses(gbnf, "root ::= [z-a]", wrong, "backwards");
  refuses(gbnf, "root ::= \"\\q\"", wrong, "\\q");
  refuses(gbnf, "root ::= \"a\"{3,1}", wrong, "m > n");
  refuses(gbnf, "root ::= \"a\" root", wrong, "\"root\"");
  refuses(gbnf, "root ::= \"a\" | b\nb ::= \"b\" b", wrong, "\"b\"");
  refuses(gbnf, "root ::= root \"a\" | \"b\"", StatusCode::kUnsupported, "\"root\"");
  refuses(gbnf, "root ::= x root \"a\" | \"b\"\nx ::= \"x\"?", StatusCode::kUnsupported,
          "\"root\"");
  refuses(gbnf, "root ::= \"\xFF\"", wrong, "UTF-8");
}

TEST(Gbnf, HostileInputs) {
  const auto gbnf = GrammarKind::kGbnf;
  const auto much = StatusCode::kResourceExhausted;
  refuses(gbnf, "root ::= " + std::string(100'000, '(') + "\"a\"" + std::string(100'000, ')'), much,
          "groups");
  refuses(gbnf, "root ::= \"a\"{999999999}", much, "repetition");
  // What is repeated is one rule, so this is small.
  test::must_compile(gbnf, "root ::= (((\"a\"{9999} \"b\"){9999}) \"c\"){9999}");
  refuses(gbnf, "root ::= \"a\"{99999} \"b\"{99999} \"c\"{99999} \"d\"{99999} \"e\"{99999}", much,
          "states");
}

TEST(Regex, Matches) {
  const auto regex = GrammarKind::kRegex;
  check({regex, "a|bc*", {"a", "b", "bccc"}, {"", "ab", "c"}});
  check({regex, "^\\d{3}-\\w+$", {"123-a_9"}, {"12-a", "123-", "123-é"}});
  check({regex, "(?:x(?<n>y)?)+?", {"x", "xyx"}, {"", "y"}});
  check({regex, "[^\\s\"\\]]{2,}", {"ab", "éé"}, {"a", "a b", "a]"}});
  check({regex, "\\x41\\u00e9\\u{1F600}\\ud83d\\ude00\\.", {"Aé😀😀."}, {"Aé😀😀x"}});
  check({regex, "a.c", {"abc", "aéc"}, {"a\nc", "ac"}});
  check({regex, "[a\\-z\\b]", {"a", "-", "\b"}, {"b"}});
  check({regex, "", {""}, {"a"}});
}

TEST(Regex, Refuses) {
  const auto regex = GrammarKind::kRegex;
  const auto no = StatusCode::kUnsupported;
  const auto wrong = StatusCode::kInvalidArgument;
  refuses(regex, "a(?=b)", no, "lookahead");
  refuses(regex, "(?<!a)b", no, "lookbehind");
  refuses(regex, "(a)\\1", no, "reference");
  refuses(regex, "a\\b", no, "word boundary");
  refuses(regex, "\\p{L}", no, "property");
  refuses(regex, "a^b", no, "anchor");
  refuses(regex, "(a$|b)", no, "anchor");
  refuses(regex, "(?i)a", no, "(?i");
  refuses(regex, "(a", wrong, "'('");
  refuses(regex, "a)", wrong, "')'");
  refuses(regex, "[a", wrong, "'['");
  refuses(regex, "*a", wrong, "repeat");
  refuses(regex, "a{2,1}", wrong, "m > n");
  refuses(regex, std::string(10'000, '(') + std::string(10'000, ')'),
          StatusCode::kResourceExhausted, "groups");
  test::must_compile(regex, "(((a{9000}b){9000}){9000}c){9000}|[]");
}

TEST(Choice, Matches) {
  GrammarSpec spec;
  spec.kind = GrammarKind::kChoice;
  spec.choices = {"yes", "yesterday", "né"};
  const auto grammar = compile_grammar(spec, test::byte_trie());
  ASSERT_TRUE(grammar.ok());
  for (const std::string& text : spec.choices) EXPECT_TRUE(test::accepts(*grammar, text));
  for (const char* text : {"", "ye", "yest", "yesyes", "n"}) {
    EXPECT_FALSE(test::accepts(*grammar, text)) << text;
  }
  spec.choices.clear();
  EXPECT_EQ(compile_grammar(spec, test::byte_trie()).status().code(), StatusCode::kInvalidArgument);
}

TEST(JsonObject, Matches) {
  check({GrammarKind::kJsonObject,
         "",
         {"{}", R"({"a":1})", R"({"a": [1, -2.5e+10,{"b":null}], "":"\u00e9\n\ud83d\ude00é"})"},
         {"", "[]", "{", R"({"a":01})", R"({"a":})", R"({"a":"\ud83d"})", "{ }", R"({"a":1,})",
          "{\"a\":\"\n\"}", R"({"a":1}})"}});
}

// Whatever is made at random is what another reader takes.
TEST(JsonObject, RandomTextsAreJson) {
  const auto grammar = test::must_compile(GrammarKind::kJsonObject, "");
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::string text = test::random_text(grammar, seed, 60);
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  }
}

TEST(Regex, RandomTextsMatch) {
  for (const std::string expression : {"a|bc*", "[a-f]+@[a-f]{2,5}\\.(com|org)", "(ab?){2,4}c?"}) {
    const auto grammar = test::must_compile(GrammarKind::kRegex, expression);
    for (uint64_t seed = 0; seed < 30; ++seed) {
      const std::string text = test::random_text(grammar, seed, 20);
      EXPECT_TRUE(std::regex_match(text, std::regex(expression))) << text;
    }
  }
}

}  // namespace
}  // namespace aerie
