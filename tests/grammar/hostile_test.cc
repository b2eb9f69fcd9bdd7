// Small requests that ask for much: what is refused, what is cheap now, and that memory stays
// bounded.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "tests/grammar/grammars.h"
#include "tests/testing/sanitized.h"

namespace aerie::hostile_test {

using test::accepts;

// That are allocated now.
size_t held_bytes() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

Status compiled(GrammarKind kind, const std::string& text) {
  return compile_grammar({kind, text, {}}, test::toy_trie()).status();
}

// Each level says the one below it twice.
std::string doubling_schema(int levels, const char* first) {
  std::string text = fmt::format(R"({{"$ref":"#/$defs/d{}","$defs":{{"d0":{}}}}})", levels, first);
  text.resize(text.size() - 2);
  for (int i = 1; i <= levels; ++i) {
    text += fmt::format(R"(,"d{}":{{"allOf":[{{"$ref":"#/$defs/d{}"}},{{"$ref":"#/$defs/d{}"}}]}})",
                        i, i - 1, i - 1);
  }
  return text + "}}";
}

TEST(Hostile, WhatIsSaidTwiceIsSaidOnce) {
  const auto grammar =
      test::compile(GrammarKind::kJsonSchema,
                    doubling_schema(64, R"({"anyOf":[{"type":"integer"},{"type":"string"}]})"));
  EXPECT_TRUE(accepts(grammar, "12"));
  EXPECT_TRUE(accepts(grammar, "\"a\""));
  EXPECT_FALSE(accepts(grammar, "null"));
  // Not the same reference, and alternatives that overlap.
  std::string web =
      R"({"$ref":"#/$defs/d12","$defs":{"d0":{"anyOf":[{"minimum":1},{"maximum":9}]})";
  for (int i = 1; i <= 12; ++i) {
    web += fmt::format(
        R"(,"d{}":{{"allOf":[{{"$ref":"#/$defs/d{}"}},{{"title":"x","$ref":"#/$defs/d{}"}}]}})", i,
        i - 1, i - 1);
  }
  EXPECT_EQ(compiled(GrammarKind::kJsonSchema, web + "}}").code(), StatusCode::kOk);
}

TEST(Hostile, ValuesAgainstAWebOfReferences) {
  std::string web = doubling_schema(40, R"({"type":"integer"})");
  web.insert(1, R"("enum":[1,"a",2],)");
  const auto grammar = test::compile(GrammarKind::kJsonSchema, web);
  EXPECT_TRUE(accepts(grammar, "2"));
  EXPECT_FALSE(accepts(grammar, "\"a\""));
}

TEST(Hostile, Multiples) {
  for (const int of : {97, 9999}) {
    const auto grammar = test::compile(GrammarKind::kJsonSchema,
                                       fmt::format(R"({{"type":"integer","multipleOf":{}}})", of));
    for (const int64_t factor : {0, 1, 2, 12, 4711, 123456789}) {
      EXPECT_TRUE(accepts(grammar, std::to_string(factor * of)));
      EXPECT_FALSE(accepts(grammar, std::to_string(factor * of + 1)));
      EXPECT_EQ(accepts(grammar, std::to_string(-factor * of)), true) << factor;
    }
    EXPECT_FALSE(accepts(grammar, "00"));
    EXPECT_FALSE(accepts(grammar, "-0"));
  }
  const auto ranged =
      test::compile(GrammarKind::kJsonSchema,
                    R"({"type":"integer","multipleOf":7,"minimum":-20,"exclusiveMaximum":140})");
  for (int i = -200; i <= 1000; ++i) {
    EXPECT_EQ(accepts(ranged, std::to_string(i)), i % 7 == 0 && i >= -20 && i < 140) << i;
  }
  const auto above =
      test::compile(GrammarKind::kJsonSchema, R"({"type":"integer","multipleOf":7,"minimum":95})");
  for (int i = -200; i <= 2000; ++i)
    EXPECT_EQ(accepts(above, std::to_string(i)), i % 7 == 0 && i >= 95) << i;
  const auto below = test::compile(GrammarKind::kJsonSchema,
                                   R"({"type":"integer","multipleOf":13,"maximum":-100})");
  for (int i = -2000; i <= 200; ++i)
    EXPECT_EQ(accepts(below, std::to_string(i)), i % 13 == 0 && i <= -100) << i;
}

TEST(Hostile, WideEnumerations) {
  std::string text = "{\"enum\":[";
  for (int i = 0; i < 30000; ++i)
    text += fmt::format("{}\"s{:05}\"", i == 0 ? "" : ",", i * 7919 % 100000);
  const auto grammar = test::compile(GrammarKind::kJsonSchema, text + "]}");
  EXPECT_TRUE(accepts(grammar, "\"s07919\""));
  EXPECT_FALSE(accepts(grammar, "\"s0791\""));
}

TEST(Hostile, ManyStacksOfOneState) {
  for (const char* pattern : {"(.{0,300}){3}", "(.{0,3000}){3}", ".*.{3000}", "(.{0,30}é?){40}"}) {
    const size_t before = held_bytes();
    GrammarSpec spec;
    spec.kind = GrammarKind::kRegex;
    spec.text = pattern;
    const auto grammar = compile_grammar(spec, test::toy_trie());
    if (!grammar.ok()) {
      EXPECT_EQ(grammar.status().code(), StatusCode::kResourceExhausted) << pattern;
      continue;
    }
    auto constraint = make_constraint(*grammar);
    const std::string text = "Grüße, 123 \"x\" und noch etwas mehr, das lang genug ist. ";
    for (const char byte : text) {
      ASSERT_TRUE(constraint->allows(static_cast<uint8_t>(byte))) << pattern;
      EXPECT_FALSE(test::allowed(*constraint, test::toy().vocab_size()).empty());
      constraint->advance(static_cast<uint8_t>(byte));
    }
    const size_t grown = held_bytes() - std::min(before, held_bytes());
    fmt::print("{}: {} MiB\n", pattern, grown >> 20);
    if (!test::kSanitized) {
      EXPECT_LT(grown, size_t{64} << 20) << pattern;
    }
  }
}

}  // namespace aerie::hostile_test
